package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	orders "github.com/stint-go/stint/internal/test/explore/steps"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
	"github.com/stint-go/stint/store"
)

var apartVariants = map[string]func(batchServer, queues) batched{}

// eachAway sends each call by itself if a queue may have no batch in flight, and keeps what a
// queue promises. Queues are explored by themselves: see TestEveryOrderOfBatches.
var eachAway = orders.Edit{
	File: "internal/batch/queue.go",
	Was:  "func (q *Queue[T]) submit(c *Call[T], direct bool) {\n",
	Is:   "func (q *Queue[T]) submit(c *Call[T], direct bool) {\n	if q.MaxInFlight == 0 {\n		q.sendAway(c)\n		return\n	}\n",
}

const awayFile = `package batch

import (
	"time"

	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

func (q *Queue[T]) sendAway(c *Call[T]) {
	c.Since = time.Now()
	go func() {
		if c.state.Load() == abandoned {
			return
		}
		b := &batch[T]{calls: []*Call[T]{c}}
		b.set(c.Since.Add(q.Timeout))
		watch := time.AfterFunc(q.Timeout, func() {
			close(b.done)
			c.answer(fault.ErrTimeout, true)
		})
		q.Send(b, b.calls)
		late, failed := !watch.Stop(), c.Failed
		if !c.answer(failed, late) && failed == nil {
			q.Abandoned(c)
		}
		if c.Ended != nil {
			c.Ended <- failed
		}
	}()
}
`

// cluster is servers with a key each, in a slot of its own, and what happens to calls to them.
type cluster struct {
	*orders.Run
	nodes []*node
	// charges by what identifies them: their key and their cost
	decided  map[piece]store.Result
	stands   map[piece]bool
	lost     map[piece]bool // on the way
	finished map[piece]bool // the caller has been told that it isn't charged
}

type node struct {
	key  string
	room int64
	// The outcome of each call, by verb; the last is that of all others.
	fates map[string][]string
	made  map[string]int
}

// piece is a charge: no other on its key has that cost.
type piece struct {
	key  string
	cost int64
}

func (w *cluster) at(key string) *node {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.key == key })]
}

// call goes to a node and back.
func (w *cluster) call(ctx context.Context, verb, key string, p piece, decide func()) (outcome int) {
	n := w.at(key)
	orders.At(orders.Store, unsafe.Pointer(n))
	fates := n.fates[verb]
	does := "answered"
	if len(fates) > 0 {
		does = fates[min(n.made[verb], len(fates)-1)]
	}
	n.made[verb]++
	orders.Note("%s %s %d: %s", verb, key, p.cost, does)
	switch does {
	case "answered":
		decide()
		return answered
	case "denied":
		return notMade
	case "cut": // before it arrives
		w.lost[p] = true
		return lost
	case "lost": // its answer
		w.lost[p] = true
		decide()
		return lost
	case "slow":
		lang.Receive(twin.After(60 * time.Millisecond))
		orders.At(orders.Store, unsafe.Pointer(n))
		decide()
		return answered
	case "answered late":
		decide()
		lang.Receive(ctx.Done())
		return answered
	case "decided late":
		lang.Receive(ctx.Done())
		orders.At(orders.Store, unsafe.Pointer(n))
		decide()
		return answered
	case "denied late":
		lang.Receive(ctx.Done())
		return notMade
	}
	panic(does)
}

func (w *cluster) Take(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, granted []bool, outcomes []int) {
	for _, cs := range charges {
		c := &cs[0]
		p := piece{c.Key, c.Cost}
		var r store.Result
		outcomes = append(outcomes, w.call(ctx, "take", c.Key, p, func() { r = w.take(p) }))
		results, granted = append(results, []store.Result{r}), append(granted, r.OK)
	}
	return results, granted, outcomes
}

func (w *cluster) take(p piece) store.Result {
	if _, known := w.decided[p]; known {
		w.Broken("%v is charged twice", p)
	}
	if w.finished[p] {
		w.Broken("%v is charged, and its caller has been told that it isn't", p)
	}
	n := w.at(p.key)
	r := store.Result{OK: p.cost <= n.room, Remaining: n.room}
	if r.OK {
		n.room -= p.cost
		r.Remaining = n.room
		r.Receipt = store.Receipt{Instant: int64(len(w.decided)) + 1, Cost: p.cost}
		w.stands[p] = true
	}
	w.decided[p] = r
	orders.Note("%s: takes %d, granted: %t", p.key, p.cost, r.OK)
	return r
}

