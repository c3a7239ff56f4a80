package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// Whatever an Update or stop replaces, an observer that got a request's decision gets its end.
func TestObserversGetTheEnd(t *testing.T) {
	name := stint.WithName("x")
	for limits, limit := range map[string]stint.Limit{
		"plain": ample(name), "slots": stint.Concurrency(1<<20, name), "adaptive": stint.AdaptiveConcurrency(99, 99, name),
		"settled": ample(name, stint.WithSettle(stint.FailedOnly)),
	} {
		for _, way := range []string{"Update", "Update while others are admitted", "stop"} {
			t.Run(limits+", "+way, func(t *testing.T) {
				var first, second gauge
				l := limiter(t, theKey, limit)
				stop := l.Observe(first.observe)
				replace := func() {
					if way != "stop" {
						if err := l.Update(theKey, limit, stint.WithObserver(second.observe)); err != nil {
							t.Error(err)
						}
					}
					stop()
				}
				if way != "stop" {
					stop()
					if err := l.Update(theKey, limit, stint.WithObserver(first.observe)); err != nil {
						t.Fatal(err)
					}
				}
				through(l, get("/"), func(http.ResponseWriter, *http.Request) {
					release := take(t, l, 1).Detach()
					defer release()
					through(l, get("/"), func(http.ResponseWriter, *http.Request) {
						replace()
						if way != "stop" && way != "Update" {
							through(l, get("/"), func(http.ResponseWriter, *http.Request) { replace() })
						}
					})
				})
				if first.begun < 2 || first.flying != 0 || second.flying != 0 {
					t.Errorf("%d begun, %d in flight; of the next %d in flight", first.begun, first.flying, second.flying)
				}
			})
		}
	}
}

// However many end a permit at once, it ends once.
func TestObserversAreToldOnceOfAnEnd(t *testing.T) {
	for name, limit := range map[string]stint.Limit{"a rate": ample(), "a slot": stint.Concurrency(9)} {
		var ended atomic.Int32
		l := limiter(t, theKey, limit)
		l.Observe(func(e stint.Event) {
			if e.Kind == stint.EventEnded {
				ended.Add(1)
			}
		})
		p := take(t, l, 1)
		var all sync.WaitGroup
		for range 8 {
			all.Go(p.Done)
			all.Go(func() { p.Detach()() })
		}
		all.Wait()
		if got := ended.Load(); got != 1 {
			t.Errorf("%s: ended %d times", name, got)
		}
	}
}

