package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

// Who gets tokens from what is held, and who is to take more.
func TestStocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := denyLimit(t, store.Spec{Name: "rate", Units: 100, Period: time.Second, Burst: 100})
		s := newPrefetching(10, 50*time.Millisecond)
		c := store.Charge{Key: "k", Limit: l, Cost: 1}
		var r store.Result
		var k *prefetched
		ask := func(cost int64, ok bool, fetch int64) {
			t.Helper()
			c.Cost = cost
			gotOK, gotFetch := s.take(&c, &r), int64(0)
			if !gotOK {
				var of *prefetched
				if of, gotFetch = s.beginFetch(&c); of != nil {
					k = of
				}
			}
			if gotOK != ok || gotFetch != fetch {
				t.Fatalf("cost %d: %v, to take %d; want %v, %d", cost, gotOK, gotFetch, ok, fetch)
			}
		}
		ask(1, false, 0)  // the first asks the server
		ask(1, false, 10) // the second is to take ten
		ask(1, false, 0)  // and the third doesn't wait for it
		taken := store.Result{OK: true, Remaining: 50, ResetAfter: time.Second, Receipt: store.Receipt{Mark: 900_000, Cost: 10}}
		fetched := func(taken store.Result) bool {
			ok, over := s.endFetch(&c, k, taken, 10, &r)
			if over != 0 {
				t.Errorf("%d are left over", over)
			}
			return ok
		}
		// Of ten tokens, each 10,000 units long, this is the first.
		if c.Cost = 1; !fetched(taken) || r.Remaining != 59 || r.Receipt.Cost != 1 || r.Receipt.Mark != 900_000-9*10_000 {
			t.Fatalf("%+v", r)
		}
		time.Sleep(10 * time.Millisecond)
		ask(5, true, 0)
		if r.Remaining != 54 || r.ResetAfter != 990*time.Millisecond || r.Receipt.Mark != 900_000-4*10_000 {
			t.Errorf("%+v", r)
		}
		ask(5, false, 0)  // four are left
		ask(6, false, 0)  // more than half of what is taken at once
		ask(0, false, 0)  // to look
		ask(4, true, 0)   // all of it
		ask(1, false, 10) // more
		if fetched(store.Result{}) {
			t.Error("gave out what the server denied")
		}
		ask(1, false, 10)
		fetched(taken)
		time.Sleep(50 * time.Millisecond)
		ask(1, false, 0) // too old
		back := s.removeExpired(false)
		if len(back) != 1 || back[0].Cost != 1 || back[0].Receipt.Cost != 10 {
			t.Errorf("settled back: %+v", back)
		}
		ask(1, false, 0)
		ask(1, false, 10)
	})
}

// While tokens are being taken, the key is reset, or the store closed.
func TestStocksMeanwhile(t *testing.T) {
	l := denyLimit(t, store.Spec{Name: "rate", Units: 100, Period: time.Second, Burst: 100})
	c := store.Charge{Key: "k", Limit: l, Cost: 1}
	taken := store.Result{OK: true, Remaining: 50, Receipt: store.Receipt{Mark: 900_000, Cost: 10}}
	for _, tt := range []struct {
		name      string
		meanwhile func(*prefetching)
		over      int64
	}{
		{"reset", func(s *prefetching) { s.forget("k", []*store.Limit{l}) }, 0},
		{"reset, and another is about to take", func(s *prefetching) {
			s.forget("k", []*store.Limit{l})
			for range 2 {
				s.beginFetch(&c)
			}
		}, 0},
		{"closed", func(s *prefetching) { s.removeExpired(true) }, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newPrefetching(10, time.Second)
			var r store.Result
			s.beginFetch(&c)
			k, n := s.beginFetch(&c)
			if n != 10 {
				t.Fatalf("takes %d", n)
			}
			tt.meanwhile(s)
			if ok, over := s.endFetch(&c, k, taken, n, &r); !ok || over != tt.over {
				t.Errorf("%v, %d left over, want %d", ok, over, tt.over)
			}
			if s.take(&c, &r) {
				t.Error("given out from what was taken before")
			}
		})
	}
}

