package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
	"github.com/stint-go/stint/store/storetest"
)

// Lua 5.4, which Dragonfly has, differs from Redis's 5.1 in numbers: integers are a kind of their own,
// and functions refuse to compare text with numbers.
func TestCompatLua54(t *testing.T) {
	redistest.Suite(t, "compat")
	c := newClock()
	rdb := redistest.StartLua54(t, c.now).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	rules, failed := 0, 0
	storetest.Run(t, func(t *testing.T) store.Store {
		rules++
		t.Cleanup(func() {
			if t.Failed() {
				failed++
			}
		})
		s := redisstore.New(rdb, redisstore.WithPrefix(redistest.Prefix(t)), redisstore.WithTimeout(time.Minute),
			redisstore.WithLeaseTTL(20*365*24*time.Hour)) // no lease is renewed while the suite's time goes by
		t.Cleanup(func() { s.Close() })
		return s
	}, storetest.WithNow(c.now), storetest.WithSleep(c.sleep))
	t.Logf("%d of %d rules hold", rules-failed, rules)
}