// An observer may use the request's permit in any event: no lock is held then.
func TestObserversUseThePermit(t *testing.T) {
	name := stint.WithName("x")
	write := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, n)) }
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	settle := stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })
	tests := []struct {
		name   string
		limits []stint.Option
		store  func(cancel func()) store.Store // by default one that works
		do     http.HandlerFunc
		n      int
		told   stint.EventKind
	}{
		{"settled at the end", []stint.Option{stint.Rate(9, time.Second, settle, name)}, nil, nothing, 1, stint.EventSettled},
		{"not settled at the end", []stint.Option{stint.Rate(9, time.Second, settle, name)},
			func(func()) store.Store { return unsettled() }, nothing, 1, stint.EventSettleFailed},
		{"not released", []stint.Option{stint.Concurrency(9, name)},
			func(func()) store.Store { return unsettled() }, nothing, 1, stint.EventSettleFailed},
		{"not settled by hand", []stint.Option{stint.Rate(9, time.Second, name)},
			func(func()) store.Store { return unsettled() },
			func(_ http.ResponseWriter, r *http.Request) {
				_ = stint.FromContext(r.Context()).Settle(r.Context(), 2)
			}, 1, stint.EventSettleFailed},
		{"paced", []stint.Option{stint.Bandwidth(1<<20, name)}, nil, write(10), 1, stint.EventPaced},
		{"a store that fails under a response", []stint.Option{stint.Bandwidth(1<<20, name)},
			func(func()) store.Store { s := newSpy(); s.FailWith(errDown); return s }, write(10), 1, stint.EventStoreFailed},
		{"a store that fails under a response, closed", []stint.Option{stint.Bandwidth(1<<20, name, stint.WithFailurePolicy(stint.FailClosed))},
			func(func()) store.Store { s := newSpy(); s.FailWith(errDown); return s }, write(10), 1, stint.EventStoreFailed},
		{"bytes not given back", []stint.Option{stint.Bandwidth(4096, name, stint.WithBurst(4096))},
			func(cancel func()) store.Store {
				s := unsettled()
				s.OnTake = func(c *asks) error {
					err := c.Pass()
					if takes, _ := s.Counts(); takes > 1 {
						cancel()
					}
					return err
				}
				return s
			}, write(20_000), 1, stint.EventSettleFailed},
		{"a limit that changes", []stint.Option{stint.AdaptiveConcurrency(1, 30, stint.WithSampleWindow(100*time.Millisecond), name)}, nil,
			func(_ http.ResponseWriter, r *http.Request) {
				stint.FromContext(r.Context()).Drop()
				time.Sleep(11 * time.Millisecond) // in real time, like the rest: a bubble doesn't see a lock that is waited for
			}, 12, stint.EventLimitChanged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var permit *stint.Permit
			told := map[stint.EventKind]bool{}
			opts := append(tt.limits, theKey, stint.WithObserver(func(e stint.Event) {
				told[e.Kind] = true
				_ = permit.Decision()
				if e.Kind != stint.EventSettleFailed && e.Kind != stint.EventSettled { // or it would be told of its own
					_ = permit.Settle(ctx, 1)
				}
				if e.Kind == tt.told {
					permit.Done()
				}
			}))
			if tt.store != nil {
				opts = append(opts, stint.WithStore(tt.store(cancel)))
			}
			l := limiter(t, opts...)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				// A window of a slow machine may have too few requests to say anything.
				for i := 0; i < tt.n || tt.n > 1 && !told[tt.told]; i++ {
					through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, r *http.Request) {
						permit = stint.FromContext(r.Context())
						tt.do(w, r)
					})
				}
			}()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the observer waits for a lock")
			}
			if !told[tt.told] {
				t.Errorf("not told of %v", tt.told)
			}
		})
	}
}

// A failover reports to its limiter the primary's failures, failed probes while the
// breaker is open, and its closing, even if it is inside another store.
func TestEventsOfAFailover(t *testing.T) {
	for _, nested := range []bool{false, true} {
		t.Run(fmt.Sprint("nested ", nested), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				primary := newSpy()
				s := failover.New(primary, memstore.New(), failover.WithThreshold(2), failover.WithProbe(time.Second, time.Second))
				defer s.Close()
				var given store.Store = s
				if nested {
					given = failover.New(memstore.New(), s)
				}
				h := newLogged(slog.LevelInfo)
				var mu sync.Mutex // the store tells on its own goroutine
				var told []string
				l := limiter(t, stint.Rate(99, time.Hour, stint.WithName("x")), theKey, stint.WithStore(given), h.with(), stint.WithLimiterName("front"))
				l.Observe(func(e stint.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Kind == stint.EventStoreDegraded {
						told = append(told, fmt.Sprint(e.Limiter, " down ", errors.Is(e.Err, errDown), " open ", errors.Is(e.Err, failover.ErrOpen)))
					}
				})
				ask := func() {
					if err := s.Take(t.Context(), []store.Charge{{Key: "k", Limit: quota(t), Cost: 1}}, make([]store.Result, 1)); err != nil {
						t.Fatal(err)
					}
				}
				ask()
				primary.FailWith(errDown)
				ask()
				ask()
				time.Sleep(2500 * time.Millisecond)
				primary.FailWith(nil)
				time.Sleep(time.Second)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				failed, open, well := "front down true open false", "front down true open true", "front down false open false"
				// The first probe may be told before the failure that has made it.
				slices.Sort(told[:max(len(told)-1, 0)])
				if want := []string{failed, failed, open, open, open, well}; !slices.Equal(told, want) {
					t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
				}
				if got := brief(h.lines(t)); got != "WARN a call of the store failed\nWARN the primary store fails, and limits in memory are per process" {
					t.Errorf("logged\n%s", got)
				}
			})
		})
	}
}

