package redisstore_test

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
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

func conform(t *testing.T, rdb redis.UniversalClient, opts ...redisstore.Option) {
	t.Helper()
	conformBut(t, rdb, func(string) string { return "" }, opts...)
}

// inTurn reports whether a rule is of those that make many calls one after the other. They are about
// what a script computes; the race detector, and who goes another way to the server, sees in them what
// it sees in one call of the other rules.
func inTurn(name string) bool {
	groups := []string{"/Exact/", "/Retry/", "/Expiry/", "/Change/", "/Versions/", "/Settle/in_parts/", "/Settle/mints_nothing/"}
	return slices.ContainsFunc(groups, func(group string) bool { return strings.Contains(name, group) })
}

// conformByWay is conform where only the way to the server is another. With STINT_LONG=1 it leaves
// nothing out.
func conformByWay(t *testing.T, rdb redis.UniversalClient, opts ...redisstore.Option) {
	t.Helper()
	conformBut(t, rdb, func(name string) string {
		if inTurn(name) && os.Getenv("STINT_LONG") == "" {
			return "about what a script computes, whatever the way to it: TestConformance has it, and STINT_LONG=1"
		}
		return ""
	}, opts...)
}

// conformBut leaves out the rules for whose names it has a reason.
func conformBut(t *testing.T, rdb redis.UniversalClient, why func(name string) string, opts ...redisstore.Option) {
	t.Helper()
	rdb.AddHook(redistest.ByToldClock())
	c := newClock()
	var s *redisstore.Store
	storetest.Run(t, func(t *testing.T) store.Store {
		if reason := why(t.Name()); reason != "" {
			t.Skip(reason)
		}
		if redisstore.UnderRace && inTurn(t.Name()) {
			t.Skip("one call after the other: make test and make test-servers run it without the race detector")
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
	t.Parallel()
	conform(t, redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
}

// A client that ignores deadlines, and calls that go alone.
func TestServersConformanceAlone(t *testing.T) {
	redistest.Suite(t, "servers")
	conformByWay(t, redistest.Shared(t).Client(), redisstore.WithoutBatching())
}

func TestServersConformanceRESP2(t *testing.T) {
	redistest.Suite(t, "servers")
	conformByWay(t, redistest.Shared(t).Client(func(o *redis.Options) { o.Protocol, o.ContextTimeoutEnabled = 2, true }))
}

func TestServersConformanceCluster(t *testing.T) {
	redistest.Suite(t, "servers")
	conform(t, redistest.StartCluster(t, 3, 0).Client())
}

func TestServersConformanceSentinel(t *testing.T) {
	redistest.Suite(t, "servers")
	conformByWay(t, redistest.StartSentinel(t, 1).Client())
}

func TestServersConformanceRing(t *testing.T) {
	redistest.Suite(t, "servers")
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}})
	t.Cleanup(func() { ring.Close() })
	conformByWay(t, ring)
}

// Denials from memory are those that the server would give, to the microsecond, if nothing was
// charged since.
func TestServersConformanceDenyCache(t *testing.T) {
	redistest.Suite(t, "servers")
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	conformBut(t, rdb, func(name string) string {
		if strings.Contains(name, "/Retry/more/") {
			return "a denial from memory doesn't know what a smaller cost has charged since, so less may be left than it says"
		}
		return ""
	}, redisstore.WithDenyCache(10_000))
}

// Few of the suite's limits are large enough to be leased: TestHelpAdmitsNoMore
// is about those that are.
func TestServersConformancePrefetch(t *testing.T) {
	redistest.Suite(t, "servers")
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	conformBut(t, rdb, func(name string) string {
		switch {
		case strings.HasSuffix(name, "/Concurrent/exactly_the_burst/TokenBucket_1000000_per_day"):
			return "while the last tokens are on their way to one caller, all others may be denied: see WithPrefetch"
		case strings.HasSuffix(name, "/Retry/more/TokenBucket_1000000_per_day"):
			return "prefetched tokens that are given back because they are old are there before MoreAfter"
		}
		return ""
	}, redisstore.WithPrefetch(100, time.Second))
}
