package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// Whatever helps on the client's side: several stores on one server, random costs
// and times, callers side by side, refunds and looks. In all no more passes than
// the burst and what the rate has given since, at any instant; and when what is
// held has gone back, nothing is missing either.
func TestHelpAdmitsNoMore(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	rdb.AddHook(redistest.ByToldClock())
	first, seeds := versionstest.Seeds(1)
	for name, help := range map[string][]redisstore.Option{
		"none":       nil,
		"deny cache": {redisstore.WithDenyCache(100)},
		"prefetch":   {redisstore.WithPrefetch(40, time.Second)},
		"both":       {redisstore.WithPrefetch(40, time.Second), redisstore.WithDenyCache(100)},
	} {
		for seed := first; seed < first+seeds; seed++ {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) { admitsNoMore(t, rdb, help, seed) })
		}
	}
}

func admitsNoMore(t *testing.T, rdb redis.UniversalClient, help []redisstore.Option, seed uint64) {
	const units, burst = 7, 500
	l := limit(t, store.Spec{Units: units, Period: time.Second, Burst: burst})
	c := newClock()
	prefix := redistest.Prefix(t)
	var stores []*redisstore.Store
	for range 3 {
		s := redisstore.New(rdb, append(append([]redisstore.Option{
			redisstore.WithClock(c.now), redisstore.WithPrefix(prefix), patient,
		}, help...), redisstore.WithHelpClock(c.now))...)
		defer s.Close()
		stores = append(stores, s)
	}
	began := c.now()
	due := func() int64 { return burst + int64(c.now().Sub(began)/time.Microsecond)*units/1_000_000 }

	if r, err := take(stores[0], "k", l, burst/2); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	var admitted atomic.Int64 // less what has been refunded
	admitted.Store(burst / 2)
	var passed, denied atomic.Int64
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 150 {
		var wg sync.WaitGroup
		for range 6 {
			s, seed := stores[rnd.IntN(len(stores))], rnd.Uint64()
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, 2))
				for range 4 {
					cost := rnd.Int64N(4)
					if rnd.IntN(10) == 0 {
						cost = rnd.Int64N(40)
					}
					r, err := take(s, "k", l, cost)
					if err != nil {
						t.Error(err)
						return
					}
					if !r.OK {
						denied.Add(1)
						continue
					}
					passed.Add(1)
					admitted.Add(cost)
					if rnd.IntN(8) > 0 || cost == 0 {
						continue
					}
					// At the instant at which it was charged a refund is whole.
					now := rnd.Int64N(cost)
					if _, err := settle(s, "k", l, r.Receipt, now); err != nil {
						t.Error(err)
					}
					admitted.Add(now - cost)
				}
			})
		}
		wg.Wait()
		if n := admitted.Load(); n > due() {
			t.Fatalf("%d admitted after %v, due are %d", n, c.now().Sub(began), due())
		}
		c.sleep(time.Duration(rnd.Int64N(2_000_000)) * time.Microsecond >> rnd.IntN(8))
		if rnd.IntN(2) == 0 {
			stores[rnd.IntN(len(stores))].Sweep()
		}
	}
	c.sleep(time.Second) // as long as anything is held
	for _, s := range stores {
		s.Sweep()
	}
	if r, err := take(stores[0], "k", l, 0); err != nil || r.Remaining != due()-admitted.Load() {
		t.Errorf("%d left, %v; want %d of %d", r.Remaining, err, due()-admitted.Load(), due())
	}
	if passed.Load() < 100 || denied.Load() < 100 {
		t.Errorf("%d passed and %d were denied: the test is at fault", passed.Load(), denied.Load())
	}
}