func (w *cluster) Settle(ctx context.Context, charges [][]store.Charge) (results [][]store.Result, outcomes []int) {
	for _, cs := range charges {
		c := &cs[0]
		p := piece{c.Key, c.Receipt.Cost}
		n := w.at(c.Key)
		outcomes = append(outcomes, w.call(ctx, "settle", c.Key, p, func() {
			if !w.stands[p] || w.decided[p].Receipt != c.Receipt {
				w.Broken("%v is settled, and doesn't stand", p)
			}
			delete(w.stands, p)
			n.room += p.cost
			orders.Note("%s: settles %d", p.key, p.cost)
		}))
		results = append(results, []store.Result{{OK: true, Remaining: n.room}})
	}
	return results, outcomes
}

// see is a step of who looks at the nodes.
func (w *cluster) see() {
	for _, n := range w.nodes {
		orders.At(orders.Load, unsafe.Pointer(n))
	}
}

// splitting is a set of concurrent calls to a cluster.
type splitting struct {
	queues
	fates  string // such as "take a: denied, answered; settle b: cut"
	full   string // a key without room
	actors []string
}

func (x splitting) String() string {
	return fmt.Sprintf("%+v, %s, full: %q: %s", x.queues, x.fates, x.full, strings.Join(x.actors, " | "))
}

func (x splitting) scenario(newStore func(batchServer, queues) batched) func(*orders.Run) {
	return func(r *orders.Run) {
		r.Freeze()
		w := &cluster{
			Run: r, decided: map[piece]store.Result{}, stands: map[piece]bool{},
			lost: map[piece]bool{}, finished: map[piece]bool{},
		}
		for _, key := range []string{"a", "b"} {
			n := &node{key: key, room: 3, fates: map[string][]string{}, made: map[string]int{}}
			if key == x.full {
				n.room = 0
			}
			w.nodes = append(w.nodes, n)
		}
		for fate := range strings.SplitSeq(x.fates, "; ") {
			if of, fates, some := strings.Cut(fate, ": "); some {
				verb, key, _ := strings.Cut(of, " ")
				w.at(key).fates[verb] = strings.Split(fates, ", ")
			}
		}
		s := newStore(w, x.queues)
		var splitters []*splitter
		for i, does := range x.actors {
			if does == "close" {
				r.Go("close", func() { s.Close() })
				continue
			}
			does, leaves := strings.CutSuffix(does, " and leave")
			c := &splitter{cluster: w, store: s, cost: int64(i + 1), ctx: context.Background(), leaves: leaves, troubled: x.fates != ""}
			splitters = append(splitters, c)
			name := string(rune('A' + i))
			if leaves {
				ctx, end := ending.WithCancel(c.ctx)
				c.ctx = ctx
				r.Go("end "+name, end)
			}
			r.Go(name, func() {
				for what := range strings.SplitSeq(does, "; ") {
					c.do(what)
				}
			})
		}
		r.End(func() {
			for _, c := range splitters {
				c.check()
			}
			if left := s.Left(); left != "" {
				w.Broken("in the end: %s", left)
			}
		})
	}
}

// splitter makes calls over both nodes, one after the other.
type splitter struct {
	*cluster
	store     batched
	cost      int64
	ctx       context.Context
	leaves    bool
	troubled  bool // calls may fail
	results   []store.Result
	scribbled []store.Result
	granted   bool
	tried     bool // to settle
}

func (c *splitter) pieces() [2]piece { return [2]piece{{"a", c.cost}, {"b", c.cost}} }

func (c *splitter) charges() []store.Charge {
	return []store.Charge{{Key: "a", Limit: slowLimit, Cost: c.cost}, {Key: "b", Limit: slowLimit, Cost: c.cost}}
}

func (c *splitter) do(what string) {
	began := orders.Now()
	var err error
	switch {
	case what == "take":
		err = c.take()
	case what == "settle" && c.granted:
		err = c.settle()
	}
	orders.Note("%s: granted: %t, %v", what, c.granted, err)
	if took := orders.Now().Sub(began); took > 100*time.Millisecond {
		c.Broken("%s of cost %d takes %v", what, c.cost, took)
	}
	switch notMade, perhaps := c.store.Says(err); {
	case err == nil, errors.Is(err, context.Canceled) && c.leaves && !notMade && !perhaps:
	case notMade == perhaps, !c.troubled:
		c.Broken("%s of cost %d fails: %v", what, c.cost, err)
	}
}

