package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	orders "github.com/stint-go/stint/internal/explore/steps"
	"github.com/stint-go/stint/internal/explore/steps/background"
	ending "github.com/stint-go/stint/internal/explore/steps/context"
	"github.com/stint-go/stint/internal/explore/steps/lang"
	"github.com/stint-go/stint/store"
)

// lined is a store that is explored with the lines in which its calls stand.
type lined interface {
	store.Store
	Close() error
	// Says is the outcome that an error reports: the call wasn't made, or may have been.
	Says(err error) (notMade, perhaps bool)
	// Left describes the lines when all calls are over.
	Left() string
}

// thereWay is the server of a lined store, with the way there. came says what has come of
// each call.
type thereWay interface {
	Take(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, granted []bool, came []int)
	Settle(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, came []int)
}

// What may come of a call.
const (
	answered = iota
	notMade
	lost
)

// lines are the queues of a store: see package batch.
type lines struct {
	direct, cluster bool
	ways, few, most int
}

var linedVariants = map[string]func(thereWay, lines) lined{}

const linedEntry = "func(there thereWay, l lines) lined { return V.ExploreLines(there, l.direct, l.cluster, l.ways, l.few, l.most) }"

const linedFile = `package redisstore

import (
	"context"
	"errors"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

type Way interface {
	Take(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, granted []bool, came []int)
	Settle(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, came []int)
}

type Lined struct{ *Store }

var comeTo = [...]error{nil, ErrUnavailable, ErrIndeterminate}

func ExploreLines(w Way, direct, cluster bool, ways, few, most int) Lined {
	s := New(nil)
	if s.wrong = nil; cluster {
		s.layout = bySlot
	}
	s.takes.Direct, s.takes.MaxInFlight, s.takes.MaxNear, s.takes.MaxSize = direct, ways, few, most
	s.settles.Direct, s.settles.MaxInFlight, s.settles.MaxNear, s.settles.MaxSize = direct, ways, few, most
	s.takes.AfterSend = nil // no call is of slots
	s.takes.Send = func(ctx context.Context, calls []*batch.Call[taking]) {
		charges := make([][]store.Charge, len(calls))
		for i, t := range calls {
			charges[i] = t.Body.Charges
		}
		results, granted, came := w.Take(ctx, charges)
		for i, t := range calls {
			if t.Failed = comeTo[came[i]]; t.Failed == nil {
				copy(t.Body.Results, results[i])
				t.Body.Granted = granted[i]
			}
		}
	}
	s.settles.Send = func(ctx context.Context, calls []*batch.Call[settling]) {
		charges := make([][]store.Charge, len(calls))
		for i, t := range calls {
			charges[i] = t.Body.charges
		}
		results, came := w.Settle(ctx, charges)
		for i, t := range calls {
			if t.Failed = comeTo[came[i]]; t.Failed == nil {
				copy(t.Body.results, results[i])
			}
		}
	}
	return Lined{s}
}

func (x Lined) Says(err error) (notMade, perhaps bool) {
	return errors.Is(err, ErrUnavailable), errors.Is(err, ErrIndeterminate)
}

func (x Lined) Left() string { return x.takes.Left() + x.settles.Left() }
`

const leftFile = `package batch

import "fmt"

// Left describes what the queue still has when all calls are over.
func (q *Queue[T]) Left() string {
	if q.inFlight == 0 && q.overdue == 0 && len(q.pending) == 0 && len(q.watched) == 0 {
		return ""
	}
	return fmt.Sprintf("%d batches in flight, %d overdue, %d watched, %d calls pending", q.inFlight, q.overdue, len(q.watched), len(q.pending))
}
`

// below are the packages below that are explored, and leftIn a file that they have besides.
var below, leftIn = []string{"internal/batch", "internal/fault"}, "internal/batch/left.go"

// way is a server and the way there.
type way struct {
	*orders.Run
	trips   []string // the outcome of each; the last is that of all others
	came    int      // trips
	used    int64
	decided map[int64]store.Result  // by cost
	stands  map[int64]store.Receipt // charges that do, by cost
	free    chan struct{}           // closed when a client that hangs comes back
	passes  bool                    // time
}

