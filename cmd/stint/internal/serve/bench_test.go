package serve

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// A decision over loopback, by both protocols, in memory and on Redis: one after the other.
func BenchmarkDecision(b *testing.B) {
	server := redistest.Start(b)
	for _, on := range []string{"memory", "Redis"} {
		change := func(c *Config) {
			if on == "Redis" {
				c.Redis = &redis.Options{Addr: server.Addr(), DialerRetries: 1, ContextTimeoutEnabled: true}
			}
		}
		s, _ := start(b, "version: 1\nkey: remote-ip\nlimits: [{name: a, rate: 1000000/1s}]\n", change)
		b.Run("forward auth, "+on, func(b *testing.B) {
			measure(b, func() {
				r := get("/a").forwarded(b, "nginx", "")
				r.URL.Host, r.RequestURI, r.RemoteAddr = s.AuthAddr.String(), "", ""
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if _ = resp.Body.Close(); resp.StatusCode != 200 {
					b.Fatal(resp.Status)
				}
			})
		})
		client, _, _ := startRLS(b, "version: 1\ndomain: shop\nkey: {descriptor: [a]}\nlimits: [{name: a, rate: 1000000/1s}]\n", change)
		b.Run("rate limit service, "+on, func(b *testing.B) {
			measure(b, func() {
				resp, err := client.ShouldRateLimit(b.Context(), limitRequest("shop", 0, described("a=b")))
				if err != nil || codesOf(resp) != "OK: OK" {
					b.Fatal(resp, err)
				}
			})
		})
	}
}

// measure reports the median and the 99th percentile of a call.
func measure(b *testing.B, call func()) {
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		call()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// A take and a settlement: over loopback, and by the same calls in Go, in memory and on Redis. Over loopback, the
// settlement marks the token first, so it asks the store three times in all, and Go twice.
func BenchmarkTokens(b *testing.B) {
	const text = "version: 1\nkey: given\nlimits: [{name: a, rate: 10_000_000/1s}, {name: b, quota: 1000000000000/monthly}]\n"
	server := redistest.Start(b)
	for _, on := range []string{"memory", "Redis"} {
		var counts store.Store
		s, _ := start(b, text, func(c *Config) {
			c.Proxy, c.APIAddr, c.TokenLife, c.Secret = "", "127.0.0.1:0", time.Hour,
				[]byte("a secret of sixteen bytes")
			if on == "Redis" {
				c.Redis = &redis.Options{Addr: server.Addr(), DialerRetries: 1, ContextTimeoutEnabled: true}
				counts = shared(b, server)
			}
		})
		post := func(path, body string) (said decisionBody) {
			resp, err := http.Post("http://"+s.APIAddr.String()+path, "application/json", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			defer resp.Body.Close()
			if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || !said.Allowed {
				b.Fatal(resp.Status, err)
			}
			return said
		}
		b.Run("loopback, "+on, func(b *testing.B) {
			measure(b, func() {
				token := post("/v1/take", `{"limiter": "policy", "key": "k", "cost": 2}`).Token
				post("/v1/settle", `{"token": "`+token+`", "cost": 1}`)
			})
		})
		l := newReplicaOf(b, counts, text).limiter
		b.Run("Go, "+on, func(b *testing.B) {
			measure(b, func() {
				p, err := l.Take(b.Context(), "k", 2)
				if err == nil {
					err = p.Settle(b.Context(), 1)
				}
				if p.Done(); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