func (c *splitter) take() error {
	results := make([]store.Result, 2)
	err := c.store.Take(c.ctx, c.charges(), results)
	c.see()
	notMade, _ := c.store.Says(err)
	denied := err == nil && (!results[0].OK || !results[1].OK)
	c.granted = err == nil && !denied
	for i, p := range c.pieces() {
		switch r, decided := results[i], c.decided[p]; {
		case (c.granted || denied && !r.OK) && r != decided:
			c.Broken("%v is told %+v instead of %+v", p, r, decided)
		case denied && r.Receipt != store.Receipt{}:
			c.Broken("%v has a receipt, and isn't charged", p)
		}
		if denied || notMade {
			if c.finished[p] = true; c.stands[p] {
				c.Broken("%v stands, and its caller has been told that it doesn't: %v", p, err)
			}
		}
	}
	c.results, c.scribbled = slices.Clone(results), results
	results[0], results[1] = scribble, scribble
	return err
}

func (c *splitter) settle() error {
	charges, results := c.charges(), make([]store.Result, 2)
	for i := range charges {
		charges[i].Cost, charges[i].Receipt = 0, c.results[i].Receipt
	}
	c.granted, c.tried = false, true
	err := c.store.Settle(c.ctx, charges, results)
	c.see()
	notMade, _ := c.store.Says(err)
	for i, p := range c.pieces() {
		switch {
		case err == nil && (!results[i].OK || c.stands[p]):
			c.Broken("%v is said to be settled: %+v", p, results[i])
		case notMade && !c.stands[p]:
			c.Broken("%v is settled, and its caller told that it isn't", p)
		}
	}
	return err
}

// check looks at what is left when all calls are over.
func (c *splitter) check() {
	for i, p := range c.pieces() {
		switch {
		case c.scribbled[i] != scribble:
			c.Broken("the slices of the call of cost %d are written after it", c.cost)
		case c.granted && !c.stands[p]:
			c.Broken("%v doesn't stand, and its caller has been granted it", p)
		case c.stands[p] && !c.granted && !c.tried && !c.lost[p]:
			c.Broken("%v stands for nobody", p)
		}
	}
}

var ofApart = &orders.Elsewhere{
	Path:    "github.com/stint-go/stint/store/redisstore",
	Below:   below,
	Added:   map[string]string{"batched.go": batchFile, leftIn: leftFile, "internal/batch/away.go": awayFile},
	Edits:   []orders.Edit{eachAway},
	Mutants: apartMutants,
	Into:    "apartVariants",
	Entry:   batchEntry,
}

// Whatever calls do at once that are split over several slots, and whatever becomes of
// their parts on the way: a call is charged in all slots or in none, its caller is told
// in time, and what he is told is true; what was granted to no caller is given back, once.
func TestEveryOrderApart(t *testing.T) {
	if len(apartVariants) == 0 {
		explorations.Run(t)
		return
	}
	var splittings []splitting
	split := func(q queues, fates, full string, actors ...string) {
		q.cluster = true
		splittings = append(splittings, splitting{q, fates, full, actors})
	}
	together, away := queues{inFlight: 1, size: 2}, queues{}
	split(away, "", "a", "take")
	for _, fate := range []string{"denied", "cut", "lost", "slow", "answered late", "decided late", "denied late"} {
		split(away, "take a: "+fate, "", "take")
		split(away, "take b: "+fate, "", "take")
		split(away, "take a: "+fate, "b", "take")
		split(away, "settle a: "+fate+", answered", "b", "take")
		split(away, "settle a: "+fate+", answered", "b", "take", "close")
		split(away, "settle a: "+fate+", denied, answered", "b", "take")
		split(away, "settle a: "+fate, "", "take; settle")
		split(away, "take b: denied; settle a: "+fate+", answered", "", "take")
		split(away, "take b: slow; settle a: "+fate+", answered", "b", "take")
	}
	for _, fate := range []string{"denied", "cut", "lost", "answered late", "decided late", "denied late"} {
		split(away, "take a: "+fate, "", "take and leave")
		split(away, "take b: "+fate, "", "take and leave")
		split(away, "take a: "+fate, "b", "take and leave")
		split(away, "settle a: "+fate+", answered", "b", "take and leave")
		split(away, "settle a: "+fate+", answered", "", "take; settle and leave")
	}
	split(away, "settle a: denied, answered", "b", "take and leave", "close")
	split(away, "", "", "take; settle", "take; settle")
	for _, q := range []queues{together, away} {
		split(q, "", "", "take; settle")
		split(q, "", "b", "take")
		split(q, "", "", "take and leave")
		split(q, "", "b", "take and leave")
	}
	if os.Getenv("STINT_LONG")+os.Getenv("STINT_MUTANTS") != "" {
		split(away, "", "", "take", "take", "take")
	}
	orders.Explore(t, apartMutants, splittings, func(variant string, x splitting) func(*orders.Run) {
		return x.scenario(apartVariants[variant])
	})
}