// trip goes to the server and back.
func (w *way) trip(ctx context.Context, decide func()) (came int) {
	orders.At(orders.Store, unsafe.Pointer(w))
	does := w.trips[min(w.came, len(w.trips)-1)]
	w.came++
	orders.Note("trip %d: %s", w.came, does)
	switch does {
	case "answered":
		decide()
		return answered
	case "answered late":
		decide()
		lang.Receive(ctx.Done())
		return answered
	case "decided late":
		lang.Receive(ctx.Done())
		orders.At(orders.Store, unsafe.Pointer(w))
		decide()
		return answered
	case "hangs": // in a client that ignores its context
		decide()
		lang.Receive(w.free)
		return answered
	case "given up": // by a client that doesn't
		lang.Receive(ctx.Done())
		return notMade
	case "denied":
		return notMade
	case "lost":
		decide()
		return lost
	case "panics":
		decide()
		panic(background.Planned("while the answer is decoded"))
	}
	panic(does)
}

func (w *way) Take(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, granted []bool, came []int) {
	one := w.trip(ctx, func() {
		for i := range charges {
			r := w.take(charges[i][0].Cost)
			results, granted = append(results, []store.Result{r}), append(granted, r.OK)
		}
	})
	return results, granted, slices.Repeat([]int{one}, len(charges))
}

func (w *way) take(cost int64) store.Result {
	if _, known := w.decided[cost]; known {
		w.Broken("the call of cost %d is made twice", cost)
	}
	r := store.Result{OK: w.used+cost <= ofBurst, Remaining: ofBurst - w.used}
	if r.OK {
		w.used += cost
		r.Remaining -= cost
		r.Receipt = store.Receipt{Instant: int64(len(w.decided)), Cost: cost}
		w.stands[cost] = r.Receipt
	}
	w.decided[cost] = r
	orders.Note("the server: takes %d, granted: %t", cost, r.OK)
	return r
}

func (w *way) Settle(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, came []int) {
	one := w.trip(ctx, func() {
		for i := range charges {
			c := &charges[i][0]
			if w.stands[c.Receipt.Cost] != c.Receipt {
				w.Broken("a charge is settled that doesn't stand: %+v", c.Receipt)
			}
			delete(w.stands, c.Receipt.Cost)
			w.used -= c.Receipt.Cost - c.Cost
			orders.Note("the server: settles %d for %d", c.Receipt.Cost, c.Cost)
			results = append(results, []store.Result{{OK: true}})
		}
	})
	return results, slices.Repeat([]int{one}, len(charges))
}

// crossing is a set of concurrent calls.
type crossing struct {
	lines
	trips  []string
	actors []string // what each does
}

func (x crossing) String() string {
	return fmt.Sprintf("%+v, %s: %s", x.lines, strings.Join(x.trips, ", "), strings.Join(x.actors, " | "))
}

func (x crossing) scenario(newStore func(thereWay, lines) lined) func(*orders.Run) {
	return func(r *orders.Run) {
		r.Freeze()
		w := &way{Run: r, trips: x.trips, decided: map[int64]store.Result{}, stands: map[int64]store.Receipt{}, free: make(chan struct{})}
		s := newStore(w, x.lines)
		var callers []*caller
		for i, does := range x.actors {
			switch does {
			case "close":
				r.Go("close", func() { s.Close() })
			case "pass":
				w.passes = true
				r.Go("time", func() { r.Advance(100 * time.Millisecond) })
			default:
				callers = append(callers, newCaller(w, s, i, does))
			}
		}
		if slices.Contains(x.trips, "hangs") {
			r.Go("client", func() { // no caller waits for it
				for _, c := range callers {
					lang.Receive(c.back)
				}
				lang.Close(w.free)
			})
		}
		r.End(func() {
			stands := int64(0)
			for _, c := range callers {
				stands += c.check()
			}
			unknown := slices.Contains(x.trips, "lost") || slices.Contains(x.trips, "panics")
			if perhaps := unknown && w.used > stands; w.used != stands && !perhaps {
				w.Broken("%d are charged, and callers have been granted %d", w.used, stands)
			}
			if left := s.Left(); left != "" {
				w.Broken("in the end: %s", left)
			}
		})
	}
}

