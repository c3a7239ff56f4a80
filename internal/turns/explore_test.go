package turns_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
	"github.com/stint-go/stint/store"
)

// explored is Lines that are explored.
type explored interface {
	// Go waits for a turn. It returns the receipt of what must be given back, if its error
	// says that the caller has left.
	Go(ctx context.Context, s store.Store, c store.Charge, settle func([]store.Charge) []store.Result) (store.Receipt, error)
	Len() (lines int)
}

var variants = map[string]explored{}

const exploredFile = `package turns

import (
	"context"

	"github.com/stint-go/stint/store"
)

type Explored struct{ *Lines }

func (x Explored) New() any { return Explored{new(Lines)} }

func (x Explored) Go(ctx context.Context, s store.Store, c store.Charge, settle func([]store.Charge) []store.Result) (store.Receipt, error) {
	c.MaxWait = store.Never
	charges, results := []store.Charge{c}, make([]store.Result, 1)
	w := x.Claim(charges)
	defer func() { x.Leave(context.WithoutCancel(ctx), w) }()
	if err := s.Take(ctx, charges, results); err != nil {
		return store.Receipt{}, err
	}
	if w.Restore(charges); !results[0].OK {
		return store.Receipt{}, nil
	}
	if w == nil && results[0].Delay == 0 {
		return results[0].Receipt, ctx.Err()
	}
	w = x.Join(w, charges, results, func(_ context.Context, charges []store.Charge) []store.Result { return settle(charges) })
	if err := w.Wait(ctx); err != nil {
		return results[0].Receipt, err
	}
	receipt := w.Receipt(0)
	w = nil
	return receipt, nil
}
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

func (q queue) scenario(lines explored) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		l, err := store.NewLimit(store.Spec{Name: "r", Algorithm: store.LeakyBucket, Units: 10, Period: time.Second, Queue: 9})
		if err != nil {
			panic(err)
		}
		s := &rate{Run: r, limit: l}
		x := lines.(interface{ New() any }).New().(explored)
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
			if lines := x.Len(); lines > 0 {
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
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:    "github.com/stint-go/stint/internal/turns",
			Added:   map[string]string{"explored.go": exploredFile},
			Mutants: mutants,
			Entry:   "V.Explored{}",
		}).Run(t)
		return
	}
	steps.Explore(t, mutants, []queue{
		{come: "ab", leave: "a"},
		{come: "ab", leave: "ab"},
		{come: "ab", leave: "a", late: true},
		{come: "abc", leave: "a"},
		{come: "abc", leave: "ab"},
		{come: "abc", leave: "a", late: true},
	}, func(variant string, q queue) func(*steps.Run) { return q.scenario(variants[variant]) })
}

var mutants = []steps.Variant{
	{Name: "a call that leaves gives nothing back", Edits: []steps.Edit{{File: "lines.go",
		Was: "	ls.refund(ctx, back)\n", Is: "	_ = ctx\n"}}},
	{Name: "a call that leaves stays in line", Edits: []steps.Edit{{File: "lines.go",
		Was: "			p.line.leave(p)\n", Is: ""}}},
	{Name: "a turn served to a call that leaves is lost", Edits: []steps.Edit{{File: "lines.go",
		Was: "			p.line.prepend(p.turns, now)\n", Is: ""}}},
	{Name: "a turn comes before its time", Edits: []steps.Edit{{File: "line.go",
		Was: "		if due.After(now) {", Is: "		if due.After(now.Add(100 * time.Millisecond)) {"}}},
	{Name: "two refunds are under way", Edits: []steps.Edit{{File: "refund.go",
		Was: "	if l.refunding {\n		l.moreSurplus = true\n		return\n	}\n", Is: ""}}},
	{Name: "surplus that arises meanwhile is forgotten", Edits: []steps.Edit{{File: "refund.go",
		Was: "		l.moreSurplus = true\n		return\n", Is: "		return\n"}}},
	{Name: "a turn that the store keeps is forgotten", Edits: []steps.Edit{{File: "refund.go",
		Was: "			l.insert(turn{t.at, kept})\n", Is: ""}}},
	{Name: "a turn that the store has taken back is kept", Edits: []steps.Edit{{File: "refund.go",
		Was: "		if kept.Cost > 0 && usable", Is: "		if kept = t.receipt; kept.Cost > 0 && usable"}}},
	{Name: "a surplus turn is claimed twice", Edits: []steps.Edit{{File: "line.go",
		Was: "	l.waitingUnits += units\n", Is: ""}, {File: "line.go", Was: "	l.waitingUnits -= p.units\n	l.reservedUnits", Is: "	l.reservedUnits"}}},
	{Name: "the line's timer isn't set again", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l.timer.Reset(next.Sub(now))\n		return\n", Is: "		return\n"}}},
}
