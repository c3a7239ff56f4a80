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

	orders "github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/explore/steps/background"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	"github.com/stint-go/stint/store"
)

// batched is a store that is explored with the queues of its calls.
type batched interface {
	store.Store
	Close() error
	// Says returns the outcome that an error reports: the call wasn't made, or may have been.
	Says(err error) (notMade, perhaps bool)
	// Left describes the queues when all calls are over.
	Left() string
}

// batchServer is the server of a batched store. outcomes are those of the calls.
type batchServer interface {
	Take(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, granted []bool, outcomes []int)
	Settle(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, outcomes []int)
}

// The outcomes of a call.
const (
	answered = iota
	notMade
	lost
)

// queues are the queues of a store: see package batch.
type queues struct {
	direct, cluster               bool
	inFlight, inFlightShort, size int
}

var batchVariants = map[string]func(batchServer, queues) batched{}

const batchEntry = "func(there batchServer, q queues) batched { return V.ExploreBatches(there, q.direct, q.cluster, q.inFlight, q.inFlightShort, q.size) }"

const batchFile = `package redisstore

import (
	"context"
	"errors"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

type BatchServer interface {
	Take(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, granted []bool, outcomes []int)
	Settle(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, outcomes []int)
}

type Batched struct{ *Store }

var errorOf = [...]error{nil, ErrUnavailable, ErrIndeterminate}

func ExploreBatches(w BatchServer, direct, cluster bool, inFlight, inFlightShort, size int) Batched {
	s := New(nil)
	if s.wrong = nil; cluster {
		s.layout = bySlot
	}
	s.takes.Direct, s.takes.MaxInFlight, s.takes.MaxInFlightShort, s.takes.MaxSize = direct, inFlight, inFlightShort, size
	s.settles.Direct, s.settles.MaxInFlight, s.settles.MaxInFlightShort, s.settles.MaxSize = direct, inFlight, inFlightShort, size
	s.takes.AfterSend = nil // no call is of slots
	s.takes.Send = func(ctx context.Context, calls []*batch.Call[takeRequest]) {
		charges := make([][]store.Charge, len(calls))
		for i, t := range calls {
			charges[i] = t.Body.Charges
		}
		results, granted, outcomes := w.Take(ctx, charges)
		for i, t := range calls {
			if t.Failed = errorOf[outcomes[i]]; t.Failed == nil {
				copy(t.Body.Results, results[i])
				t.Body.Granted = granted[i]
			}
		}
	}
	s.settles.Send = func(ctx context.Context, calls []*batch.Call[settleRequest]) {
		charges := make([][]store.Charge, len(calls))
		for i, t := range calls {
			charges[i] = t.Body.charges
		}
		results, outcomes := w.Settle(ctx, charges)
		for i, t := range calls {
			if t.Failed = errorOf[outcomes[i]]; t.Failed == nil {
				copy(t.Body.results, results[i])
			}
		}
	}
	return Batched{s}
}

func (x Batched) Says(err error) (notMade, perhaps bool) {
	return errors.Is(err, ErrUnavailable), errors.Is(err, ErrIndeterminate)
}

func (x Batched) Left() string { return x.takes.Left() + x.settles.Left() }
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

// unreliable is a server whose round trips have given outcomes.
type unreliable struct {
	*orders.Run
	script  []string // the outcome of each round trip; the last is that of all others
	made    int      // round trips
	used    int64
	decided map[int64]store.Result  // by cost
	stands  map[int64]store.Receipt // charges that do, by cost
	free    chan struct{}           // closed when a client that hangs comes back
	passes  bool                    // time
}

// roundTrip goes to the server and back.
func (w *unreliable) roundTrip(ctx context.Context, decide func()) (outcome int) {
	orders.At(orders.Store, unsafe.Pointer(w))
	does := w.script[min(w.made, len(w.script)-1)]
	w.made++
	orders.Note("round trip %d: %s", w.made, does)
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

func (w *unreliable) Take(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, granted []bool, outcomes []int) {
	one := w.roundTrip(ctx, func() {
		for i := range charges {
			r := w.take(charges[i][0].Cost)
			results, granted = append(results, []store.Result{r}), append(granted, r.OK)
		}
	})
	return results, granted, slices.Repeat([]int{one}, len(charges))
}

func (w *unreliable) take(cost int64) store.Result {
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

func (w *unreliable) Settle(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, outcomes []int) {
	one := w.roundTrip(ctx, func() {
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
	queues
	script []string // the outcomes of round trips
	actors []string // what each does
}

func (x crossing) String() string {
	return fmt.Sprintf("%+v, %s: %s", x.queues, strings.Join(x.script, ", "), strings.Join(x.actors, " | "))
}

func (x crossing) scenario(newStore func(batchServer, queues) batched) func(*orders.Run) {
	return func(r *orders.Run) {
		r.Freeze()
		w := &unreliable{Run: r, script: x.script, decided: map[int64]store.Result{}, stands: map[int64]store.Receipt{}, free: make(chan struct{})}
		s := newStore(w, x.queues)
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
		if slices.Contains(x.script, "hangs") {
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
			unknown := slices.Contains(x.script, "lost") || slices.Contains(x.script, "panics")
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
	*unreliable
	store  batched
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

func newCaller(w *unreliable, s batched, number int, does string) *caller {
	does, leaves := strings.CutSuffix(does, " and leave")
	c := &caller{unreliable: w, store: s, number: number, does: strings.Split(does, "; "), ctx: context.Background(), back: make(chan struct{})}
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
	return ofServer && (c.passes || slices.ContainsFunc(c.script, func(does string) bool { return does != "answered" }))
}

var ofBatches = &orders.Elsewhere{
	Path:    "github.com/stint-go/stint/store/redisstore",
	Below:   below,
	Added:   map[string]string{"batched.go": batchFile, leftIn: leftFile},
	Mutants: batchMutants,
	Into:    "batchVariants",
	Entry:   batchEntry,
}

// Whatever callers do whose calls travel in batches, and whatever the outcome of a round trip: each
// caller gets what was decided for it, or an error, once. What was granted to a caller that has left is
// given back.
func TestEveryOrderOfBatches(t *testing.T) {
	if len(batchVariants) == 0 {
		explorations.Run(t)
		return
	}
	var crossings []crossing
	cross := func(q queues, script string, actors ...string) {
		crossings = append(crossings, crossing{q, strings.Split(script, "; "), actors})
	}
	for _, q := range []queues{{direct: true, inFlight: 1, size: 2}, {inFlight: 1, size: 2}, {inFlight: 2, inFlightShort: 1, size: 2}} {
		cross(q, "answered", "take; take", "take")
		cross(q, "answered", "take", "take", "take")
		cross(q, "answered", "take; settle", "take; settle")
		cross(q, "answered", "take and leave", "take")
		cross(q, "answered; denied; answered", "take and leave", "close")
		for _, first := range []string{"answered late", "decided late", "given up", "denied", "lost", "panics"} {
			cross(q, first+"; answered", "take and leave", "take")
			cross(q, first+"; answered", "take", "take; take")
		}
		cross(q, "answered late; denied; answered", "take")
		if !q.direct {
			cross(q, "hangs; answered", "take and leave", "take")
			cross(q, "hangs; answered", "take", "take; take")
		}
	}
	cross(queues{direct: true, inFlight: 1, size: 2}, "answered", "take", "take", "pass")
	cross(queues{inFlight: 1, size: 2}, "answered", "take", "take", "pass")
	cross(queues{inFlight: 2, inFlightShort: 1, size: 2}, "hangs; hangs; answered", "take", "take")
	cross(queues{inFlight: 2, inFlightShort: 1, size: 1}, "hangs; answered", "take", "take", "take")
	for _, direct := range []bool{false, true} {
		cross(queues{direct: direct, inFlight: 1, size: 2}, "answered; panics; answered", "take", "take", "take")
	}
	cross(queues{inFlight: 1, size: 2}, "answered; hangs", "take; wait; take")
	cross(queues{inFlight: 2, size: 1}, "answered", "take and leave", "take")
	orders.Explore(t, batchMutants, crossings, func(variant string, x crossing) func(*orders.Run) {
		return x.scenario(batchVariants[variant])
	})
}

var batchMutants = []orders.Variant{
	{Name: "an answer is given that another has been given before", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	if !c.state.CompareAndSwap(waiting, answered) {\n",
		Is:  "	if was := c.state.Load(); was != waiting {\n		return false\n	}\n	if c.state.Swap(answered) == abandoned {\n"}}},
	{Name: "who leaves doesn't look whether there is an answer", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "if c.state.CompareAndSwap(waiting, abandoned) {", Is: "if c.state.Store(abandoned); true {"}}},
	{Name: "what is granted to a caller that has left stands", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "func() { q.Abandoned(c) }", Is: "func() { _ = c }"}}},
	{Name: "a call that panics has an answer", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	if panicked {\n", Is: "	if panicked = false; panicked {\n"}}},
	{Name: "a call that panics frees no place in flight", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	inTime := q.unwatch(b)\n", Is: "	if b.calls[0].Failed == fault.ErrPanicked {\n		return\n	}\n	inTime := q.unwatch(b)\n"}}},
	{Name: "what isn't given back at once stands", Edits: []orders.Edit{{File: "refunds.go",
		Was: "fault.NotMade(err) && pause <= longestPause", Is: "fault.NotMade(err) && pause < 0"}}},
	{Name: "an overdue batch is used again", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	if inTime {\n", Is: "	if true {\n"}}},
	{Name: "an overdue call is used again", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "c.err, c.overdue = err, overdue", Is: "c.err, c.overdue = err, false"}}},
	{Name: "an overdue batch that comes back frees no place in flight", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "		q.overdue--\n", Is: ""}}},
	{Name: "a caller that sends its own batch leaves the calls of others", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "		if b := q.next(); b != nil {\n			go q.sendAll(b)\n		}\n", Is: "		q.mu.Lock()\n		q.inFlight--\n		q.mu.Unlock()\n"}}},
	{Name: "calls wait though all batches are overdue", Edits: []orders.Edit{{File: "internal/batch/queue.go",
		Was: "	case q.overdue == q.MaxInFlight:\n", Is: "	case q.overdue > q.MaxInFlight:\n"}}},
	{Name: "calls that wait are left there when the last batch is overdue", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "		unsent, q.pending = q.pending, nil\n", Is: ""}}},
	{Name: "calls that wait are left there when another batch may be sent", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "len(q.pending) > 0 && q.mayStart()", Is: "len(q.pending) < 0"}}},
	{Name: "the timer is set once for all batches", Edits: []orders.Edit{{File: "internal/batch/batch.go",
		Was: "	if q.timerAt = soonest; !soonest.IsZero() {\n", Is: "	if !soonest.IsZero() {\n"}}},
}
