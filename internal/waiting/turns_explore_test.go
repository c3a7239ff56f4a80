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
	Left() (lines int)
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
	w.Terms = []Terms{{Queues: true}}
	w.Store = s
	w.Settle = func(_ context.Context, charges []store.Charge) []store.Result { return settle(charges) }
	w.Class = func(context.Context) uint8 { return 0 }
	w.Waits = func(int, int64, time.Duration) {}
	err := w.Take(ctx, true, false)
	return w.Results[0].Receipt, err
}

func (x ExploredTurns) Left() int { return x.Turns.Lines() }
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
				if want := int64(i+1) * perTurn.Microseconds(); at != want {
					r.Broken("passed at %d µs, want every %v", s.passed, perTurn)
					break
				}
			}
			if len(s.passed) < len(q.come)-len(q.leave) {
				r.Broken("%d have passed", len(s.passed))
			}
			if lines := x.Left(); lines > 0 {
				r.Broken("%d lines are left", lines)
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
		Was: "	over.run(ctx)\n", Is: "	_ = ctx\n"}}},
	{Name: "who leaves stays in line", Edits: []steps.Edit{{File: "line.go",
		Was: "	d.line.demands = slices.Delete(d.line.demands, i, i+1)\n	d.line.wanted -= d.units\n", Is: "	_ = i\n"}}},
	{Name: "a turn that comes to who leaves is lost", Edits: []steps.Edit{{File: "line.go",
		Was: "		d.line.putBack(d.got, now)\n", Is: ""}}},
	{Name: "a turn comes before its time", Edits: []steps.Edit{{File: "line.go",
		Was: "		if at.After(now) {\n			next", Is: "		if at.After(now.Add(100 * time.Millisecond)) {\n			next"}}},
	{Name: "two settlements are under way", Edits: []steps.Edit{{File: "line.go",
		Was: "	if l.settling {\n		l.again = true\n		return\n	}\n", Is: ""}}},
	{Name: "what is left over meanwhile is forgotten", Edits: []steps.Edit{{File: "line.go",
		Was: "		l.again = true\n		return\n", Is: "		return\n"}}},
	{Name: "what the store keeps is forgotten", Edits: []steps.Edit{{File: "line.go",
		Was: "			l.insert(turn{t.at, left})\n", Is: ""}}},
	{Name: "what the store has taken back is kept", Edits: []steps.Edit{{File: "line.go",
		Was: "		if left.Cost > 0 && whole", Is: "		if left = t.receipt; left.Cost > 0 && whole"}}},
	{Name: "a turn that is left over has two takers", Edits: []steps.Edit{{File: "line.go",
		Was: "	l.wanted += units\n", Is: ""}, {File: "line.go", Was: "	l.wanted -= d.units\n	l.held", Is: "	l.held"}}},
	{Name: "the line ends with its timer's first", Edits: []steps.Edit{{File: "line.go",
		Was: "		l.timer.Reset(next.Sub(now))\n		return\n", Is: "		return\n"}}},
}
