package decide

import (
	"context"
	"math"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/turns"
	"github.com/stint-go/stint/store"
)

// wait has the charges decided, for a call that may have to wait, or that takes slots for which others
// may wait. The error is a *Canceled or the store's.
func (c *Call) wait(ctx context.Context) error {
	defer c.leaveTurns(ctx) // unless its turn has come: also if a store or the application panics
	waits := c.Patient || c.Needs&limit.Waits != 0
	for {
		if waits {
			if err := c.setMaxWaits(ctx); err != nil {
				return &Canceled{err}
			}
		}
		if err := c.takeOrWaitForSlots(ctx); err != nil {
			return err
		}
		after, retry := c.retryAfter(ctx)
		if !retry {
			break
		}
		if err := c.waitToRetry(ctx, after); err != nil {
			return err
		}
	}
	hasTurn := c.waiter != nil || c.delay() > 0 // one that another call has left, or one in the future
	switch {
	case !waits:
	case !c.owns:
		c.recordTurnsQueued()
	case hasTurn:
		return c.waitForTurns(ctx)
	case ctx.Err() != nil: // the caller has left while the store was asked
		return &Canceled{ctx.Err()}
	}
	return nil
}

// setMaxWaits sets how long the store may have each charge wait. A denial is final if the call doesn't ask
// again, and its context doesn't end the wait before the limits do.
func (c *Call) setMaxWaits(ctx context.Context) error {
	left, err := timeLeft(ctx)
	if err != nil {
		return err
	}
	final := !c.Patient
	for i, l := range c.Limits {
		longest := c.longestWait(&l.Wait)
		c.Charges[i].MaxWait = min(longest, left)
		final = final && longest <= left
	}
	if c.Needs&limit.Counts != 0 {
		c.setFinal(final)
	}
	return nil
}

// longestWait returns how long the store may have a charge wait whose context doesn't end.
func (c *Call) longestWait(w *limit.Wait) time.Duration {
	switch {
	case w.For != limit.ForTurn: // for slots, it waits in this process: see waitForSlots
		return 0
	case c.Patient, w.MaxWait == 0 && w.Queues:
		return store.Never
	}
	return w.MaxWait
}

// timeLeft returns how long a context lasts: store.Never if it has no deadline.
func timeLeft(ctx context.Context) (time.Duration, error) {
	t, ok := ctx.Deadline()
	if !ok {
		return store.Never, nil
	}
	left := time.Until(t)
	if left <= 0 {
		return 0, context.DeadlineExceeded
	}
	return left, nil
}

// claimAndTake claims the turns that other calls have left, and asks the store for the rest. It counts
// the slots that the call is granted.
func (c *Call) claimAndTake(ctx context.Context) error {
	c.waiter = c.by.Lines.Turns.Claim(c.Charges)
	if turns.Reserves(c.Charges) {
		var end func()
		ctx, end = turns.Outliving(ctx, c.store())
		defer end()
	}
	err := c.take(ctx)
	if c.waiter.Restore(c.Charges); !c.owns {
		c.leaveTurns(ctx)
		return err
	}
	for i, l := range c.Limits {
		l.HoldHere(&c.by.Lines.Slots, c.Charges[i].Key, c.Charges[i].Cost, c.Class)
	}
	return nil
}

// leaveTurns leaves the lines of turns.
func (c *Call) leaveTurns(ctx context.Context) {
	if w := c.waiter; w != nil {
		c.waiter = nil
		c.by.Lines.Turns.Leave(context.WithoutCancel(ctx), w)
	}
}

// waitForTurns waits until the turns that the call was granted have come.
func (c *Call) waitForTurns(ctx context.Context) error {
	start := time.Now()
	c.waiter = c.by.Lines.Turns.Join(c.waiter, c.Charges, c.Results, c.by.RefundTurns)
	i := c.slowest()
	c.lineWait(i).Queued = c.waiter.Queued(i)
	c.beginWait(i, c.Results[i].Delay)
	err := c.waiter.Wait(ctx)
	waited := time.Since(start)
	c.Waited += waited
	for i := range c.Results { // they were relative to the instant of the decision
		c.Results[i].ResetAfter = max(0, c.Results[i].ResetAfter-waited)
	}
	if err != nil {
		return &Canceled{err}
	}
	for i := range c.Results { // others may have left, so that the turn has come sooner
		c.Results[i].Delay = min(c.Results[i].Delay, waited)
		if r := c.waiter.Receipt(i); r.Cost > 0 {
			c.Results[i].Receipt = r
		}
	}
	c.waiter = nil
	return nil
}

// retryAfter reports whether a denied call asks the store again, and after how long. A patient call
// does if the store couldn't reserve a turn as far ahead as the call would wait. It doesn't if a queue
// is full, or if its turn would come after its deadline.
func (c *Call) retryAfter(ctx context.Context) (after time.Duration, retry bool) {
	if !c.Patient || c.owns {
		return 0, false
	}
	left, err := timeLeft(ctx)
	if err != nil {
		return 0, false
	}
	for i := range c.Charges {
		ch, r, w := &c.Charges[i], &c.Results[i], &c.Limits[i].Wait
		if r.OK || ch.DryRun {
			continue
		}
		if w.For == limit.ForSlot && c.patience(ctx, i) > 0 {
			continue // it stands in line once the others let it
		}
		reach := min(ch.MaxWait, time.Duration(inside.Terms(ch.Limit).Patience)*time.Microsecond)
		if w.For != limit.ForTurn || w.Queues || r.RetryAfter >= left-reach {
			return 0, false
		}
		after = max(after, r.RetryAfter)
	}
	return after, after > 0
}

// waitToRetry waits before the store is asked again.
func (c *Call) waitToRetry(ctx context.Context, d time.Duration) error {
	i := c.slowest()
	c.lineWait(i).Queued = 1
	c.beginWait(i, d)
	start := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	c.Waited += time.Since(start)
	if err := ctx.Err(); err != nil {
		return &Canceled{err}
	}
	return nil
}

// beginWait notifies the call's owner that the call has begun to wait. A call that waits for several
// things in turn begins once.
func (c *Call) beginWait(i int, d time.Duration) {
	if !c.BeganWaiting {
		c.BeganWaiting = true
		c.waits(i, c.LineWaits[i].Queued, d)
	}
}

// lineWait returns the element of LineWaits for charge i.
func (c *Call) lineWait(i int) *LineWait {
	if len(c.LineWaits) == 0 {
		c.LineWaits = make([]LineWait, len(c.Charges))
	}
	return &c.LineWaits[i]
}

// recordTurnsQueued records, for a denied call, how many wait for the turn that it doesn't get.
func (c *Call) recordTurnsQueued() {
	for i := range c.Charges {
		if c.Results[i].OK {
			continue
		}
		if n := c.by.Lines.Turns.Queued(&c.Charges[i]); n > 0 {
			c.lineWait(i).Queued = n
			return
		}
	}
}

// delay returns how long the call waits for its turns: the largest delay of the enforced limits.
func (c *Call) delay() (d time.Duration) {
	for i := range c.Results {
		if c.Results[i].OK && !c.Charges[i].DryRun {
			d = max(d, c.Results[i].Delay)
		}
	}
	return d
}

// slowest returns the charge whose limit makes the call wait longest.
func (c *Call) slowest() int {
	slowest, longest := -1, time.Duration(math.MinInt64)
	for i := range c.Results {
		if wait := max(c.Results[i].Delay, c.Results[i].RetryAfter); wait > longest && !c.Charges[i].DryRun {
			slowest, longest = i, wait
		}
	}
	return slowest
}
