package waiting_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/explore/steps"
	ending "github.com/stint-go/stint/internal/explore/steps/context"
	twin "github.com/stint-go/stint/internal/explore/steps/time"
	"github.com/stint-go/stint/store"
)

// turnLines are Lines that are explored.
type turnLines interface {
	// Go waits for a turn. It returns the receipt of what must be given back, if its error
	// says that the caller has left.
	Go(ctx context.Context, s store.Store, c store.Charge, settle func([]store.Charge) []store.Result) (store.Receipt, error)
	Left() (lines int, vacant, waiting bool)
}

var turnVariants = map[string]turnLines{}

const exploredTurns = `package waiting

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
)

type ExploredTurns struct{ *Lines }

func (x ExploredTurns) New() any { return ExploredTurns{new(Lines)} }

func (x ExploredTurns) Go(ctx context.Context, s store.Store, c store.Charge, settle func([]store.Charge) []store.Result) (store.Receipt, error) {
	w := new(Waiter)
	w.lines = x.Lines
	w.Charges, w.Results = []store.Charge{c}, make([]store.Result, 1)
	w.Terms = []Terms{{Way: ForTurn, Queues: true}}
	w.Store, w.Aging = s, time.Second
	w.Settle = func(_ context.Context, charges []store.Charge) []store.Result { return settle(charges) }
	w.Class = func(context.Context) uint8 { return 0 }
	w.Waits = func(int, int64, time.Duration) {}
	err := w.Take(ctx, true, false)
	return w.Results[0].Receipt, err
}

func (x ExploredTurns) Left() (int, bool, bool) { return x.Turns.Lines(), x.Vacant(), x.Turns.Waiting() }
`

// perTurn is the time between two turns.
const perTurn = 100 * time.Millisecond

// rate is a run: a store of one key's turns, which decides each call in a step, and its lines.
type rate struct {
	*steps.Run
	limit  *store.Limit
	state  store.State
	passed []int64 // microseconds
}

func (s *rate) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	now := steps.AtTime(unsafe.Pointer(s))
	states := []store.State{s.state}
	store.Decide(store.Now{Steady: now}, charges, states, results)
	s.state = states[0]
	steps.Note("the store charges %d: %t, in %v", charges[0].Cost, results[0].OK, results[0].Delay)
	return nil
}

func (s *rate) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	copy(results, s.settle(charges))
	return nil
}

func (s *rate) settle(charges []store.Charge) []store.Result {
	now := steps.AtTime(unsafe.Pointer(s))
	results := make([]store.Result, len(charges))
	for i := range charges {
		store.Amend(store.Now{Steady: now}, &charges[i], &s.state, &results[i])
		steps.Note("the store settles %d as %d: %d is left", charges[i].Receipt.Cost, charges[i].Cost, results[i].Receipt.Cost)
	}
	return results
}

// AnswersAtOnce spares calls a context of their own.
func (s *rate) AnswersAtOnce() bool { return true }

// queue is callers, of whom some leave. All come and leave at one instant, in any order; or,
// late, they leave when a turn comes.
type queue struct {
	come, leave string
	late        bool
}

func (q queue) scenario(lines turnLines) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		l, err := store.NewLimit(store.Spec{Name: "r", Algorithm: store.LeakyBucket, Units: 10, Period: time.Second, Queue: 9})
		if err != nil {
			panic(err)
		}
		s := &rate{Run: r, limit: l}
		x := lines.(interface{ New() any }).New().(turnLines)
		one := store.Charge{Key: "k", Limit: l, Cost: 1}
		if _, err := x.Go(context.Background(), s, one, s.settle); err != nil { // passes at once
			panic(err)
		}
		start := twin.Now()
		for name := range strings.SplitSeq(q.come, "") {
			ctx, leave := ending.WithCancel(context.Background())
			r.Go(name, func() {
				receipt, err := x.Go(ctx, s, one, s.settle)
				switch {
				case err == nil:
					s.passed = append(s.passed, twin.Since(start).Microseconds())
				case !errors.Is(err, context.Canceled) || !strings.Contains(q.leave, name):
					r.Broken("%s: %v", name, err)
				case receipt.Cost > 0:
					back := one
					back.Cost, back.Receipt = 0, receipt
					s.settle([]store.Charge{back})
				}
			})
			if strings.Contains(q.leave, name) {
				r.Go(name+"'s client", func() {
					if q.late {
						twin.Sleep(perTurn)
					}
					leave()
				})
			}
		}
		r.End(func() {
			slices.Sort(s.passed)
			for i, at := range s.passed {
				if want := int64(i+1) * perTurn.Microseconds(); at < want || at > want && !q.late {
					r.Broken("passed at %d µs, want every %v", s.passed, perTurn)
					break
				}
			}
			if len(s.passed) < len(q.come)-len(q.leave) {
				r.Broken("%d have passed", len(s.passed))
			}
			if lines, vacant, waiting := x.Left(); lines > 0 || vacant || waiting {
				r.Broken("%d lines are left, vacant: %t, waiting: %t", lines, vacant, waiting)
			}
			look, result := one, make([]store.Result, 1)
			look.Cost = 0
			_ = s.Take(context.Background(), []store.Charge{look}, result)
			if owed := time.Duration(len(s.passed)+1)*perTurn - twin.Since(start); !q.late && result[0].ResetAfter != max(owed, 0) {
				r.Broken("%v is owed with no caller waiting, want %v", result[0].ResetAfter, max(owed, 0))
			}
		})
	}
}

