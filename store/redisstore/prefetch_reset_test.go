package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// lessor is a store that holds nine tokens of a limit of 100, on a clock of its
// own; another that leases nothing has the same server.
func lessor(t *testing.T, rdb redis.UniversalClient, spec store.Spec, opts ...Option) (s, other *Store, l *store.Limit, sleep func(time.Duration)) {
	t.Helper()
	began, gone := time.Now(), new(atomic.Int64)
	opts = append(opts[:len(opts):len(opts)], WithPrefix(redistest.Prefix(t)), WithTimeout(time.Minute))
	other = New(rdb, opts...)
	s = New(rdb, append(opts, WithPrefetch(10, time.Second), WithHelpClock(func() time.Time { return began.Add(time.Duration(gone.Load())) }))...)
	t.Cleanup(func() { s.Close() })
	t.Cleanup(func() { other.Close() })
	l = denyLimit(t, spec)
	for range 2 {
		if r := mustTake(t, s, "k", l, 1); !r.OK {
			t.Fatal(r)
		}
	}
	if left := mustTake(t, other, "k", l, 0).Remaining; left != 89 {
		t.Fatalf("%d left, want 89: nothing was leased", left)
	}
	return s, other, l, func(d time.Duration) { gone.Add(int64(d)) }
}

var leased = store.Spec{Name: "rate", Units: 1, Period: time.Hour, Burst: 100}

// Reset drops what is held, whichever value of the limit is named, and nothing of
// it goes back later.
func TestResetDropsWhatIsHeld(t *testing.T) {
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	anew := denyLimit(t, leased)
	raised := leased
	raised.Burst = 200
	for name, of := range map[string]func(l *store.Limit) *store.Limit{
		"the limit":              func(l *store.Limit) *store.Limit { return l },
		"an equal one made anew": func(*store.Limit) *store.Limit { return anew },
		"another version":        func(*store.Limit) *store.Limit { return denyLimit(t, raised) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, l, sleep := lessor(t, rdb, leased)
			if _, err := s.Reset(t.Context(), "k", of(l)); err != nil {
				t.Fatal(err)
			}
			passed := 0
			for range 120 {
				if mustTake(t, s, "k", l, 1).OK {
					passed++
				}
			}
			sleep(time.Second)
			s.Sweep()
			for range 20 {
				if mustTake(t, s, "k", l, 1).OK {
					passed++
				}
			}
			if passed != 100 {
				t.Errorf("%d of 100 pass after the reset", passed)
			}
		})
	}
}

// What is held of a limit is given to one made anew that says the same, and not
// to one that says something else.
func TestPrefetchAcrossVersions(t *testing.T) {
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	s, other, l, sleep := lessor(t, rdb, leased)
	if r := mustTake(t, s, "k", denyLimit(t, leased), 3); !r.OK || r.Remaining != 95 {
		t.Errorf("an equal limit: %+v", r)
	}
	changed := leased
	changed.Units = 2
	if mustTake(t, s, "k", denyLimit(t, changed), 1); s.prefetching.byKey[prefetchedKey{"k", inside.Hash(l)}].left != 6 {
		t.Error("another version was given what this one had taken")
	}
	sleep(time.Second)
	s.Sweep()
	// 11 were taken, and the other version's. What was taken before the numbers changed isn't refunded.
	if left := mustTake(t, other, "k", l, 0).Remaining; left != 88 {
		t.Errorf("%d left, want 88", left)
	}
}

// Another process's Reset: what is left here doesn't go back, at the expense of
// those who have been charged since.
func TestResetElsewhereKeepsLeftoversOut(t *testing.T) {
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	coarse := store.Spec{Name: "rate", Units: 7, Period: 70 * time.Hour, Burst: 100}
	odd := store.Spec{Name: "rate", Units: 7, Period: 10_000_001 * time.Microsecond * 360, Burst: 100}
	began, told := time.Now(), new(atomic.Int64)
	for name, tt := range map[string]struct {
		spec store.Spec
		opts []Option
	}{
		"plain":                {spec: leased},
		"a tenth of an hour":   {spec: coarse},
		"odd numbers":          {spec: odd},
		"a clock of their own": {spec: leased, opts: []Option{WithClock(func() time.Time { return began.Add(time.Duration(told.Add(1)) * time.Millisecond) })}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reset := range []bool{true, false} {
				s, other, l, sleep := lessor(t, rdb, tt.spec, tt.opts...)
				want := int64(89 + 9 - 50) // nine are given back
				if reset {
					if _, err := other.Reset(t.Context(), "k", l); err != nil {
						t.Fatal(err)
					}
					want = 50
				}
				mustTake(t, other, "k", l, 50)
				sleep(time.Second)
				s.Sweep()
				if left := mustTake(t, other, "k", l, 0).Remaining; left != want {
					t.Errorf("reset %v: %d left, want %d", reset, left, want)
				}
				if _, err := other.Reset(t.Context(), "k", l); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A denial that was remembered while the last tokens were on their way here
// doesn't hide them.
func TestDenyCacheLetsHeldTokensOut(t *testing.T) {
	rdb := redistest.Start(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	h := new(tap)
	rdb.AddHook(h)
	s := New(rdb, WithTimeout(time.Minute), WithPrefetch(10, time.Second), WithDenyCache(10))
	defer s.Close()
	l := denyLimit(t, leased)
	mustTake(t, s, "k", denyLimit(t, leased), 89) // more than are leased at once
	mustTake(t, s, "k", l, 1)
	taken, denied := make(chan bool), make(chan bool)
	h.with.Store(&injectedFault{scripts.Take(scripts.TokenBucket), "k", func(ctx context.Context, cmd *redis.Cmd, next redis.ProcessHook) error {
		h.with.Store(nil)
		err := next(ctx, once{cmd})
		close(taken)
		<-denied
		return err
	}})
	done := make(chan store.Result)
	go func() {
		var r [1]store.Result
		if err := s.Take(context.Background(), []store.Charge{{Key: "k", Limit: l, Cost: 1}}, r[:]); err != nil {
			t.Error(err)
		}
		done <- r[0]
	}()
	<-taken
	if r := mustTake(t, s, "k", l, 1); r.OK {
		t.Fatal("the server had none left")
	}
	close(denied)
	if r := <-done; !r.OK {
		t.Fatal(r)
	}
	given := 0
	for range 12 {
		if mustTake(t, s, "k", l, 1).OK {
			given++
		}
	}
	if given != 9 {
		t.Errorf("%d of the 9 that are held were given", given)
	}
}