func quota(t *testing.T) *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "x", Units: 99, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A store doesn't keep alive a limiter to which nothing else refers.
func TestStoresKeepNoLimiter(t *testing.T) {
	s := failover.New(newSpy(), memstore.New())
	gone := func() weak.Pointer[stint.Limiter] {
		return weak.Make(limiter(t, stint.Rate(9, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s)))
	}()
	if !collected(func() bool { return gone.Value() == nil }) {
		t.Error("the store keeps the limiter")
	}
	_ = s.Stats() // it lives on
}

// lose deletes what a server knows of leases. A busy machine that renews one too late may
// have lost it before: that is a lost lease too.
func lose(t *testing.T, rdb *redis.Client, prefix string) {
	t.Helper()
	keys, err := rdb.Keys(context.Background(), prefix+"*").Result()
	if err == nil && len(keys) > 0 {
		err = rdb.Del(context.Background(), keys...).Err()
	}
	if err != nil {
		t.Fatal(keys, err)
	}
}

// Lost leases are logged and reported, with their limit and key.
func TestLostLeasesAreTold(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	prefix := "lost-" + t.Name() + ":"
	s := redisstore.New(rdb, redisstore.WithPrefix(prefix), patient, redisstore.WithLeaseTTL(100*time.Millisecond))
	defer s.Close()
	h := newLogged(slog.LevelInfo)
	told := make(chan string, 1)
	l := limiter(t, stint.Concurrency(1, stint.WithName("slots")), theKey, stint.WithStore(s), h.with(), stint.WithLogKeys())
	l.Observe(func(e stint.Event) {
		if e.Kind == stint.EventLeaseLost {
			told <- e.Decision.Limit + " of " + e.Key(0)
		}
	})
	p, err := l.Take(t.Context(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Done()
	lose(t, rdb, prefix)
	select {
	case got := <-told:
		if got != "slots of k" {
			t.Errorf("told %q", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("not told")
	}
	lines := h.lines(t)
	if len(lines) != 1 || lines[0]["level"] != "ERROR" || lines[0]["key"] != "k" || lines[0]["limit"] != "slots" {
		t.Errorf("logged %v", lines)
	}
}

// A lost lease is told to the limiter that took it, once: to its observers, and to those of
// the limiter that it is derived from, which see all its events. Limiters beside it that have
// a limit of the same name aren't told.
func TestLostLeaseIsToldToItsLimiter(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	prefix := redistest.Prefix(t)
	s := redisstore.New(rdb, redisstore.WithPrefix(prefix), patient, redisstore.WithLeaseTTL(100*time.Millisecond))
	defer s.Close()
	told := make(chan string, 99)
	named := func(name string, l *stint.Limiter) *stint.Limiter {
		l.Observe(func(e stint.Event) {
			if e.Kind == stint.EventLeaseLost {
				told <- name + " " + e.Decision.Limit
			}
		})
		return l
	}
	opts := []stint.Option{stint.Concurrency(9, stint.WithName("slots")), theKey, stint.WithStore(failover.New(s, memstore.New()))}
	first := named("first", limiter(t, opts...))
	named("second", limiter(t, opts...))
	derived := named("derived", derive(t, first, stint.Concurrency(9, stint.WithName("more"))))
	for _, l := range []*stint.Limiter{first, derived} {
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Done()
	}
	lose(t, rdb, prefix)
	var got []string
	for range 5 {
		select {
		case one := <-told:
			got = append(got, one)
		case <-time.After(time.Minute):
			t.Fatalf("told %q", got)
		}
	}
	slices.Sort(got)
	if want := []string{"derived more", "derived slots", "first more", "first slots", "first slots"}; !slices.Equal(got, want) || len(told) > 0 {
		t.Errorf("told %q and %d more, want %q", got, len(told), want)
	}
}