// Whoever leaves a line of turns, and whoever comes meanwhile: those who stay go at the rate
// without a gap and never sooner, and when no caller waits nothing is owed.
func TestEveryOrderOfTurns(t *testing.T) {
	if len(turnVariants) == 0 {
		(&steps.Elsewhere{
			Path:    "github.com/stint-go/stint/internal/waiting",
			Added:   map[string]string{"exploredturns.go": exploredTurns},
			Mutants: turnMutants,
			Entry:   "V.ExploredTurns{}",
			Into:    "turnVariants",
		}).Run(t)
		return
	}
	steps.Explore(t, turnMutants, []queue{
		{come: "ab", leave: "a"},
		{come: "ab", leave: "ab"},
		{come: "ab", leave: "a", late: true},
		{come: "abc", leave: "a"},
		{come: "abc", leave: "ab"},
		{come: "abc", leave: "a", late: true},
	}, func(variant string, q queue) func(*steps.Run) { return q.scenario(turnVariants[variant]) })
}

var turnMutants = []steps.Variant{
	{Name: "who leaves gives nothing back", Edits: []steps.Edit{{File: "turns.go",
		Was: "	r := ts.vacate(l, len(l.columns), vacant)\n	ts.mu.Unlock()\n	ts.run(ctx, r)\n", Is: "	ts.vacate(l, len(l.columns), vacant)\n	ts.mu.Unlock()\n"}}},
	{Name: "a turn that comes to who leaves is lost", Edits: []steps.Edit{{File: "turns.go",
		Was: "			p.column.parts = slices.Insert(p.column.parts, 0, p)\n			p.column.bucket.insert(p)\n", Is: "			p.column.parts = slices.Clip(p.column.parts)\n"}}},
	{Name: "a turn comes before its time", Edits: []steps.Edit{{File: "line.go",
		Was: "!l.at(0).After(now) {\n		t := ", Is: "!l.at(0).After(now.Add(100 * time.Millisecond)) {\n		t := "}}},
	{Name: "two settlements are under way", Edits: []steps.Edit{{File: "settle.go",
		Was: "if b.settling != nil || b.retry", Is: "if b.retry"}}},
	{Name: "what the store keeps is forgotten", Edits: []steps.Edit{{File: "settle.go",
		Was: "if left.Cost > 0 && !p.at.Before(now) {", Is: "if false {"}}},
	{Name: "what the store keeps is taken for returned", Edits: []steps.Edit{{File: "settle.go",
		Was: "	p.receipt, p.stuck = left, true\n	l.columns[index].insert(p)\n", Is: "	_, _ = index, left\n"}}},
	{Name: "a vacancy has two takers", Edits: []steps.Edit{{File: "line.go",
		Was: "len(c.parts)-len(c.line.waiters)-c.claimed, 0)", Is: "len(c.parts)-len(c.line.waiters), 0)"}}},
	{Name: "what is stuck stays so", Edits: []steps.Edit{{File: "settle.go",
		Was: "				p.column.bucket.loosen()\n", Is: ""}}},
	{Name: "the line ends with its timer's first", Edits: []steps.Edit{{File: "line.go",
		Was: "	l.timer.Reset(next.Sub(now))\n", Is: ""}}},
	{Name: "what is settled is vacant until then", Edits: []steps.Edit{{File: "settle.go",
		Was: "		ts.vacant.Add(-1)\n", Is: ""}}},
}
