package redisstore_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
	"github.com/stint-go/stint/store/storetest"
)

// clock is a clock that is set by hand.
type clock struct{ us atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.us.Store(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time        { return time.UnixMicro(c.us.Load()) }
func (c *clock) sleep(d time.Duration) { c.us.Add(d.Microseconds()) }

// expiring is a hook under which the server's keys expire by the suite's time.
// They expire by the server's own, in real milliseconds, while the suite's
// stands still or goes by in months; so what has expired by Expiring is deleted
// before a script begins.
type expiring struct {
	mu      sync.Mutex
	scripts map[string]string // SHA-1 of a script to that of the one run instead
}

const shim = redisstore.Expiring + `
for i = 1, #KEYS do
  local at = call_('GET', note(KEYS[i]))
  if at and (told_ >= at + 0 or call_('EXISTS', KEYS[i]) == 0) then call_('DEL', KEYS[i], note(KEYS[i])) end
end
`

func (h *expiring) change(cmd redis.Cmder) error {
	args := cmd.Args()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch args[0] {
	case "evalsha":
		instead, known := h.scripts[args[1].(string)]
		if !known {
			cmd.SetErr(redis.ErrNoScript)
			return redis.ErrNoScript
		}
		args[1] = instead
	case "eval":
		sum := sha1.Sum([]byte(args[1].(string)))
		args[1] = shim + args[1].(string)
		instead := sha1.Sum([]byte(args[1].(string)))
		h.scripts[hex.EncodeToString(sum[:])] = hex.EncodeToString(instead[:])
	}
	return nil
}

func (h *expiring) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *expiring) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.change(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *expiring) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var pass []redis.Cmder
		for _, cmd := range cmds {
			if h.change(cmd) == nil {
				pass = append(pass, cmd)
			}
		}
		if len(pass) == 0 {
			return redis.ErrNoScript
		}
		return next(ctx, pass)
	}
}

func conform(t *testing.T, rdb redis.UniversalClient, opts ...redisstore.Option) {
	t.Helper()
	conformBut(t, rdb, func(string) string { return "" }, opts...)
}

// conformBut leaves out the rules for whose names it has a reason.
func conformBut(t *testing.T, rdb redis.UniversalClient, why func(name string) string, opts ...redisstore.Option) {
	t.Helper()
	rdb.AddHook(&expiring{scripts: map[string]string{}})
	c := newClock()
	var s *redisstore.Store
	storetest.Run(t, func(t *testing.T) store.Store {
		if reason := why(t.Name()); reason != "" {
			t.Skip(reason)
		}
		s = redisstore.New(rdb, append(append([]redisstore.Option{
			redisstore.WithClock(c.now), redisstore.WithPrefix(redistest.Prefix(t)), redisstore.WithTimeout(time.Minute),
			// Nor are leases renewed while the suite's time goes by.
			redisstore.WithLeaseTTL(20 * 365 * 24 * time.Hour),
		}, opts...), redisstore.WithHelpClock(c.now))...)
		t.Cleanup(func() { s.Close() })
		return s
	}, storetest.WithNow(c.now), storetest.WithSleep(func(d time.Duration) {
		c.sleep(d)
		s.Sweep()
	}))
}

func TestConformance(t *testing.T) {
	conform(t, redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
}

// A client that ignores deadlines, and calls that go alone.
func TestServersConformanceAlone(t *testing.T) {
	redistest.Suite(t, "servers")
	conform(t, redistest.Shared(t).Client(), redisstore.WithoutBatching())
}

func TestServersConformanceRESP2(t *testing.T) {
	redistest.Suite(t, "servers")
	conform(t, redistest.Shared(t).Client(func(o *redis.Options) { o.Protocol, o.ContextTimeoutEnabled = 2, true }))
}

func TestServersConformanceCluster(t *testing.T) {
	redistest.Suite(t, "servers")
	conform(t, redistest.StartCluster(t, 3, 0).Client())
}

func TestServersConformanceSentinel(t *testing.T) {
	redistest.Suite(t, "servers")
	conform(t, redistest.StartSentinel(t, 1).Client())
}

func TestServersConformanceRing(t *testing.T) {
	redistest.Suite(t, "servers")
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}})
	t.Cleanup(func() { ring.Close() })
	conform(t, ring)
}

// Refusals from memory are those that the server would give, to the microsecond.
func TestServersConformanceDenyCache(t *testing.T) {
	redistest.Suite(t, "servers")
	conform(t, redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }), redisstore.WithDenyCache(10_000))
}

// Few of the suite's limits are large enough to be leased: TestHelpAdmitsNoMore
// is about those that are.
func TestServersConformanceLeasing(t *testing.T) {
	redistest.Suite(t, "servers")
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	conformBut(t, rdb, func(name string) string {
		if strings.HasSuffix(name, "/Concurrent/exactly_the_burst/TokenBucket_1000000_per_day") {
			return "while the last tokens are on their way to one caller, all others may be refused: see WithLeasing"
		}
		return ""
	}, redisstore.WithLeasing(100, time.Second))
}
