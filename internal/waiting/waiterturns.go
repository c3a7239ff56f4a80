package waiting

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

// reserves reports whether charge i may reserve a turn. Dry runs may not.
func (w *Waiter) reserves(i int) bool {
	ch := &w.Charges[i]
	return ch.Cost > 0 && !ch.DryRun && w.Terms[i].Way == ForTurn
}

// parts returns the charges that the call waits with if it waits for turns: those of
// its rates and quotas, in an order that is the same for all calls of their kind.
func (w *Waiter) parts() []Part {
	parts := make([]Part, 0, len(w.Charges))
	for i := range w.Charges {
		if !w.reserves(i) {
			continue
		}
		most := w.Charges[i].MaxWait
		if most == 0 && w.Terms[i].Queues {
			most = store.Never
		}
		parts = append(parts, Part{Charge: w.Charges[i], Most: most, Index: i})
		for k := len(parts) - 1; k > 0 && comesBefore(parts[k].Charge, parts[k-1].Charge); k-- {
			parts[k], parts[k-1] = parts[k-1], parts[k]
		}
	}
	return parts
}

// comesBefore reports whether a comes before b in the order of parts. There are few: the
// limits of a call.
func comesBefore(a, b store.Charge) bool {
	return cmp.Or(strings.Compare(a.Limit.Name(), b.Limit.Name()), strings.Compare(a.Key, b.Key)) < 0
}

// ask asks the store once to decide the charges.
func (w *Waiter) ask(ctx context.Context) error {
	if w.lines.Vacant() {
		return w.askVacant(ctx)
	}
	return w.askStore(ctx)
}

func (w *Waiter) askStore(ctx context.Context) error {
	if w.mayReserve() {
		var end func()
		ctx, end = outliving(ctx)
		defer end()
	}
	return w.askOnce(ctx)
}

// mayReserve reports whether the call may reserve a turn in a store that takes its
// time.
func (w *Waiter) mayReserve() bool {
	if !w.waits || store.AnswersAtOnce(w.Store) {
		return false
	}
	for i := range w.Charges {
		if w.reserves(i) && (w.Charges[i].MaxWait > 0 || w.Terms[i].Queues) {
			return true
		}
	}
	return false
}

// outliving returns a context for a Take that may reserve a turn: it ends a while after
// ctx. If the store were left alone with the answer, it would settle the turn back by
// itself, out of order, and reservations that this process gives back from its lines
// would be in front of turns that its lines don't have. So a caller that leaves waits for
// the answer and leaves the line like all others.
func outliving(ctx context.Context) (longer context.Context, end func()) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(background.GiveBack, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// flushWait is how long a call holds back while turns that others have left are on
// their way back to the store.
const flushWait = 100 * time.Millisecond

// askVacant is ask for when there are vacant turns. A call of
// their kind takes them over, and the store decides the rest. Any other call waits
// until they have gone back, or it would wait behind vacant turns.
func (w *Waiter) askVacant(ctx context.Context) error {
	parts := w.parts()
	claim := w.lines.Claim(parts)
	if claim == nil {
		held := w.lines.Flush(ctx, w.Charges, flushWait)
		w.Waited += held
		for i := range w.Charges {
			if ch := &w.Charges[i]; ch.MaxWait > 0 {
				ch.MaxWait = max(ch.MaxWait-held, time.Microsecond)
			}
		}
		return w.askStore(ctx)
	}
	for k := range parts {
		if _, claimed := claim.Wait(k); claimed {
			w.Charges[parts[k].Index].Cost = 0
		}
	}
	w.claim = claim
	err := w.askStore(ctx)
	for k := range parts {
		i := parts[k].Index
		w.Charges[i].Cost = parts[k].Charge.Cost
		if wait, claimed := claim.Wait(k); claimed {
			w.Results[i].Delay = wait
		}
	}
	if err != nil || !store.Granted(w.Charges, w.Results) {
		w.drop(ctx)
	}
	return err
}

// sleep waits for a granted call's turn.
func (w *Waiter) sleep(ctx context.Context) error {
	start := time.Now()
	rank := w.rank(ctx, start) // it may panic: nothing belongs to the line yet
	parts := w.parts()
	slowest := w.slowest()
	for k := range parts { // what has been reserved belongs to the line from here on
		r := &w.Results[parts[k].Index]
		parts[k].Charge.Receipt, parts[k].Wait = r.Receipt, r.Delay
		r.Receipt = store.Receipt{}
	}
	turn, queued, d := w.lines.Join(ctx, parts, w.claim, rank, w.latest(start), w.Settle)
	w.claim = nil
	defer turn.Leave(ctx) // also if the caller panics
	w.note(slowest, int64(queued))
	w.begin(slowest, d)
	err := turn.Wait(ctx)
	waited := time.Since(start)
	w.Waited += waited
	for i := range w.Results { // they were relative to the instant of the decision
		w.Results[i].ResetAfter = max(0, w.Results[i].ResetAfter-waited)
	}
	if err != nil {
		return &LeftError{err}
	}
	for i := range w.Results { // others may have left, so that the turn has come sooner
		w.Results[i].Delay = min(w.Results[i].Delay, waited)
	}
	for k := range parts {
		w.Results[parts[k].Index].Receipt = turn.Receipt(k)
	}
	return nil
}

// latest returns the latest turn that the call may wait for, from what the store was
// told for each limit. A queue without a MaxWait bounds the wait by its length.
func (w *Waiter) latest(start time.Time) (t time.Time) {
	for i := range w.Charges {
		if ch := &w.Charges[i]; ch.MaxWait > 0 && !ch.DryRun {
			if u := start.Add(ch.MaxWait); t.IsZero() || u.Before(t) {
				t = u
			}
		}
	}
	return t
}

// slowest returns the charge whose limit makes the call wait longest.
func (w *Waiter) slowest() int {
	slowest := -1
	for i := range w.Results {
		if !w.Charges[i].DryRun && (slowest < 0 || w.Results[i].Delay > w.Results[slowest].Delay) {
			slowest = i
		}
	}
	return slowest
}

// noteTurns records, for a denied call, how many wait for the turn that it doesn't
// get.
func (w *Waiter) noteTurns() {
	if !w.lines.Turns.Waiting() {
		return
	}
	for i := range w.Charges {
		t := &w.Terms[i]
		if w.Results[i].OK || w.Charges[i].DryRun || t.Way == ForSlot || t.MaxWait == 0 && !t.Queues && !w.Patient {
			continue
		}
		if n := w.lines.Turns.Queued(w.parts()); n > 0 {
			w.note(i, int64(n))
		}
		return
	}
}
