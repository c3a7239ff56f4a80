// Package miniredis runs the store's conformance suite on miniredis, a Redis in Go that many teams
// test with.
package miniredis

import (
	"fmt"
	"os"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
	"github.com/stint-go/stint/store/storetest"
)

func TestCompatMiniredis(t *testing.T) {
	if os.Getenv("STINT_SUITE") != "compat" {
		t.Skip("make test-compat runs it")
	}
	m := miniredis.RunT(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	m.SetTime(now)
	m.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { rdb.Close() })
	rules, failed := 0, 0
	storetest.Run(t, func(t *testing.T) store.Store {
		rules++
		t.Cleanup(func() {
			if t.Failed() {
				failed++
			}
		})
		s := redisstore.New(rdb, redisstore.WithPrefix(fmt.Sprintf("t%d:", rules)), redisstore.WithTimeout(time.Minute),
			redisstore.WithLeaseTTL(20*365*24*time.Hour)) // no lease is renewed while the suite's time goes by
		t.Cleanup(func() { s.Close() })
		return s
	}, storetest.WithNow(func() time.Time { return now }), storetest.WithSleep(func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
	}))
	t.Logf("%d of %d rules hold", rules-failed, rules)
}
