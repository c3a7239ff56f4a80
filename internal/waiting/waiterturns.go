package waiting

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/inside"
)

// ask asks the store once to decide the charges, less the turns that others have left.
func (w *Waiter) ask(ctx context.Context) error {
	w.visit = w.lines.Turns.Join(w.Charges)
	if w.reserves() {
		var end func()
		ctx, end = Outliving(ctx, w.Store)
		defer end()
	}
	err := w.askOnce(ctx)
	w.visit.Restore(w.Charges)
	if err != nil || !inside.Granted(w.Charges, w.Results) {
		w.leave(ctx)
	}
	return err
}

// reserves reports whether the call may reserve a turn.
func (w *Waiter) reserves() bool {
	for i := range w.Charges {
		if reserves(&w.Charges[i]) {
			return true
		}
	}
	return false
}

// leave leaves the lines of turns.
func (w *Waiter) leave(ctx context.Context) {
	if v := w.visit; v != nil {
		w.visit = nil
		v.Leave(context.WithoutCancel(ctx))
	}
}

// again reports whether a denied call asks the store again, and after how long. A patient call
// does where the store couldn't reserve as far as it would wait. It doesn't if a queue is full,
// or if its turn would come after its deadline.
func (w *Waiter) again(ctx context.Context) (after time.Duration, again bool) {
	if !w.Patient || w.Granted {
		return 0, false
	}
	left, err := Left(ctx)
	if err != nil {
		return 0, false
	}
	for i := range w.Charges {
		c, r := &w.Charges[i], &w.Results[i]
		if r.OK || c.DryRun {
			continue
		}
		if w.Terms[i].Way == ForSlot && w.patience(ctx, i) > 0 {
			continue // it stands in line once the others let it
		}
		reach := min(c.MaxWait, time.Duration(inside.Terms(c.Limit).Patience)*time.Microsecond)
		if w.Terms[i].Way != ForTurn || w.Terms[i].Queues || r.RetryAfter >= left-reach {
			return 0, false
		}
		after = max(after, r.RetryAfter)
	}
	return after, after > 0
}

// pause waits before the store is asked again.
func (w *Waiter) pause(ctx context.Context, d time.Duration) error {
	i := w.slowest()
	w.note(i, 1)
	w.begin(i, d)
	start := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	w.Waited += time.Since(start)
	if err := ctx.Err(); err != nil {
		return &LeftError{err}
	}
	return nil
}

// sleep waits for a granted call's turn.
func (w *Waiter) sleep(ctx context.Context) error {
	start := time.Now()
	w.visit = w.lines.Turns.Enter(w.visit, w.Charges, w.Results, w.Settle)
	slowest := w.slowest()
	w.note(slowest, w.visit.Queued(slowest))
	w.begin(slowest, w.Results[slowest].Delay)
	err := w.visit.Wait(ctx)
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
		if got := w.visit.Receipt(i); got.Cost > 0 {
			w.Results[i].Receipt = got
		}
	}
	w.visit = nil
	return nil
}

// slowest returns the charge whose limit makes the call wait longest.
func (w *Waiter) slowest() int {
	slowest := -1
	wait := func(i int) time.Duration { return max(w.Results[i].Delay, w.Results[i].RetryAfter) }
	for i := range w.Results {
		if !w.Charges[i].DryRun && (slowest < 0 || wait(i) > wait(slowest)) {
			slowest = i
		}
	}
	return slowest
}

// noteTurns records, for a denied call, how many wait for the turn that it doesn't
// get.
func (w *Waiter) noteTurns() {
	for i := range w.Charges {
		if c := &w.Charges[i]; !w.Results[i].OK && reserves(c) {
			if n := w.lines.Turns.Queued(c); n > 0 {
				w.note(i, n)
			}
			return
		}
	}
}
