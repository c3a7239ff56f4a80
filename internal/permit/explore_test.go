package permit_test

import (
	"context"
	"strings"
	"testing"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/store"
)

// explored is a permit that is explored.
type explored interface {
	Done()
	Detach() (release func())
	Hold() (closed func())
	// Finish is the return of the handler.
	Finish()
}

type (
	anyStore = store.Store
	limit    = *store.Limit
)

// variants make a permit of a slot and a request, inside another permit or nil, with or without a response on which
// the cost depends. It reports what happens.
var variants = map[string]func(outer explored, s anyStore, slot, rate limit, response bool, report func(string)) explored{}

const exploredFile = `package permit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

type Explored struct{ core Core }

type reports func(string)

func (r reports) LimitChanged(*Core, *adaptive.Change)         {}
func (r reports) Settled(*Core, decide.Settlement)             {}
func (r reports) Unsettled(*Core, decide.Settlement) error     { r("unsettled"); return nil }
func (r reports) Extended(*Core, *decide.Call, decide.Raised) error { return nil }
func (r reports) WrongCost(*Core, store.Charge, error)         {}
func (r reports) Paced(*Core, *read.Paced, respond.Moved)      {}
func (r reports) Ended(*Core, time.Duration)                   { r("ended") }

func Explore(outer any, s store.Store, slot, rate *store.Limit, response bool, report func(string)) *Explored {
	b := &decide.Backend{Store: s, Lines: new(lines.Lines)}
	x := new(Explored)
	p := &x.core
	p.Context, p.Issuer = context.Background(), &Issuer{b, reports(report)}
	p.Releases, p.AdmissionSent = true, true
	if outer, ok := outer.(*Explored); ok {
		p.Outer = &outer.core
	}
	if response {
		p.Response = &Response{Settlers: []*read.Settler{nil, {Cost: func(*http.Request, int, int64) int64 { report("read"); return 0 }}}}
		r := httptest.NewRequest("GET", "/", nil)
		p.Response.Begin(r)
		p.Response.Around(httptest.NewRecorder(), r, false)
	}
	c := decide.Borrow()
	defer c.Free()
	c.By(b)
	c.Add(&limit.Limit{StoreLimit: slot, Kind: limit.Concurrent}, "k", 1)
	c.Add(&limit.Limit{StoreLimit: rate, Kind: limit.Charged}, "k", 1)
	if err := c.Decide(context.Background()); err != nil {
		panic(err)
	}
	c.HandTo(&p.Grants)
	return x
}

func (x *Explored) Done()           { x.core.Done() }
func (x *Explored) Detach() func()  { return x.core.Detach() }
func (x *Explored) Hold() func()    { return x.core.Hold() }
func (x *Explored) Finish()         { defer x.core.Finish() }
`

var mutants = []steps.Variant{
	{Name: "the slots are claimed in two steps", Edits: []steps.Edit{{File: "permit.go", Was: "return s.bits.Or(claimed)&claimed == 0", Is: "return s.bits.Load()&claimed == 0 && s.bits.Or(claimed) >= 0"}}},
	{Name: "the end is found in two steps", Edits: []steps.Edit{{File: "permit.go", Was: "return (s.bits.Or(parts)|parts)&both == both", Is: "s.bits.Or(parts)\n	return s.bits.Load()&both == both"}}},
	{Name: "the handler's return releases slots that are claimed", Edits: []steps.Edit{{File: "permit.go", Was: "	if p.claim() {\n		parts |= released", Is: "	if p.claim() || parts != 0 {\n		parts |= released"}}},
	{Name: "the function of Detach releases twice", Edits: []steps.Edit{{File: "permit.go", Was: "	return sync.OnceFunc(func() {\n		for", Is: "	return (func() {\n		for"}}},
	{Name: "Done settles the response", Edits: []steps.Edit{{File: "permit.go", Was: "	if p.claim() {\n		p.end(released)", Is: "	if p.claim() {\n		p.end(released | settled)"}}},
	{Name: "a permit ends when its slots are released", Edits: []steps.Edit{{File: "permit.go", Was: "	if p.Response == nil {\n		parts |= settled\n	}\n	if p.state", Is: "	parts |= settled\n	if p.state"}}},
}

// recorder counts what has become of a permit. It is the permit's store, too, which answers in the step that calls it.
type recorder struct {
	*steps.Run
	name                           string
	response                       bool
	released, settled, read, ended int
}

