package steps_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/explore/steps/atomic"
	"github.com/stint-go/stint/internal/test/explore/steps/sync"
	steptime "github.com/stint-go/stint/internal/test/explore/steps/time"
)

// shared are the objects that random programs use.
type shared struct {
	x, y  atomic.Int64
	a, b  sync.Mutex
	since time.Time
	free  bool // b is never locked with a held
}

// program makes a few steps of each kind and returns what they come to.
func program(rnd *rand.Rand, n int) func(*shared) string {
	var all []func(*shared) string
	for range n {
		v := rnd.Int64N(3)
		all = append(all, []func(*shared) string{
			func(s *shared) string { return fmt.Sprint(s.x.Load()) },
			func(s *shared) string { return fmt.Sprint(s.y.Load()) },
			func(s *shared) string { s.x.Store(v); return "" },
			func(s *shared) string { return fmt.Sprint(s.y.Add(v)) },
			func(s *shared) string { return fmt.Sprint(s.x.CompareAndSwap(v, v+1)) },
			func(s *shared) string {
				was := s.y.Load()
				return fmt.Sprint(s.y.CompareAndSwap(was, was+10))
			},
			func(s *shared) string {
				s.a.Lock()
				defer s.a.Unlock()
				return fmt.Sprint(s.x.Load())
			},
			func(s *shared) string {
				if !s.a.TryLock() {
					return "held"
				}
				s.y.Store(v)
				s.a.Unlock()
				return "free"
			},
			func(s *shared) string {
				s.a.Lock()
				s.b.Lock()
				v := s.y.Load()
				s.b.Unlock()
				s.a.Unlock()
				return fmt.Sprint(v)
			},
			func(s *shared) string { // with the one before, a deadlock
				s.b.Lock()
				defer s.b.Unlock()
				if s.free || s.x.Load() == 0 {
					return ""
				}
				s.a.Lock()
				defer s.a.Unlock()
				return fmt.Sprint(s.x.Add(1))
			},
			func(s *shared) string { return fmt.Sprint(steptime.Since(s.since).Microseconds()) },
		}[rnd.IntN(11)])
	}
	return func(s *shared) string {
		var b strings.Builder
		for _, f := range all {
			b.WriteString(f(s) + ",")
		}
		return b.String()
	}
}

// What all orders come to, those that are run come to, also in which calls are over before
// others begin.
func TestNothingIsLeftOut(t *testing.T) {
	every, fewer, deadlocks := 0, 0, 0
	for seed := range uint64(250) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var programs []func(*shared) string
		actors := 2 + rnd.IntN(2)
		for range actors {
			programs = append(programs, program(rnd, 1+rnd.IntN(4-actors)))
		}
		start, free, frozen, calls := rnd.Int64N(4), rnd.IntN(4) > 0, rnd.IntN(2) == 0, actors == 2
		explore := func(find func(func(*steps.Run)) (int, string)) (outcomes map[string]bool, runs int, stuck bool) {
			outcomes = map[string]bool{}
			runs, trace := find(func(r *steps.Run) {
				s := &shared{free: free}
				s.since = steptime.Now()
				s.x.Store(start)
				if frozen {
					r.Freeze()
				}
				said := make([]string, len(programs))
				spans := make([]steps.Span, len(programs))
				for i, f := range programs {
					r.Go(fmt.Sprint(i), func() {
						if !calls {
							said[i] = f(s)
							return
						}
						spans[i] = r.Call(fmt.Sprint(i), func() { said[i] = f(s) })
					})
				}
				r.End(func() {
					order := ""
					for _, one := range spans {
						for _, other := range spans {
							order += fmt.Sprint(one.Ended < other.Began)
						}
					}
					outcomes[fmt.Sprint(said, s.x.Load(), s.y.Load(), order)] = true
				})
			})
			return outcomes, runs, trace != ""
		}
		got, runs, stuck := explore(steps.Find)
		want, all, dead := explore(steps.FindOneByOne)
		if stuck != dead || !dead && !maps.Equal(got, want) {
			t.Fatalf("seed %d: %d outcomes in %d runs (deadlock: %v), %d outcomes in all %d (%v)", seed, len(got), runs, stuck, len(want), all, dead)
		}
		if every, fewer = every+all, fewer+runs; dead {
			deadlocks++
		}
	}
	t.Logf("%d runs instead of %d, %d deadlocks", fewer, every, deadlocks)
	if deadlocks == 0 || fewer > every/4 {
		t.Error("the programs show nothing")
	}
}

// A mutex that is never free again, an endless loop, and what a run does differently the
// second time are told.
func TestStuck(t *testing.T) {
	_, trace := steps.Find(func(r *steps.Run) {
		var m sync.Mutex
		for _, name := range []string{"one", "other"} {
			r.Go(name, m.Lock)
		}
	})
	if !strings.HasSuffix(trace, "deadlock: other") || !strings.Contains(trace, "one      locks mutex") {
		t.Errorf("no deadlock: %s", trace)
	}
	_, trace = steps.Find(func(r *steps.Run) {
		var x atomic.Int64
		r.Go("one", func() {
			for x.Load() == 0 {
			}
		})
	})
	if !strings.HasSuffix(trace, "no end") {
		t.Errorf("no endless loop: %s", trace)
	}
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "deterministic") {
			t.Error(p)
		}
	}()
	runs := 0
	steps.Find(func(r *steps.Run) {
		var x atomic.Int64
		runs++
		for i := range 1 + runs%2 {
			r.Go(fmt.Sprint(i), func() { x.Add(1) })
		}
	})
}
