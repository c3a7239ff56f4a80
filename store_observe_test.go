package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

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
				primary.failWith(errDown)
				ask()
				ask()
				time.Sleep(2500 * time.Millisecond)
				primary.failWith(nil)
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
				if got := brief(h.lines(t)); got != "WARN the primary store fails\nINFO the primary store answers again" {
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

// A store doesn't keep alive a limiter that nobody else refers to.
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
	ctx := context.Background()
	if keys, err := rdb.Keys(ctx, prefix+"*").Result(); err != nil || len(keys) == 0 || rdb.Del(ctx, keys...).Err() != nil {
		t.Fatal(keys, err)
	}
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
	ctx := context.Background()
	if keys, err := rdb.Keys(ctx, prefix+"*").Result(); err != nil || len(keys) != 2 || rdb.Del(ctx, keys...).Err() != nil {
		t.Fatal(keys, err)
	}
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
