package permit_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	"github.com/stint-go/stint/store"
)

// raisable is a permit whose raises are explored.
type raisable interface {
	// Extend reports whether the cost was raised.
	Extend(cost int64) bool
	Settle(cost int64)
	Done()
	// Finish is the return of the handler.
	Finish()
	// Cost is what the permit takes its cost for.
	Cost() int64
}

// raisables make a permit that has been charged 10 of a rate, with a slot or without. The cost is settled at its end
// at what atEnd says, unless that is -1.
var raisables = map[string]func(s anyStore, slot, rate limit, slots bool, atEnd int64) raisable{}

const raisableFile = `package permit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

type Raisable struct{ core Core }

type quiet struct{}

func (quiet) LimitChanged(*Core, *adaptive.Change)                    {}
func (quiet) Settled(*Core, decide.Settlement)                        {}
func (quiet) Unsettled(_ *Core, s decide.Settlement) error            { return s.Err }
func (quiet) WrongCost(*Core, store.Charge, error)                    {}
func (quiet) Paced(*Core, *read.Paced, respond.Moved)                 {}
func (quiet) Ended(*Core, time.Duration)                              {}
func (quiet) Extended(_ *Core, _ *decide.Call, r decide.Raised) error {
	if r.Err == nil && !r.Passed {
		return context.DeadlineExceeded
	}
	return r.Err
}

func NewRaisable(s store.Store, slot, rate *store.Limit, slots bool, atEnd int64) *Raisable {
	b := &decide.Backend{Store: s, Lines: new(lines.Lines), Current: func(l *limit.Limit) *limit.Limit { return l }}
	x := new(Raisable)
	p := &x.core
	p.Context, p.Issuer, p.Releases = context.Background(), &Issuer{b, quiet{}}, slots || atEnd >= 0
	c := decide.Borrow()
	defer c.Free()
	c.By(b)
	c.Add(&limit.Limit{StoreLimit: rate, Kind: limit.Charged}, "k", 10)
	if slots {
		c.Add(&limit.Limit{StoreLimit: slot, Kind: limit.Concurrent}, "k", 1)
	}
	if atEnd >= 0 {
		p.Response = &Response{Settlers: []*read.Settler{{Cost: func(*http.Request, int, int64) int64 { return atEnd }}}}
		r := httptest.NewRequest("GET", "/", nil)
		p.Response.Begin(r)
		p.Response.Around(httptest.NewRecorder(), r, false)
	}
	if err := c.Decide(context.Background()); err != nil {
		panic(err)
	}
	c.HandTo(&p.Grants)
	return x
}

func (x *Raisable) Extend(cost int64) bool { return x.core.Extend(context.Background(), cost, nil) == nil }
func (x *Raisable) Settle(cost int64) {
	if err := x.core.Settle(context.Background(), cost, nil); err != nil {
		panic(err)
	}
}
func (x *Raisable) Done()       { x.core.Done() }
func (x *Raisable) Finish()     { defer x.core.Finish() }
func (x *Raisable) Cost() int64 {
	c := decide.Borrow()
	defer c.Free()
	x.core.RecallAll(c)
	return c.Charges[0].Cost
}
`

var raiseMutants = []steps.Variant{
	{Name: "raises take no turns", Edits: []steps.Edit{{File: "decide/raise.go",
		Was: "if gs.awaitRaise(ctx, rs.running); ctx.Err() != nil {", Is: "if rs.running = nil; ctx.Err() != nil {"}}},
	{Name: "Settle doesn't wait for a raise", Edits: []steps.Edit{{File: "decide/grants.go",
		Was: "	gs.lockUnraised()\n", Is: "	gs.mu.Lock()\n"}}},
	{Name: "the end cancels no raise", Edits: []steps.Edit{{File: "decide/raise.go",
		Was: "		rs.running.cancel()\n", Is: ""}}},
	{Name: "the end doesn't wait for the raise that it cancels", Edits: []steps.Edit{{File: "decide/raise.go",
		Was: "		rs.running.cancel()\n		gs.awaitRaise(context.Background(), rs.running)\n", Is: "		rs.running.cancel()\n		break\n"}}},
	{Name: "raises begin after the end", Edits: []steps.Edit{{File: "decide/raise.go",
		Was: "	rs.ended = true\n", Is: ""}}},
	{Name: "a raise ends before its outcome is recorded", Edits: []steps.Edit{{File: "decide/raise.go",
		Was: "	gs.mu.Lock()\n	defer gs.mu.Unlock()\n	rs := gs.raisedOrNil()\n	for k, i",
		Is:  "	close(r.done)\n	r.done = make(chan struct{})\n	gs.raisedOrNil().running = nil\n	gs.mu.Lock()\n	defer gs.mu.Unlock()\n	rs := gs.raisedOrNil()\n	for k, i"}}},
	{Name: "a settlement replaces all raises", Edits: []steps.Edit{{File: "decide/raise.go",
		Was: "return max(cost-r.before, r.least)", Is: "return max(cost, r.least)"}}},
	{Name: "the response is settled beside a raise", Edits: []steps.Edit{{File: "permit.go",
		Was: "		if amends = p.amends(); len(amends) > 0 {\n			p.Grants.EndRaises()\n		}\n", Is: "		amends = p.amends()\n"},
		{File: "permit.go", Was: "	if parts&released != 0 {\n		p.Grants.EndRaises()\n	}\n", Is: ""}}},
}