// caller does one thing after the other.
type caller struct {
	*way
	store  lined
	number int
	does   []string
	ctx    context.Context
	takes  []*taken
	back   chan struct{}
}

// taken is the answer to a cost that no other call has.
type taken struct {
	charges []store.Charge
	results []store.Result
	cost    int64
	told    store.Result
	err     error
	settled bool
}

func newCaller(w *way, s lined, number int, does string) *caller {
	does, leaves := strings.CutSuffix(does, " and leave")
	c := &caller{way: w, store: s, number: number, does: strings.Split(does, "; "), ctx: context.Background(), back: make(chan struct{})}
	name := string(rune('A' + number))
	if leaves {
		ctx, end := ending.WithCancel(c.ctx)
		c.ctx = ctx
		w.Go("end "+name, end)
	}
	w.Go(name, c.run)
	return c
}

// scribble overwrites a caller's slices when its call is back.
var scribble = store.Result{Remaining: -4711}

func (c *caller) run() {
	defer lang.Close(c.back)
	for _, does := range c.does {
		switch does {
		case "take":
			c.take(int64(c.number + 1 + 3*len(c.takes)))
		case "settle":
			c.settle(c.takes[len(c.takes)-1])
		case "wait":
			c.Advance(200 * time.Millisecond)
		default:
			panic(does)
		}
	}
}

func (c *caller) take(cost int64) {
	t := &taken{cost: cost, charges: []store.Charge{{Key: "k", Limit: slowLimit, Cost: cost}}, results: make([]store.Result, 1)}
	c.takes = append(c.takes, t)
	t.err = c.store.Take(c.ctx, t.charges, t.results)
	t.told = t.results[0]
	t.charges[0], t.results[0] = store.Charge{}, scribble
	orders.Note("Take of cost %d: granted: %t, error: %v", cost, t.told.OK, t.err)
}

// settle settles a charge for nothing.
func (c *caller) settle(t *taken) {
	charge := []store.Charge{{Key: "k", Limit: slowLimit, Receipt: t.told.Receipt}}
	var result [1]store.Result
	err := c.store.Settle(c.ctx, charge, result[:])
	if err != nil || !result[0].OK {
		c.Broken("the settle of cost %d: %+v, %v", t.cost, result[0], err)
	}
	t.settled = true
}

// check says how much the caller was granted and hasn't settled.
func (c *caller) check() (stands int64) {
	for _, t := range c.takes {
		decided, made := c.decided[t.cost]
		notMade, perhaps := c.store.Says(t.err)
		switch {
		case t.results[0] != scribble || t.charges[0] != (store.Charge{}):
			c.Broken("the slices of the call of cost %d are written after it", t.cost)
		case t.err == nil && t.told != decided:
			c.Broken("the call of cost %d is told %+v instead of %+v", t.cost, t.told, decided)
		case notMade && made:
			c.Broken("the call of cost %d is said not to have been made", t.cost)
		case t.err != nil && !c.mayFail(t.err, notMade || perhaps):
			c.Broken("the call of cost %d fails: %v", t.cost, t.err)
		case t.err == nil && t.told.OK && !t.settled:
			stands += t.cost
		}
	}
	return stands
}

// mayFail says whether a call may end so.
func (c *caller) mayFail(err error, ofServer bool) bool {
	if errors.Is(err, context.Canceled) {
		return c.ctx != context.Background()
	}
	return ofServer && (c.passes || slices.ContainsFunc(c.trips, func(does string) bool { return does != "answered" }))
}

var ofLines = &orders.Elsewhere{
	Path:    "github.com/stint-go/stint/store/redisstore",
	Below:   below,
	Added:   map[string]string{"lined.go": linedFile, leftIn: leftFile},
	Mutants: linesMutants,
	Into:    "linedVariants",
	Entry:   linedEntry,
}

