package serve

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
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
