package decide

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/slots"
	"github.com/stint-go/stint/store"
)

// takeOrWaitForSlots asks the store to decide the charges. A call that takes slots waits for them
// before or after that, if others wait for them, or if there are too few.
func (c *Call) takeOrWaitForSlots(ctx context.Context) error {
	if c.Needs&limit.Slots == 0 {
		return c.claimAndTake(ctx)
	}
	c.classOf(ctx) // slots are counted by class: read it before there is anything to lose
	if c.by.Lines.Slots.Waiting() {
		if i, queued := c.awaited(); queued > 0 {
			if c.patience(ctx, i) > 0 {
				return c.waitForSlots(ctx, i, false)
			}
			c.lineWait(i).Queued = queued
			return c.denyQueued(ctx, i)
		}
	}
	if err := c.claimAndTake(ctx); err != nil || c.owns {
		return err
	}
	if i, lacks := c.lacksSlot(ctx); lacks {
		return c.waitForSlots(ctx, i, true)
	}
	return nil
}

// awaited returns the first charge whose slots others wait for, and how many wait: a slot that is
// free now is theirs.
func (c *Call) awaited() (i int, queued int64) {
	for i, l := range c.Limits {
		ch := &c.Charges[i]
		if !l.TakesSlots(ch.Cost) {
			continue
		}
		if n := c.by.Lines.Slots.Queued(slots.KeyOf(ch.Limit, ch.Key)); n > 0 {
			l.Wait.Slots(ch) // makes the key follow this limit now, without asking it
			return i, n
		}
	}
	return 0, 0
}

// lacksSlot returns the first charge that is denied for lack of a slot and may wait. lacks is false if
// there is none, or if something else denies as well.
func (c *Call) lacksSlot(ctx context.Context) (first int, lacks bool) {
	for i, l := range c.Limits {
		switch r := &c.Results[i]; {
		case r.OK || c.Charges[i].DryRun:
		case l.Wait.For != limit.ForSlot || r.RetryAfter == store.Never || c.patience(ctx, i) <= 0:
			return 0, false
		case !lacks:
			first, lacks = i, true
		}
	}
	return first, lacks
}

// patience returns how long charge i may go on waiting for a slot: as long as its own limit allows,
// however long the call has stood in the lines of others. A patient call waits until its deadline.
func (c *Call) patience(ctx context.Context, i int) time.Duration {
	w := &c.Limits[i].Wait
	wait := w.MaxWait
	switch {
	case w.Closed():
		return 0
	case c.Patient:
		wait = store.Never
	case len(c.LineWaits) > 0:
		wait -= c.LineWaits[i].Waited
	}
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return wait
}

// room returns how many may stand in line for charge i's slots. By default it is as
// many as there are slots, so that a crowd finds a full line rather than an endless
// one. Patient callers are the application's own, and it knows how many there are.
func (c *Call) room(i int) int64 {
	w := &c.Limits[i].Wait
	switch {
	case w.Room != nil:
		return *w.Room
	case c.Patient:
		return math.MaxInt64
	}
	return w.Slots(&c.Charges[i])
}

// slotWait is a call's wait for slots, in one line after another.
type slotWait struct {
	charge   int   // for whose slots the call waits
	answered bool  // the results are the store's answer, by the limits that the call now has
	decided  bool  // the call is granted, or something other than a lack of slots denies it
	ended    error // why the wait has ended, if the call isn't decided
}

// waitForSlots waits for charge i's slots, and then for others that turn out to be missing, until the
// call is decided or out of patience. answered says that the results hold the denial that brought it
// here.
func (c *Call) waitForSlots(ctx context.Context, i int, answered bool) error {
	w := slotWait{charge: i, answered: answered}
	for !w.decided && w.ended == nil {
		if err := c.waitInLine(ctx, &w); err != nil {
			return err
		}
	}
	if w.decided {
		return nil
	}
	return c.endWait(ctx, &w)
}

// waitInLine waits in the line for the slots of w.charge, and asks the store whenever the call is the head.
// It returns when the call is decided, when it lacks the slots of another charge instead, which is
// w.charge then, or when the wait has ended. The error is the store's.
func (c *Call) waitInLine(ctx context.Context, w *slotWait) error {
	i := w.charge
	lines, start := &c.by.Lines.Slots, time.Now()
	if c.arrived.IsZero() {
		c.arrived = start
	}
	ch, l := &c.Charges[i], c.Limits[i]
	waiter := &slots.Waiter{
		Key: slots.KeyOf(ch.Limit, ch.Key), Cost: ch.Cost, Class: c.classOf(ctx), Arrived: c.arrived,
		Shares: l.Wait.Shares, Room: c.room(i), Until: start.Add(c.patience(ctx, i)),
	}
	defer func() { // also if the store or the application panics
		lines.Leave(waiter)
		waited := time.Since(start)
		c.Waited += waited
		c.lineWait(i).Waited += waited
	}()
	joined, queued := lines.Join(waiter)
	c.lineWait(i).Queued = queued
	if !joined {
		w.ended = slots.ErrFull
		return nil
	}
	c.beginWait(i, 0)
	for {
		if w.ended = lines.Wait(ctx, waiter); w.ended != nil {
			return nil
		}
		if c.renew() {
			w.answered = false
		}
		if w.ended = c.setMaxWaits(ctx); w.ended != nil {
			return nil
		}
		if err := c.claimAndTake(ctx); err != nil {
			return err
		}
		w.answered = true
		switch lacking, lacks := c.lacksSlot(ctx); {
		case !lacks:
			w.decided = true
			return nil
		case c.Results[i].OK:
			w.charge = lacking
			return nil
		}
	}
}

// endWait ends a wait in which no slot has come in time, or whose caller has left.
func (c *Call) endWait(ctx context.Context, w *slotWait) error {
	timedOut := errors.Is(w.ended, context.DeadlineExceeded)
	switch {
	case w.ended != slots.ErrFull && w.ended != slots.ErrLate && !timedOut:
		clear(c.Results)
		return &Canceled{w.ended}
	case w.answered: // the last denial is the limit's answer
		return nil
	case timedOut: // the store is still to be asked
		long, stop := context.WithTimeout(context.WithoutCancel(ctx), background.SettleTimeout)
		defer stop()
		ctx = long
	}
	return c.denyQueued(ctx, w.charge)
}

// renew replaces the limits of the call by those that an Update has put in their places. The call keeps
// its keys, its costs, its rank and its own patience, but stands in line for the slots and shares that
// there are now. A call that waits for a turn isn't renewed: its turn was computed by the old numbers.
func (c *Call) renew() (renewed bool) {
	for i, l := range c.Limits {
		if now := c.by.Current(l); now != l {
			c.Limits[i], c.Charges[i].Limit = now, now.StoreLimit
			c.Needs |= now.Needs
			renewed = true
		}
	}
	c.Renewed = c.Renewed || renewed
	return renewed
}

// denyQueued denies a call that must not overtake the calls that wait for charge i's slots. It asks the
// store about the state of all limits, and charges nothing.
func (c *Call) denyQueued(ctx context.Context, i int) error {
	costs := make([]int64, len(c.Charges))
	for j := range c.Charges {
		costs[j], c.Charges[j].Cost = c.Charges[j].Cost, 0
	}
	err := c.ask(ctx)
	for j := range c.Charges {
		c.Charges[j].Cost = costs[j]
	}
	c.Results[i].OK, c.Results[i].Remaining = false, 0 // what is free belongs to others
	return err
}