// Whatever callers that share a way to the server do at once, and whatever becomes of
// their call on the way: each is told what was decided for it, or an error, once, and
// leaves nothing behind; what was granted to no caller is given back.
func TestEveryOrderOfLines(t *testing.T) {
	if len(linedVariants) == 0 {
		explorations.Run(t)
		return
	}
	var crossings []crossing
	cross := func(l lines, trips string, actors ...string) {
		crossings = append(crossings, crossing{l, strings.Split(trips, "; "), actors})
	}
	for _, l := range []lines{{direct: true, ways: 1, most: 2}, {ways: 1, most: 2}, {ways: 2, few: 1, most: 2}} {
		cross(l, "answered", "take; take", "take")
		cross(l, "answered", "take", "take", "take")
		cross(l, "answered", "take; settle", "take; settle")
		cross(l, "answered", "take and leave", "take")
		cross(l, "answered; denied; answered", "take and leave", "close")
		for _, first := range []string{"answered late", "decided late", "given up", "denied", "lost", "panics"} {
			cross(l, first+"; answered", "take and leave", "take")
			cross(l, first+"; answered", "take", "take; take")
		}
		cross(l, "answered late; denied; answered", "take")
		if !l.direct {
			cross(l, "hangs; answered", "take and leave", "take")
			cross(l, "hangs; answered", "take", "take; take")
		}
	}
	cross(lines{direct: true, ways: 1, most: 2}, "answered", "take", "take", "pass")
	cross(lines{ways: 1, most: 2}, "answered", "take", "take", "pass")
	cross(lines{ways: 2, few: 1, most: 2}, "hangs; hangs; answered", "take", "take")
	cross(lines{ways: 2, few: 1, most: 1}, "hangs; answered", "take", "take", "take")
	for _, direct := range []bool{false, true} {
		cross(lines{direct: direct, ways: 1, most: 2}, "answered; panics; answered", "take", "take", "take")
	}
	cross(lines{ways: 1, most: 2}, "answered; hangs", "take; wait; take")
	cross(lines{ways: 2, most: 1}, "answered", "take and leave", "take")
	orders.Explore(t, linesMutants, crossings, func(variant string, x crossing) func(*orders.Run) {
		return x.scenario(linedVariants[variant])
	})
}

var linesMutants = []orders.Variant{
	{Name: "an answer is given that another has been given before", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	if !c.state.CompareAndSwap(waiting, answered) {\n",
		Is:  "	if was := c.state.Load(); was != waiting {\n		return false\n	}\n	if c.state.Swap(answered) == abandoned {\n"}}},
	{Name: "who leaves doesn't look whether there is an answer", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "if c.state.CompareAndSwap(waiting, abandoned) {", Is: "if c.state.Store(abandoned); true {"}}},
	{Name: "what is granted to somebody who has left stands", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "func() { q.Abandoned(c) }", Is: "func() { _ = c }"}}},
	{Name: "a call that panics has an answer", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	if panicked {\n", Is: "	if panicked = false; panicked {\n"}}},
	{Name: "a call that panics frees no way", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	inTime := q.unwatch(b)\n", Is: "	if b.calls[0].Failed == fault.ErrPanicked {\n		return\n	}\n	inTime := q.unwatch(b)\n"}}},
	{Name: "what isn't given back at once stands", Edits: []orders.Edit{{File: "giveback.go",
		Was: "fault.NotMade(err) && pause <= longestPause", Is: "fault.NotMade(err) && pause < 0"}}},
	{Name: "an overdue trip is used again", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	if inTime {\n", Is: "	if true {\n"}}},
	{Name: "an overdue ticket is used again", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "c.err, c.overdue = err, overdue", Is: "c.err, c.overdue = err, false"}}},
	{Name: "an overdue trip that comes back frees no way", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "		q.overdue--\n", Is: ""}}},
	{Name: "who finds a way free sends nobody else's calls", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "		if b := q.next(); b != nil {\n			go q.sendAll(b)\n		}\n", Is: "		q.mu.Lock()\n		q.inFlight--\n		q.mu.Unlock()\n"}}},
	{Name: "calls wait though no way will come free", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	case q.overdue == q.MaxInFlight:\n", Is: "	case q.overdue > q.MaxInFlight:\n"}}},
	{Name: "calls that wait are left there when the last way is stuck", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "		unsent, q.pending = q.pending, nil\n", Is: ""}}},
	{Name: "calls that wait are left there when another way is open", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "len(q.pending) > 0 && q.mayStart()", Is: "len(q.pending) < 0"}}},
	{Name: "the timer is set once for all trips", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "	if q.timerAt = soonest; !soonest.IsZero() {\n", Is: "	if !soonest.IsZero() {\n"}}},
}
