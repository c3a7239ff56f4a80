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
	"github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
)

// piped are the objects that random programs with channels use.
type piped struct {
	*steps.Run
	x    atomic.Int64
	c, d chan int64
	ctx  context.Context
	end  func()
	once *twin.Timer
	runs atomic.Int64 // of once
}

// pipes makes a few steps of each kind and returns what they come to.
func pipes(rnd *rand.Rand, n int) func(*piped) string {
	var all []func(*piped) string
	for range n {
		v := 1 + rnd.Int64N(3)
		all = append(all, []func(*piped) string{
			func(p *piped) string { return fmt.Sprint(p.x.Load()) },
			func(p *piped) string { p.x.Store(v); return "" },
			func(p *piped) string { lang.Send(p.c, v); return "" },
			func(p *piped) string { return fmt.Sprint(lang.Receive(p.c)) },
			func(p *piped) string {
				return fmt.Sprint(lang.Select(true, lang.Out(p.d, v)))
			},
			func(p *piped) string {
				got := lang.In(p.d)
				return fmt.Sprint(lang.Select(true, got), got.Got())
			},
			func(p *piped) string {
				c, d := lang.In(p.c), lang.In(p.d)
				return fmt.Sprint(lang.Select(false, c, d), c.Got(), d.Got())
			},
			func(p *piped) string {
				c := lang.In(p.c)
				return fmt.Sprint(lang.Select(false, c, lang.In(p.ctx.Done()), lang.Out(p.d, v)), c.Got())
			},
			func(p *piped) string { p.end(); return "" },
			func(p *piped) string { return fmt.Sprint(p.ctx.Err()) },
			func(p *piped) string {
				lang.Go1(func(v int64) { p.x.Add(v); lang.Send(p.c, v) }, v)
				return ""
			},
			func(p *piped) string { p.Advance(time.Duration(v) * time.Microsecond); return "" },
			func(p *piped) string { return fmt.Sprint(p.once.Stop()) },
			func(p *piped) string { return fmt.Sprint(p.once.Reset(time.Duration(v) * time.Microsecond)) },
			func(p *piped) string { return fmt.Sprint(twin.Since(time.Time{}) % time.Second) },
		}[rnd.IntN(15)])
	}
	return func(p *piped) string {
		var b strings.Builder
		for _, f := range all {
			b.WriteString(f(p) + ",")
		}
		return b.String()
	}
}

// What programs with channels, selects, contexts, timers and goroutines come to in all
// orders, they come to in those that are run.
func TestNoChannelIsLeftOut(t *testing.T) {
	every, fewer, deadlocks, most := 0, 0, 0, 0
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var programs []func(*piped) string
		actors := 2 + rnd.IntN(2)
		for range actors {
			programs = append(programs, pipes(rnd, 1+rnd.IntN(5-actors)))
		}
		filled, timer := rnd.IntN(3) > 0, rnd.IntN(2) == 0
		explore := func(find func(func(*steps.Run)) (int, string)) (outcomes map[string]bool, runs int, stuck bool) {
			outcomes = map[string]bool{}
			runs, trace := find(func(r *steps.Run) {
				r.Freeze()
				p := &piped{Run: r, c: make(chan int64, 1), d: make(chan int64, 1)}
				p.ctx, p.end = context.WithCancel(context.Background())
				if p.once = (&twin.Timer{Timer: &steps.Timer{}}); timer {
					p.once = twin.AfterFunc(time.Microsecond, func() { p.x.Add(100); p.runs.Add(1) })
				}
				if filled {
					p.c <- 9
				}
				said := make([]string, len(programs))
				for i, f := range programs {
					r.Go(fmt.Sprint(i), func() { said[i] = f(p) })
				}
				r.End(func() {
					outcomes[fmt.Sprint(said, p.x.Load(), p.runs.Load(), len(p.c), len(p.d))] = true
				})
			})
			return outcomes, runs, trace != ""
		}
		got, runs, stuck := explore(steps.Find)
		want, all, dead := explore(steps.FindOneByOne)
		if stuck != dead || !dead && !maps.Equal(got, want) {
			t.Fatalf("seed %d: %d outcomes in %d runs (deadlock: %v), %d outcomes in all %d (%v)", seed, len(got), runs, stuck, len(want), all, dead)
		}
		if dead {
			deadlocks++
			continue
		}
		every, fewer, most = every+all, fewer+runs, max(most, len(want))
	}
	t.Logf("%d runs instead of %d, %d deadlocks, at most %d outcomes", fewer, every, deadlocks, most)
	if deadlocks == 0 || most < 10 || fewer > every/4 {
		t.Error("the programs show nothing")
	}
}
