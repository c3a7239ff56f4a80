// Package turns has the lines in which calls of one process wait for turns. A turn is an instant
// that a rate has reserved in its future. A call is a request, or a chunk of a stream's bytes.
//
// A wait goes like this:
//
//  1. A call that may wait has [Lines.Claim] take over turns that calls before it have left. It asks
//     the store for the rest, in a context of [Outliving].
//  2. If the store grants the call a turn in the future, [Lines.Join] puts the call at the end of the
//     line of each of its limits. The turns belong to the line from then on.
//  3. [Waiter.Wait] returns when each of the lines has served the call. A line serves its head when
//     turns for as many units as the head waits for are due.
//  4. If the call's context ends before, [Lines.Leave] takes its positions out, and the calls behind
//     move up. So the surplus is always the last turns. They go back to the store.
//  5. The store doesn't take back a turn behind which another process has reserved one. Such a turn
//     stays in the line for the next call that comes, or passes unused.
package turns

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Lines holds the lines of one store. The zero value is ready to use. It is safe for concurrent use.
type Lines struct {
	n   atomic.Int64 // how many lines there are
	mu  sync.Mutex
	all map[lineKey]*line
}

// Settle settles charges in the store, even if ctx has ended. It returns the results,
// or nil if it has failed or its outcome isn't known.
type Settle func(ctx context.Context, charges []store.Charge) []store.Result

// reserves reports whether a charge may reserve a turn.
func reserves(c *store.Charge) bool {
	return c.Cost > 0 && c.MaxWait > 0 && !c.DryRun && c.Limit.Algorithm() != store.Concurrency
}

// Claim has a call, which is about to ask the store, join the lines whose surplus turns come soon
// enough. It takes those off the costs of the charges; [Waiter.Restore] adds them again. It returns
// nil if there are none: if there are no lines, that costs one atomic load.
func (ls *Lines) Claim(charges []store.Charge) (w *Waiter) {
	if ls.n.Load() == 0 {
		return nil
	}
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if !reserves(c) {
			continue
		}
		l := ls.all[keyOf(c)]
		if l == nil {
			continue
		}
		l.expire(now.Add(-1)) // a turn that comes at this instant may still be used
		units := min(l.surplus(), c.Cost)
		if units <= 0 {
			continue
		}
		if due, _ := l.due(l.waitingUnits + units); due.After(now.Add(c.MaxWait)) {
			continue
		}
		if w == nil {
			w = newWaiter(charges)
		}
		l.join(w, i, c.Cost)
		c.Cost -= units
	}
	return w
}

// Restore makes the charges of the call cost what they cost before [Lines.Claim].
func (w *Waiter) Restore(charges []store.Charge) {
	if w == nil {
		return
	}
	for i, p := range w.positions {
		if p != nil {
			charges[i].Cost = p.units
		}
	}
}

// Join has a call, which the store has granted, join the lines of all of its charges, with the turns
// that the store has reserved for it: the lines have their receipts from then on. w is what Claim has
// returned. Join sets the Delays to when the call will be served. Wait, Leave or both must follow.
func (ls *Lines) Join(w *Waiter, charges []store.Charge, results []store.Result, settle Settle) *Waiter {
	now := time.Now()
	back := &refund{settle: settle}
	ls.mu.Lock()
	if w == nil {
		w = newWaiter(charges)
	}
	for i := range charges {
		c, r := &charges[i], &results[i]
		if w.positions[i] == nil {
			if !reserves(c) {
				continue
			}
			ls.line(c).join(w, i, c.Cost)
		}
		p := w.positions[i]
		p.line = ls.register(p.line) // it may be served by now, with turns of others, and its line be over
		p.line.settle = settle
		if r.Receipt.Cost > 0 {
			p.line.insert(turn{now.Add(r.Delay), r.Receipt})
			r.Receipt = store.Receipt{}
		}
		if r.Delay = 0; p.turns == nil {
			r.Delay = p.line.delay(p, now)
		}
	}
	for _, p := range w.positions {
		if p != nil {
			ls.advance(p.line, now)
			back.addSurplus(p.line)
		}
	}
	ls.mu.Unlock()
	ls.startRefund(back)
	return w
}

