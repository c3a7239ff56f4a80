package plans_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/plans"
)

// accounts is a database in which plans change and end.
type accounts struct {
	slow  time.Duration
	loads atomic.Int64
	plan  atomic.Pointer[stint.Limit] // nil: the tenant has none
	err   atomic.Pointer[error]
}

func (a *accounts) load(context.Context, string) ([]stint.Limit, error) {
	a.loads.Add(1)
	limit, err := a.plan.Load(), a.err.Load() // as they are when the load begins
	time.Sleep(a.slow)
	switch {
	case err != nil:
		return nil, *err
	case limit == nil:
		return nil, fmt.Errorf("tenant k: %w", plans.ErrNoPlan)
	}
	return []stint.Limit{*limit}, nil
}

func (a *accounts) sell(n int64) *stint.Limit {
	limit := stint.Rate(n, time.Second, stint.WithName("plan"))
	a.plan.Store(&limit)
	return &limit
}

// A source that answers that a key has no plan isn't a source that fails: a customer who
// has left doesn't keep the old plan.
func TestNoPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accounts{slow: time.Second}
		p := plans.Must(plans.New(a.load, plans.WithTTL(10*time.Second)))
		get := func(want *stint.Limit, wantErr error) {
			t.Helper()
			limits, err := p.Get(t.Context(), "k")
			if !errors.Is(err, wantErr) || want != nil && (len(limits) != 1 || limits[0] != *want) || want == nil && limits != nil {
				t.Errorf("got %v, %v; want %v, %v", limits, err, want, wantErr)
			}
			synctest.Wait()
		}
		get(nil, plans.ErrNoPlan) // never had one
		sold := a.sell(1)
		get(sold, nil) // which isn't remembered
		a.plan.Store(nil)
		get(sold, nil) // current
		time.Sleep(11 * time.Second)
		get(sold, nil) // old, and loaded behind
		time.Sleep(2 * time.Second)
		get(nil, plans.ErrNoPlan)
		sold = a.sell(2)
		get(sold, nil)
		a.plan.Store(nil)
		time.Sleep(time.Hour)
		get(nil, plans.ErrNoPlan) // too old to be served before it is known
		down := errDown
		a.err.Store(&down)
		get(nil, errDown) // it isn't kept for a source that fails later
	})
	var status interface{ StatusCode() int }
	if !errors.As(fmt.Errorf("tenant k: %w", plans.ErrNoPlan), &status) || status.StatusCode() != 403 {
		t.Error("the request isn't answered with 403")
	}
}

// After Forget, Get returns a plan that was loaded after it, whatever was under way.
func TestForget(t *testing.T) {
	for _, tt := range []struct {
		name    string
		slow    time.Duration
		old     bool // a plan is kept
		under   bool // a load is under way when the key is forgotten
		between bool // and another begins before that one ends
	}{
		{name: "nothing known"},
		{name: "a plan is kept", old: true},
		{name: "a load is under way", slow: time.Second, under: true},
		{name: "a load is under way beside another", slow: time.Second, under: true, between: true},
		{name: "a load beside an old plan", slow: time.Second, old: true, under: true, between: true},
		{name: "a load that hangs", slow: time.Minute, under: true, between: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &accounts{}
				p := plans.Must(plans.New(a.load))
				a.sell(1)
				if tt.old {
					if _, err := p.Get(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute) // to be loaded again
				}
				a.slow = tt.slow
				if tt.under {
					go p.Get(t.Context(), "k")
					synctest.Wait()
				}
				sold := a.sell(2)
				p.Forget("k")
				if tt.between {
					time.Sleep(tt.slow / 2)
				}
				a.slow = 0
				for range 2 {
					limits, err := p.Get(t.Context(), "k")
					if err != nil || len(limits) != 1 || limits[0] != *sold {
						t.Errorf("got %v, %v; want the new plan", limits, err)
					}
					time.Sleep(tt.slow) // the load from before has ended
				}
			})
		})
	}
}

// A load from before Forget doesn't bring the plan back either if the cache has had no room
// for the key meanwhile.
func TestForgetWithoutRoom(t *testing.T) {
	for _, gone := range []string{"forgotten", "no plan"} {
		t.Run(gone, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &accounts{slow: time.Minute}
				p := plans.Must(plans.New(a.load, plans.WithSize(1)))
				a.sell(1)
				go p.Get(t.Context(), "k")
				synctest.Wait()
				sold := a.sell(2)
				a.slow = 0
				if gone == "forgotten" {
					p.Forget("k")
				} else { // says a load that begins later
					time.Sleep(6 * time.Second)
					a.plan.Store(nil)
					if limits, err := p.Get(t.Context(), "k"); !errors.Is(err, plans.ErrNoPlan) {
						t.Errorf("got %v, %v", limits, err)
					}
					a.plan.Store(sold)
				}
				if _, err := p.Get(t.Context(), "another"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute) // the load from before has ended
				limits, err := p.Get(t.Context(), "k")
				if err != nil || len(limits) != 1 || limits[0] != *sold {
					t.Errorf("got %v, %v; want the new plan", limits, err)
				}
			})
		})
	}
}

// A forgotten plan doesn't come back when its source fails.
func TestForgottenStaysForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accounts{}
		p := plans.Must(plans.New(a.load))
		a.sell(1)
		p.Get(t.Context(), "k")
		p.Forget("k")
		down := errDown
		a.err.Store(&down)
		for i := range 2 {
			if limits, err := p.Get(t.Context(), "k"); !errors.Is(err, errDown) {
				t.Errorf("Get %d: %v, %v", i, limits, err)
			}
		}
		if n := a.loads.Load(); n != 3 {
			t.Errorf("%d loads, want 3", n)
		}
	})
}
