package failover_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

var slots = func() *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 10})
	if err != nil {
		panic(err)
	}
	return l
}()

// hold takes a unit of each limit, and returns what gives them back.
func hold(t *testing.T, s store.Store, limits ...*store.Limit) []store.Charge {
	t.Helper()
	var charges []store.Charge
	for _, l := range limits {
		charges = append(charges, store.Charge{Key: "k", Limit: l, Cost: 1})
	}
	results := make([]store.Result, len(limits))
	err := s.Take(t.Context(), charges, results)
	for i := range charges {
		if err != nil || !results[i].OK {
			t.Errorf("%+v, %v", results[i], err)
		}
		charges[i].Receipt, charges[i].Cost = results[i].Receipt, 0
	}
	return charges
}

// left is how many slots and units the primary has.
func left(t *testing.T, m store.Store) (int64, int64) {
	t.Helper()
	results := make([]store.Result, 2)
	if err := m.Take(t.Context(), []store.Charge{{Key: "k", Limit: slots}, {Key: "k", Limit: limit}}, results); err != nil {
		t.Fatal(err)
	}
	return results[0].Remaining, results[1].Remaining
}

// Slots released while the breaker is open come free once it has closed. Refunds of
// rates are lost.
func TestReleaseAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New()
		p := newGate(m)
		s := failover.New(p, memstore.New(), failover.WithThreshold(1))
		var held [][]store.Charge
		for range 4 {
			held = append(held, hold(t, s, slots, limit))
		}
		stays := hold(t, s, slots)
		p.shut.Store(true)
		second := hold(t, s, slots, limit)
		for _, h := range held[:3] {
			for range 3 { // trying again changes nothing
				if err := s.Settle(t.Context(), h, make([]store.Result, 2)); !errors.Is(err, failover.ErrOpen) {
					t.Fatal(err)
				}
			}
		}
		// Both sides' in one call; and what is not a release.
		mixed := append(held[3][:1:1], second...)
		if err := s.Settle(t.Context(), mixed, make([]store.Result, 3)); !errors.Is(err, failover.ErrOpen) {
			t.Fatal(err)
		}
		stays[0].Cost = 1
		if err := s.Settle(t.Context(), stays, make([]store.Result, 1)); !errors.Is(err, failover.ErrOpen) {
			t.Fatal(err)
		}
		if got := p.settled.Load(); got != 0 {
			t.Fatalf("an open breaker let %d calls through", got)
		}
		p.shut.Store(false)
		time.Sleep(200 * time.Millisecond)
		if slots, _ := left(t, m); slots != 5 {
			t.Fatalf("%d slots left during the outage", slots)
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		// In 250 ms time has given back 2 of 4 units at 10 per second.
		if slots, units := left(t, m); slots != 9 || units != 8 {
			t.Errorf("%d slots and %d units left, want 9 and 8", slots, units)
		}
		if got := p.settled.Load(); got != 4 {
			t.Errorf("%d settled, want each slot once", got)
		}
		if got, want := s.Stats(), (failover.Stats{Failures: 1, Fallbacks: 1, Denials: 11, Opened: 1, Probes: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Releases that fail count as failures, and are made with those after them once the
// breaker has closed again.
func TestReleaseMeetsAnOutage(t *testing.T) {
	for name, meet := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errDown },
		"hang":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"panic": func(context.Context) error { panic("gate") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memstore.New()
				p := newGate(m)
				s := failover.New(p, nil, failover.WithThreshold(2))
				var held [][]store.Charge
				for range 5 {
					held = append(held, hold(t, s, slots, limit))
				}
				p.shut.Store(true)
				trip(t, s, 2)
				for _, h := range held {
					s.Settle(t.Context(), h, make([]store.Result, 2))
				}
				var met atomic.Int64
				p.meet = func(ctx context.Context) error {
					if met.Add(1) <= 2 {
						return meet(ctx)
					}
					return nil
				}
				p.shut.Store(false)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if slots, _ := left(t, m); slots != 10 || met.Load() != 2+5 {
					t.Errorf("%d slots left after %d releases", slots, met.Load())
				}
				if got := s.Stats(); got.State != failover.Closed || got.Opened != 2 || got.Failures != 4 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestCloseEndsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newGate(memstore.New())
		s := failover.New(p, nil, failover.WithThreshold(1))
		first, second := hold(t, s, slots, limit), hold(t, s, slots, limit)
		p.shut.Store(true)
		trip(t, s, 1)
		s.Settle(t.Context(), first, make([]store.Result, 2))
		s.Close()
		s.Settle(t.Context(), second, make([]store.Result, 2))
		p.shut.Store(false)
		time.Sleep(time.Minute)
		if p.settled.Load() != 0 {
			t.Error("released after Close")
		}
	})
}

// However outages and releases coincide, no slot is lost and none is given out twice.
func TestNoSlotIsLost(t *testing.T) {
	// More than are held at a time, as some are on their way back.
	const units = 1000
	slots, err := store.NewLimit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: units})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New()
		p := newGate(m)
		s := failover.New(p, memstore.New(), failover.WithThreshold(1), failover.WithProbe(time.Millisecond, 250*time.Millisecond))
		var wg sync.WaitGroup
		var primary atomic.Int64
		for g := range 10 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), 1))
				nap := func() { time.Sleep(time.Duration(rnd.IntN(4)) * time.Millisecond / 2) }
				for range 2000 {
					h := hold(t, s, slots)
					if h[0].Receipt.Path == 0 {
						primary.Add(1)
					}
					nap()
					if rnd.IntN(5) == 0 {
						p.shut.Store(rnd.IntN(2) == 0)
					}
					if err := s.Settle(t.Context(), h, make([]store.Result, 1)); err != nil && !errors.Is(err, failover.ErrOpen) {
						t.Error(err)
					}
					nap()
				}
			})
		}
		wg.Wait()
		p.shut.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		stands := make([]store.Result, 1)
		if err := m.Take(t.Context(), []store.Charge{{Key: "k", Limit: slots}}, stands); err != nil {
			t.Fatal(err)
		}
		if stands[0].Remaining != units || p.settled.Load() != primary.Load() {
			t.Errorf("%d slots left of %d; %d taken, %d released", stands[0].Remaining, units, primary.Load(), p.settled.Load())
		}
		if got := s.Stats(); got.Opened < 10 || got.Denials < 10 || got.State != failover.Closed {
			t.Errorf("%+v", got)
		}
	})
}