// Wait waits until the turns of all charges have come, or ctx ends; the error is ctx's.
func (w *Waiter) Wait(ctx context.Context) error {
	select {
	case <-w.served:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Served reports whether the turns of all charges have come.
func (w *Waiter) Served() bool {
	select {
	case <-w.served:
		return true
	default:
		return false
	}
}

// Queued returns how many waited for charge i when the call joined its line, itself included.
func (w *Waiter) Queued(i int) int64 {
	if p := w.positions[i]; p != nil {
		return p.number
	}
	return 0
}

// Receipts returns the receipts of the turns that charge i was served; nil if it was in no line.
func (w *Waiter) Receipts(i int) []store.Receipt {
	if p := w.positions[i]; p != nil {
		return p.turns
	}
	return nil
}

// Receipt returns one receipt for all of them. Only a bucket divides turns. As each was still
// reserved when the next was made, all of them together are as one charge made last.
func (w *Waiter) Receipt(i int) (r store.Receipt) {
	for _, next := range w.Receipts(i) {
		next.Cost += r.Cost
		r = next
	}
	return r
}

// Leave takes a call out of its lines. The calls behind it get the turns that it was served.
func (ls *Lines) Leave(ctx context.Context, w *Waiter) {
	if w == nil {
		return
	}
	now, back := time.Now(), new(refund)
	ls.mu.Lock()
	for _, p := range w.positions {
		if p == nil {
			continue
		}
		if p.turns == nil { // still waiting
			p.line.leave(p)
		} else {
			p.line = ls.register(p.line) // it may have been dropped since it served the call
			p.line.prepend(p.turns, now)
		}
		ls.advance(p.line, now)
		back.addSurplus(p.line)
	}
	ls.mu.Unlock()
	ls.refund(ctx, back)
}

// Return gives turns that a charge was served, and that it hasn't used, to the calls that wait in its
// line. It reports whether there is one.
func (ls *Lines) Return(c *store.Charge, unused []store.Receipt) bool {
	if ls.n.Load() == 0 {
		return false
	}
	now, back := time.Now(), new(refund)
	ls.mu.Lock()
	l := ls.all[keyOf(c)]
	if l != nil {
		l.prepend(unused, now)
		ls.advance(l, now)
		back.addSurplus(l)
	}
	ls.mu.Unlock()
	ls.startRefund(back)
	return l != nil
}

// Queued returns how many calls wait in the line of a charge: 0 if it reserves no turn.
func (ls *Lines) Queued(c *store.Charge) int64 {
	if ls.n.Load() == 0 || !reserves(c) {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.all[keyOf(c)]; l != nil {
		return int64(len(l.waiting))
	}
	return 0
}

// Len returns the number of lines.
func (ls *Lines) Len() int { return int(ls.n.Load()) }

// line returns the line of a charge.
func (ls *Lines) line(c *store.Charge) *line {
	key := keyOf(c)
	if l := ls.all[key]; l != nil {
		return l
	}
	l := &line{key: key, charge: store.Charge{Key: c.Key, Limit: c.Limit}}
	l.timer = time.AfterFunc(time.Hour, func() { ls.onTimer(l) })
	return ls.register(l)
}

// register returns the line that has l's key: l, which may have been dropped since it was last used,
// or the one that has replaced it.
func (ls *Lines) register(l *line) *line {
	if now := ls.all[l.key]; now != nil {
		return now
	}
	if ls.all == nil {
		ls.all = map[lineKey]*line{}
	}
	ls.all[l.key] = l
	ls.n.Add(1)
	return l
}

// advance serves the calls whose turns have come, and sets the line's timer for the next. It drops a
// line that is over.
func (ls *Lines) advance(l *line, now time.Time) {
	if next := l.serve(now); !next.IsZero() {
		l.timer.Reset(next.Sub(now))
		return
	}
	l.timer.Stop()
	if l.over() && ls.all[l.key] == l {
		delete(ls.all, l.key)
		ls.n.Add(-1)
	}
}

// onTimer advances a line whose next turn has come.
func (ls *Lines) onTimer(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if !l.refunding {
		l.expire(now)
	}
	ls.advance(l, now)
}

// refund gives turns back to the store. The surplus that the lines have by then goes back in the
// background, so that the caller doesn't wait for it, too. A panic is the caller's.
func (ls *Lines) refund(ctx context.Context, r *refund) {
	if len(r.turns) == 0 {
		return
	}
	var results []store.Result
	defer func() { ls.startRefund(ls.finishRefund(r, results)) }() // also if the store panics
	results = r.settle(ctx, r.charges())
}

// startRefund gives turns back in the background.
func (ls *Lines) startRefund(r *refund) {
	if len(r.turns) > 0 {
		go background.Do("giving back turns", func() { ls.refund(context.Background(), r) })
	}
}

// finishRefund records the results of a refund. It returns the refund that must follow.
func (ls *Lines) finishRefund(r *refund, results []store.Result) (next *refund) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	r.finish(results, now)
	next = new(refund)
	for _, l := range slices.Compact(r.lines) {
		if l.moreSurplus {
			next.addSurplus(l)
		}
		ls.advance(l, now)
	}
	return next
}

// Outliving returns a context for a Take that may reserve turns: it ends a while after ctx. If ctx
// ended during the call, the store would give the turns back by itself, and no call would get them. So
// a call that is about to leave waits for the answer, and then leaves its lines like all others.
func Outliving(ctx context.Context, s store.Store) (longer context.Context, end func()) {
	if ctx.Done() == nil || inside.AnswersAtOnce(s) {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(background.SettleTimeout, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// Reserves reports whether one of the charges may reserve a turn.
func Reserves(charges []store.Charge) bool {
	for i := range charges {
		if reserves(&charges[i]) {
			return true
		}
	}
	return false
}