// meter is a rate's store, which counts what is charged.
type meter struct {
	*steps.Run
	stalls  bool // raises wait until they are canceled
	charged int64
	asking  int           // raises
	asked   chan struct{} // closed when a raise asks
}

func (m *meter) AnswersAtOnce() bool { return true }

func (m *meter) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if ctx.Done() != nil {
		steps.At(steps.Store, unsafe.Pointer(m))
		if m.asking++; m.asked != nil {
			lang.Close(m.asked)
			m.asked = nil
		}
		defer func() {
			steps.At(steps.Store, unsafe.Pointer(m))
			m.asking--
		}()
		ready := make(chan struct{})
		if !m.stalls {
			close(ready)
		}
		if lang.Select(false, lang.In(ctx.Done()), lang.In(ready)) == 0 {
			return ctx.Err()
		}
	}
	steps.At(steps.Store, unsafe.Pointer(m))
	for i := range charges {
		results[i] = store.Result{OK: true, Receipt: store.Receipt{Cost: charges[i].Cost}}
		if charges[i].Limit == slotLimit {
			results[i].Receipt.Lease = store.LeaseID{1}
		} else {
			m.charged += charges[i].Cost
		}
	}
	steps.Note("charged: %d", m.charged)
	return nil
}

func (m *meter) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	steps.At(steps.Store, unsafe.Pointer(m))
	for i, c := range charges {
		results[i] = store.Result{OK: true, Receipt: store.Receipt{Cost: c.Cost}}
		if c.Limit == rateLimit {
			m.charged += c.Cost - c.Receipt.Cost
		}
	}
	steps.Note("settled: %d charged", m.charged)
	return nil
}

// A raiseScene is what the handler does before it returns, and what other goroutines do meanwhile.
type raiseScene struct {
	handler string // "open" never returns
	others  []string
	slots   bool
	atEnd   int64
	stalls  bool
	// costs are those that the request may have in the end.
	costs []int64
}

// In every order of raises, settlements and the end, what is charged is what the permit takes its cost for, each raise
// charges the difference to the cost before it, and no raise asks when the permit has ended.
func TestEveryOrderOfRaises(t *testing.T) {
	if len(raisables) == 0 {
		(&steps.Elsewhere{
			Path:    "github.com/stint-go/stint/internal/permit",
			Beside:  []string{"decide"},
			Added:   map[string]string{"raisable.go": raisableFile},
			Mutants: raiseMutants,
			Entry: "func(s anyStore, slot, rate limit, slots bool, atEnd int64) raisable {\n" +
				"return V.NewRaisable(s, slot, rate, slots, atEnd) }",
			Into: "raisables",
		}).Run(t)
		return
	}
	one := []string{"extend 30"}
	steps.Explore(t, raiseMutants, []raiseScene{
		{handler: "open", others: []string{"extend 20", "extend 30"}, atEnd: -1, costs: []int64{30}},
		{handler: "extend 40; open", others: []string{"extend 20; extend 30"}, atEnd: -1, costs: []int64{40}},
		{handler: "extend 20; open", others: []string{"settle 15"}, atEnd: -1, costs: []int64{15, 20}},
		{handler: "extend 20; extend 30; open", others: []string{"settle 5"}, atEnd: -1, costs: []int64{20, 30}},
		{handler: "extend 20; done", others: one, atEnd: -1, costs: []int64{20, 30}},
		{handler: "extend 20; done", others: one, slots: true, atEnd: -1, costs: []int64{20, 30}},
		{handler: "extend 20", others: one, atEnd: 15, costs: []int64{15, 20}},
		{handler: "asked", others: []string{"extend 30", "extend 40"}, slots: true, atEnd: -1, stalls: true, costs: []int64{10}},
		{handler: "asked", others: []string{"extend 30", "settle 5"}, atEnd: -1, stalls: true, costs: []int64{5}},
		{handler: "asked", others: one, atEnd: 15, stalls: true, costs: []int64{15}},
	}, func(variant string, s raiseScene) func(*steps.Run) { return s.scenario(raisables[variant]) })
}

func (s raiseScene) scenario(permit func(s anyStore, slot, rate limit, slots bool, atEnd int64) raisable) func(*steps.Run) {
	return func(r *steps.Run) {
		asked := make(chan struct{})
		m := &meter{Run: r, stalls: s.stalls, asked: asked}
		p := permit(m, slotLimit, rateLimit, s.slots, s.atEnd)
		// do does the actions, and reports whether the handler returns then.
		do := func(actions string) bool {
			for action := range strings.SplitSeq(actions, "; ") {
				verb, number, _ := strings.Cut(action, " ")
				cost, _ := strconv.ParseInt(number, 10, 64)
				switch verb {
				case "extend":
					steps.Note("extended to %d: %v", cost, p.Extend(cost))
				case "settle":
					p.Settle(cost)
				case "done":
					p.Done()
				case "asked":
					lang.Select(false, lang.In(asked))
				case "open":
					return false
				}
			}
			return true
		}
		r.Go("handler", func() {
			if !do(s.handler) {
				return
			}
			p.Finish()
			if steps.At(steps.Load, unsafe.Pointer(m)); m.asking > 0 {
				r.Broken("a raise asks when the permit has ended")
			}
		})
		for i, other := range s.others {
			r.Go(fmt.Sprint("other ", i+1), func() { do(other) })
		}
		r.End(func() {
			if cost := p.Cost(); m.charged != cost || !slices.Contains(s.costs, cost) {
				r.Broken("%d are charged, and the cost is %d, want one of %d", m.charged, cost, s.costs)
			}
		})
	}
}