func (w *recorder) AnswersAtOnce() bool { return true }

func (w *recorder) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	for i := range charges {
		results[i] = store.Result{OK: true, Receipt: store.Receipt{Cost: 1}}
		if charges[i].Limit == slotLimit {
			results[i].Receipt.Lease = store.LeaseID{1}
		}
	}
	return nil
}

func (w *recorder) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	for i := range charges {
		if charges[i].Limit == slotLimit {
			w.released++
		} else {
			w.settled++
		}
		results[i] = store.Result{OK: true}
	}
	steps.Note("%s: the store has settled: %d released, %d settled", w.name, w.released, w.settled)
	return nil
}

func (w *recorder) report(what string) {
	steps.At(steps.Store, unsafe.Pointer(w)) // code of the application may take any time
	steps.Note("%s: %s", w.name, what)
	switch what {
	case "read":
		w.read++
	case "ended":
		if w.ended++; w.released != 1 || w.response && w.settled != 1 {
			w.Broken("%s has ended with %d released, %d settled", w.name, w.released, w.settled)
		}
	default:
		w.Broken("%s: %s", w.name, what)
	}
}

func limitFor(spec store.Spec) *store.Limit {
	l, err := store.NewLimit(spec)
	if err != nil {
		panic(err)
	}
	return l
}

var (
	slotLimit = limitFor(store.Spec{Name: "slot", Algorithm: store.Concurrency, Units: 1})
	rateLimit = limitFor(store.Spec{Name: "rate", Algorithm: store.FixedWindow, Units: 1, Period: 1e9})
)

// A scene is what the handler does before it returns, what another goroutine does meanwhile, and whether a limit needs
// the response.
type scene struct {
	handler, other string
	response       bool
}

// In every order of Done, Detach and its function, the close of a connection and the return of the handler, the slots
// are released once, the response is settled once, by the handler's goroutine, and the end is reported once, after both.
// Slots that are claimed are released by the claimant alone.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:    "github.com/stint-go/stint/internal/permit",
			Added:   map[string]string{"explored.go": exploredFile},
			Mutants: mutants,
			Entry: "func(outer explored, s anyStore, slot, rate limit, response bool, report func(string)) explored {\n" +
				"return V.Explore(outer, s, slot, rate, response, report) }",
		}).Run(t)
		return
	}
	var scenes []scene
	for _, handler := range []string{"", "done", "detach", "hold", "detach twice", "done; detach", "detach; done", "hold; detach", "detach; hold"} {
		for _, other := range []string{"", "done", "detach"} {
			for _, response := range []bool{true, false} {
				scenes = append(scenes, scene{handler, other, response})
			}
		}
	}
	steps.Explore(t, mutants, scenes, func(variant string, s scene) func(*steps.Run) {
		return func(r *steps.Run) {
			outer := &recorder{Run: r, name: "outer", response: true}
			inner := &recorder{Run: r, name: "inner", response: s.response}
			around := variants[variant](nil, outer, slotLimit, rateLimit, true, outer.report)
			p := variants[variant](around, inner, slotLimit, rateLimit, s.response, inner.report)
			do := func(actions string) {
				for action := range strings.SplitSeq(actions, "; ") {
					switch action {
					case "done":
						p.Done()
					case "hold":
						steps.Spawn(p.Hold())
					case "detach":
						steps.Spawn(p.Detach())
					case "detach twice":
						release := p.Detach()
						steps.Spawn(release)
						steps.Spawn(release)
					}
				}
			}
			r.Go("handler", func() {
				do(s.handler)
				p.Finish()
				around.Finish()
				for _, w := range []*recorder{outer, inner} {
					if w.response && (w.read != 1 || w.settled != 1) {
						r.Broken("%s: when the handler has returned, its response was read %d times, and settled %d times", w.name, w.read, w.settled)
					}
				}
			})
			if s.other != "" {
				r.Go("other", func() { do(s.other) })
			}
			r.End(func() {
				for _, w := range []*recorder{outer, inner} {
					if w.released != 1 || w.ended != 1 || w.response != (w.settled == 1) || w.read != w.settled {
						r.Broken("%s: %d times released, %d settled, %d read, %d ended", w.name, w.released, w.settled, w.read, w.ended)
					}
				}
			})
		}
	})
}
