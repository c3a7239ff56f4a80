// Package waiting implements the lines of those who wait in one process: who is next, and what
// becomes of a turn whose waiter leaves. There are lines for turns ([Turns]) and for slots
// ([Slots]).
//
// A turn is an instant that a rate has reserved in its future. Turns belong to the line of a
// limit and key, not to the waiter for whom they were reserved. A line has a list of demands and
// a list of turns. A demand is met when turns for it and for all demands before it have come. A
// waiter that leaves takes out its demand, and those behind it move up. The turns that are left
// over are then the last ones. They go back to the store, if it takes them back: it does unless
// somebody has reserved behind them. Otherwise the next to come has them, or they pass unused.
//
// Requests and bytes wait in lines of the same kind. A demand is the cost of a request, or a
// chunk of a stream.
package waiting

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Turns holds the lines for turns of one store. The zero value is ready to use. It is safe for
// concurrent use.
type Turns struct {
	n   atomic.Int64 // how many lines there are
	mu  sync.Mutex
	all map[lineKey]*line
}

// Settle settles charges in the store, even if ctx has ended. It returns the results,
// or nil if it has failed or its outcome isn't known.
type Settle func(ctx context.Context, charges []store.Charge) []store.Result

// Visit is a call in the lines of its charges. A nil Visit is in none.
type Visit struct {
	turns   *Turns
	demands []*demand     // of the charges; nil for one that needn't wait
	missing int           // how many aren't met yet
	met     chan struct{} // closed when all are
}

// reserves reports whether a charge may reserve a turn.
func reserves(c *store.Charge) bool {
	return c.Cost > 0 && c.MaxWait > 0 && !c.DryRun && c.Limit.Algorithm() != store.Concurrency
}

// Join has a call, which is about to ask the store, enter the lines in which turns are left over
// that come soon enough. It takes those off the costs of the charges: Restore adds them again.
// It returns nil if there are none, which is one atomic load if there are no lines.
func (ts *Turns) Join(charges []store.Charge) (v *Visit) {
	if ts.n.Load() == 0 {
		return nil
	}
	now := time.Now()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if !reserves(c) {
			continue
		}
		l := ts.all[keyOfLine(c)]
		if l == nil {
			continue
		}
		if l.expire(now.Add(-1)); l.held <= l.wanted { // what has come at this instant may still be had
			continue
		}
		units := min(l.held-l.wanted, c.Cost)
		if at, _ := l.at(l.wanted + units); at.After(now.Add(c.MaxWait)) {
			continue
		}
		if v == nil {
			v = ts.visit(charges)
		}
		l.add(v, i, c.Cost)
		c.Cost -= units
	}
	return v
}

// Restore makes the charges of the call cost what they cost before it joined.
func (v *Visit) Restore(charges []store.Charge) {
	if v == nil {
		return
	}
	for i, d := range v.demands {
		if d != nil {
			charges[i].Cost = d.units
		}
	}
}

// Enter has a call, which the store has granted, enter all of its lines, with the turns that it
// has reserved: the lines have their receipts from then on. v is what Join has returned. Enter
// sets the Delays to when the demands will be met. Wait, Leave or both must follow.
func (ts *Turns) Enter(v *Visit, charges []store.Charge, results []store.Result, settle Settle) *Visit {
	now := time.Now()
	over := &round{settle: settle}
	ts.mu.Lock()
	if v == nil {
		v = ts.visit(charges)
	}
	var entered []*demand
	for i := range charges {
		c, r := &charges[i], &results[i]
		if v.demands[i] == nil {
			if !reserves(c) {
				continue
			}
			ts.line(c).add(v, i, c.Cost)
		}
		d := v.demands[i]
		d.line = ts.keep(d.line) // it may be met by turns of others, and the line over
		d.line.settle = settle
		if r.Receipt.Cost > 0 {
			d.line.insert(turn{now.Add(r.Delay), r.Receipt})
			r.Receipt = store.Receipt{}
		}
		if r.Delay = 0; d.got == nil {
			r.Delay = d.line.until(d, now)
		}
		entered = append(entered, d)
	}
	for _, d := range entered {
		d.line.tend(now)
		d.line.leftOver(over)
	}
	ts.mu.Unlock()
	over.start()
	return v
}

// Queued returns how many waited for the i-th charge when the call came, itself included.
func (v *Visit) Queued(i int) int64 {
	if d := v.demands[i]; d != nil {
		return d.place
	}
	return 0
}

// Met reports whether the turns of all charges have come.
func (v *Visit) Met() bool {
	select {
	case <-v.met:
		return true
	default:
		return false
	}
}

// Wait waits until the turns of all charges have come, or ctx ends; the error is ctx's.
func (v *Visit) Wait(ctx context.Context) error {
	select {
	case <-v.met:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Receipts returns the receipts of what the i-th charge has got, if it was in a line.
func (v *Visit) Receipts(i int) []store.Receipt {
	if d := v.demands[i]; d != nil {
		return d.got
	}
	return nil
}

// Receipt returns one receipt for all of them. Only a bucket divides turns. As each was still
// reserved when the next was made, all of them together are as one charge made last.
func (v *Visit) Receipt(i int) (r store.Receipt) {
	for _, got := range v.Receipts(i) {
		got.Cost += r.Cost
		r = got
	}
	return r
}

// Leave takes the call out of its lines. What it has got goes to those behind it.
func (v *Visit) Leave(ctx context.Context) {
	if v == nil {
		return
	}
	ts, now := v.turns, time.Now()
	over := new(round)
	ts.mu.Lock()
	for _, d := range v.demands {
		if d != nil {
			d.leave(now)
			d.line.tend(now)
			d.line.leftOver(over)
		}
	}
	ts.mu.Unlock()
	over.run(ctx)
}

// Return gives what a charge has got, and hasn't used, to those who wait in its line. It reports
// whether there is one.
func (ts *Turns) Return(c *store.Charge, unused []store.Receipt) bool {
	if ts.n.Load() == 0 {
		return false
	}
	over, now := new(round), time.Now()
	ts.mu.Lock()
	l := ts.all[keyOfLine(c)]
	if l != nil {
		l.putBack(unused, now)
		l.tend(now)
		l.leftOver(over)
	}
	ts.mu.Unlock()
	over.start()
	return l != nil
}

// Queued returns how many wait in the line of a charge.
func (ts *Turns) Queued(c *store.Charge) int64 {
	if ts.n.Load() == 0 {
		return 0
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if l := ts.all[keyOfLine(c)]; l != nil {
		return int64(len(l.demands))
	}
	return 0
}

// Lines returns the number of lines.
func (ts *Turns) Lines() int { return int(ts.n.Load()) }

func (ts *Turns) visit(charges []store.Charge) *Visit {
	v := &Visit{turns: ts, demands: make([]*demand, len(charges)), met: make(chan struct{})}
	for i := range charges {
		if reserves(&charges[i]) {
			v.missing++
		}
	}
	if v.missing == 0 {
		close(v.met)
	}
	return v
}

// Outliving returns a context for a Take that may reserve a turn: it ends a while after ctx. Left
// alone with the answer, a store that takes its time would settle the turn back by itself, and
// nobody would get it. So whoever leaves waits for the answer, and leaves the line like all others.
func Outliving(ctx context.Context, s store.Store) (longer context.Context, end func()) {
	if ctx.Done() == nil || inside.AnswersAtOnce(s) {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(background.GiveBack, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}
