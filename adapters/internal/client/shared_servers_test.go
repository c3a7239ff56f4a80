package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store/redisstore"
)

// Processes that share a Redis keep each other's pauses, by the server's clock, on one server and on a cluster, where
// the pause of a destination is in another slot than its charges.
func TestServersSharedPause(t *testing.T) {
	redistest.Suite(t, "servers")
	for name, client := range map[string]func() redis.UniversalClient{
		"one server": func() redis.UniversalClient { return redistest.Start(t).Client() },
		"a cluster": func() redis.UniversalClient {
			return redistest.StartCluster(t, 3, 0).Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := client()
			newProcess := func(lines ...string) process {
				s := redisstore.New(rdb, redisstore.WithTimeout(time.Minute))
				t.Cleanup(func() { s.Close() })
				p := newProcess(t, s, lines...)
				p.Destination = stint.KeyFunc(func(r *http.Request) (string, error) { return r.URL.Path, nil })
				return p
			}
			const pause = 1500 * time.Millisecond
			a, b := newProcess("429 Retry-After-Ms: 1500"), newProcess()
			a.get(t, "https://a.test/x")
			over := a.start.Add(a.times()[0] + pause)
			b.get(t, "https://a.test/y")
			if opens := b.gates.opening(gateKey{"https://a.test", "/y"}); !opens.IsZero() {
				t.Errorf("another destination is paused until %v", opens)
			}
			b.get(t, "https://a.test/x")
			if sent := b.start.Add(b.times()[1]); sent.Before(over) {
				t.Errorf("sent %v before the end of a pause of %v", over.Sub(sent), pause)
			}
			c := newProcess()
			c.get(t, "https://a.test/x")
			if opens := c.gates.opening(gateKey{"https://a.test", "/x"}); !opens.IsZero() {
				t.Errorf("a process that comes after the pause is paused until %v", opens)
			}
		})
	}
}