// Nothing is leased of what can't be given out piece by piece.
func TestStocksLeaveAlone(t *testing.T) {
	s := newPrefetching(10, time.Second)
	rate := denyLimit(t, store.Spec{Name: "a", Units: 100, Period: time.Second})
	for name, c := range map[string]store.Charge{
		"waits":      {Limit: rate, Cost: 1, MaxWait: time.Second},
		"dry run":    {Limit: rate, Cost: 1, DryRun: true},
		"a look":     {Limit: rate},
		"small":      {Limit: denyLimit(t, store.Spec{Name: "a", Units: 10, Period: time.Second}), Cost: 1},
		"queue":      {Limit: denyLimit(t, store.Spec{Name: "a", Units: 100, Period: time.Second, Queue: 3}), Cost: 1},
		"debt":       {Limit: denyLimit(t, store.Spec{Name: "a", Units: 100, Period: time.Second, Debt: true}), Cost: 1},
		"other kind": {Limit: denyLimit(t, store.Spec{Name: "a", Algorithm: store.FixedWindow, Units: 100, Period: time.Second}), Cost: 1},
	} {
		if n := s.bulk(&c); n != 0 {
			t.Errorf("%s: takes %d", name, n)
		}
	}
	if n := s.bulk(&store.Charge{Limit: rate, Cost: 1}); n != 10 {
		t.Errorf("takes %d, want 10", n)
	}
}

// Two stores that lease let no more through than one limit; and ask little,
// while there is enough.
func TestPrefetchNeverAdmitsMore(t *testing.T) {
	for _, burst := range []int64{2000, 100_000} {
		server := redistest.Start(t)
		l := denyLimit(t, store.Spec{Name: "rate", Units: 1, Period: time.Hour, Burst: burst})
		var asked, passed atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			s := New(rdb, WithPrefetch(100, time.Second), WithTimeout(time.Minute))
			defer s.Close()
			for g := range 8 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(g), 1))
					charges, results := []store.Charge{{Key: "k", Limit: l}}, make([]store.Result, 1)
					for range 400 {
						charges[0].Cost = 1 + rnd.Int64N(3)
						asked.Add(charges[0].Cost)
						if err := s.Take(context.Background(), charges, results); err != nil {
							t.Error(err)
							return
						}
						if results[0].OK {
							passed.Add(charges[0].Cost)
						}
					}
				})
			}
		}
		wg.Wait()
		calls, _ := server.CommandStats("evalsha")
		n := passed.Load()
		if most := min(burst, asked.Load()); n > most || n < most-2*100 {
			t.Errorf("%d of %d passed, want %d, or less by what is held", n, asked.Load(), most)
		}
		if burst > asked.Load() && calls > 3200 {
			t.Errorf("%d calls for 6400", calls)
		}
	}
}

// What is left goes back before Close returns: who then closes the client loses nothing.
func TestPrefetchGivesBack(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	l := denyLimit(t, store.Spec{Name: "rate", Units: 1, Period: time.Hour, Burst: 1000})
	charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)
	ctx := context.Background()
	s := New(rdb, WithPrefetch(100, time.Second), WithTimeout(time.Minute))
	for range 7 {
		if err := s.Take(ctx, charges, results); err != nil {
			t.Fatal(err)
		}
	}
	if results[0].Remaining != 993 {
		t.Errorf("%d remain here, want 993", results[0].Remaining)
	}
	s.Close()
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	other := New(server.Client(), WithTimeout(time.Minute))
	defer other.Close()
	charges[0].Cost = 0
	if err := other.Take(ctx, charges, results); err != nil || results[0].Remaining != 993 {
		t.Errorf("%d remain, %v; want 993", results[0].Remaining, err)
	}
}

// Close waits for what the store has begun to give back, and no longer than a call takes.
func TestCloseWaitsForGivingBack(t *testing.T) {
	for _, x := range []struct {
		name               string
		took, closes, want time.Duration
	}{
		{"what it holds", 30 * time.Millisecond, 0, 30 * time.Millisecond},
		{"what became too old", 60 * time.Millisecond, 70 * time.Millisecond, 110 * time.Millisecond},
		{"a server that doesn't answer", time.Hour, 0, defaultTimeout},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(nil, WithPrefetch(100, 50*time.Millisecond))
				s.settles.Send = func(context.Context, []*batch.Call[settleRequest]) { time.Sleep(x.took) }
				l := denyLimit(t, store.Spec{Name: "rate", Units: 1000, Period: time.Second})
				start := time.Now()
				s.prefetching.byKey[prefetchedKey{"k", inside.Hash(l)}] = &prefetched{
					limit: l, left: 5, until: start.Add(50 * time.Millisecond),
					charged: store.Result{OK: true, Receipt: store.Receipt{Instant: 1, Cost: 10}},
				}
				s.prefetching.mu.Lock()
				s.prefetching.scheduleSweep()
				s.prefetching.mu.Unlock()
				time.Sleep(x.closes)
				s.Close()
				if took := time.Since(start); took != x.want {
					t.Errorf("Close returns after %v, want %v", took, x.want)
				}
				time.Sleep(2 * time.Hour) // what it left behind ends
			})
		})
	}
}