var apartMutants = []orders.Variant{
	{Name: "parts are given back only if one is denied", Edits: []orders.Edit{{File: "take.go",
		Was: "	if failed != nil || !granted {\n", Is: "	if !granted {\n"}}},
	{Name: "parts are given back only if one fails", Edits: []orders.Edit{{File: "take.go",
		Was: "	if failed != nil || !granted {\n", Is: "	if failed != nil {\n"}}},
	{Name: "what is given back doesn't matter to a call that fails", Edits: []orders.Edit{{File: "take.go",
		Was: "parts[0].Since.Add(s.timeout)); err != nil {", Is: "parts[0].Since.Add(s.timeout)); err != nil && failed == nil {"}}},
	{Name: "what isn't given back is said not to be charged", Edits: []orders.Edit{{File: "take.go",
		Was: "			return fault.PartlyMade(err)\n", Is: "			return err\n"}}},
	{Name: "parts that fail are given back with the others", Edits: []orders.Edit{{File: "take.go",
		Was: "			failed = fault.Worse(failed, err)\n			continue\n", Is: "			failed = fault.Worse(failed, err)\n"}}},
	{Name: "what is given back may take as long again", Edits: []orders.Edit{{File: "take.go",
		Was: "parts[0].Since.Add(s.timeout)", Is: "time.Now().Add(s.timeout)"}, {File: "take.go", Was: "	\"fmt\"\n", Is: "	\"fmt\"\n	\"time\"\n"}}},
	{Name: "who leaves one part is told what became of another", Edits: []orders.Edit{{File: "internal/fault/fault.go",
		Was: "if a == nil || doubt(b) > doubt(a) {", Is: "if a == nil || doubt(b) > 1 {"}}},
	{Name: "one part is given back", Edits: []orders.Edit{{File: "refunds.go",
		Was: "	for n, part := range parts {\n		if calls[n] = newRefund", Is: "	for n, part := range parts[:min(len(parts), 1)] {\n		if calls[n] = newRefund"}}},
	{Name: "who waits for what is given back doesn't look at what came of it", Edits: []orders.Edit{{File: "refunds.go",
		Was: "			if err != nil {\n				return err\n			}\n", Is: "			_ = err\n"}}},
	{Name: "what may have been given back is given back again", Edits: []orders.Edit{{File: "refunds.go",
		Was: "fault.NotMade(err) && pause <= longestPause", Is: "err != nil && pause <= longestPause"}}},
	{Name: "what turns out late not to have been given back stands", Edits: []orders.Edit{{File: "refunds.go",
		Was: "		err = <-c.Ended\n", Is: "		_ = c\n"}}},
	{Name: "a closed store gives nothing back any more", Edits: []orders.Edit{{File: "refunds.go",
		Was: "			case <-f.closed: // the last chance\n				pause = longestPause\n", Is: "			case <-f.closed:\n				return\n"}}},
	{Name: "a Settle made in part is said not to have been made", Edits: []orders.Edit{{File: "settle.go",
		Was: "	if made {\n		return fault.PartlyMade(failed)\n	}\n	return failed\n}\n\n// newSettle", Is: "	_ = made\n	return failed\n}\n\n// newSettle"}}},
	{Name: "who waits for a part doesn't see that his time is up", Edits: []orders.Edit{{File: "refunds.go",
		Was: "		case <-due.Done():\n", Is: "		case <-ctx.Done():\n			_ = due\n"}}},
}
