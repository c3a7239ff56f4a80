package plans_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/plans"
)

// stuck is a source of plans that ignores the context.
type stuck struct {
	loads   atomic.Int64
	works   atomic.Bool
	hang    chan struct{}
	current atomic.Pointer[stint.Limit]
}

func (s *stuck) load(context.Context, string) ([]stint.Limit, error) {
	s.loads.Add(1)
	if !s.works.Load() {
		<-s.hang
		return nil, errDown
	}
	return []stint.Limit{*s.current.Load()}, nil
}

// A load that ignores its context delays no request beyond the load timeout. Another is
// tried beside it, each time after twice as long.
func TestLoadThatHangs(t *testing.T) {
	const timeout = 5 * time.Second
	type get struct {
		at    time.Duration
		took  time.Duration
		loads int64 // in all, by then
		works bool  // loads that begin now do
		fresh bool  // it returns the new plan
	}
	tests := []struct {
		name string
		old  bool // a plan has been loaded long ago
		gets []get
	}{
		{"never loaded", false, []get{
			{at: 0, took: timeout, loads: 1},
			{at: timeout, took: timeout, loads: 2}, // the error isn't kept
			{at: 2 * timeout, loads: 2},            // and no request waits for an overdue load
			{at: 3 * timeout, took: timeout, loads: 3},
			{at: 4 * timeout, loads: 3},
			{at: 6 * timeout, loads: 3},
			{at: 7 * timeout, loads: 4, works: true, fresh: true},
			{at: 8 * timeout, loads: 4, fresh: true},
		}},
		{"an old plan", true, []get{
			{at: 0, took: timeout, loads: 1},
			{at: timeout, loads: 2},
			{at: timeout, loads: 2},
			{at: 2 * timeout, loads: 2},
			{at: 3 * timeout, loads: 3},
			{at: 7 * timeout, loads: 4, works: true}, // behind the old one
			{at: 7*timeout + 1, loads: 4, fresh: true},
		}},
		{"nobody asks for an hour", true, []get{
			{at: 0, took: timeout, loads: 1},
			{at: time.Hour, loads: 2, works: true},
			{at: time.Hour + 1, loads: 2, fresh: true},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old, fresh := stint.Rate(1, time.Second, stint.WithName("plan")), stint.Rate(2, time.Second, stint.WithName("plan"))
				s := &stuck{hang: make(chan struct{})}
				p := plans.Must(plans.New(s.load, plans.WithTTL(time.Hour), plans.WithLoadTimeout(timeout)))
				if s.works.Store(tt.old); tt.old {
					s.current.Store(&old)
					if _, err := p.Get(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
					s.loads.Store(0)
					time.Sleep(3 * time.Hour)
				}
				s.current.Store(&fresh)
				began := time.Now()
				for _, g := range tt.gets {
					time.Sleep(g.at - time.Since(began))
					s.works.Store(g.works)
					ctx, stop := context.WithTimeout(t.Context(), time.Minute) // or it would hang here as well
					start := time.Now()
					got, err := p.Get(ctx, "k")
					took := time.Since(start)
					stop()
					synctest.Wait()
					if took != g.took || s.loads.Load() != g.loads {
						t.Errorf("at %v: took %v, %d loads; want %v, %d", g.at, took, s.loads.Load(), g.took, g.loads)
					}
					switch {
					case !g.fresh && !tt.old:
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("at %v: %v, %v", g.at, got, err)
						}
					case err != nil || len(got) != 1 || (got[0] == fresh) != g.fresh:
						t.Errorf("at %v: %v, %v; want the new plan: %v", g.at, got, err, g.fresh)
					}
				}
				close(s.hang)
				synctest.Wait()
				if got, err := p.Get(t.Context(), "k"); err != nil || got[0] != fresh {
					t.Errorf("%v, %v when those that hung have failed", got, err)
				}
			})
		})
	}
}

// A plan that arrives too late for those who waited is kept for later callers, unless a
// load that began after it has already returned one.
func TestLateLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int64
		takes := []time.Duration{7 * time.Second, 40 * time.Second, 2 * time.Second, time.Hour}
		versions := []stint.Limit{stint.Rate(1, time.Second, stint.WithName("plan")), stint.Rate(2, time.Second, stint.WithName("plan")), stint.Rate(3, time.Second, stint.WithName("plan")), stint.Rate(4, time.Second, stint.WithName("plan"))}
		p := plans.Must(plans.New(func(context.Context, string) ([]stint.Limit, error) {
			n := loads.Add(1)
			time.Sleep(takes[n-1])
			return versions[n-1 : n], nil
		}, plans.WithTTL(20*time.Second), plans.WithLoadTimeout(5*time.Second)))
		began := time.Now()
		for _, g := range []struct {
			at, want int // seconds; which plan, 0 for none
		}{
			{0, 0}, {8, 1}, // the first load came at 7
			{30, 1},          // and the second is under way behind it
			{48, 1}, {51, 3}, // overdue, so a third one is, which comes at 50
			{71, 3}, // though the second has come at 70
		} {
			time.Sleep(time.Duration(g.at)*time.Second - time.Since(began))
			got, err := p.Get(t.Context(), "k")
			switch {
			case g.want == 0 && !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("at %d: %v, %v", g.at, got, err)
			case g.want > 0 && (err != nil || got[0] != versions[g.want-1]):
				t.Errorf("at %d: %v, %v; want plan %d", g.at, got, err, g.want)
			}
		}
		time.Sleep(2 * time.Hour) // the last one has come
	})
}
