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
	if i := c.lacksSlot(ctx); i >= 0 {
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

// lacksSlot returns the first charge that is denied for lack of a slot and may wait. It
// returns -1 if there is none, or if something else denies as well.
func (c *Call) lacksSlot(ctx context.Context) int {
	first := -1
	for i, l := range c.Limits {
		switch r := &c.Results[i]; {
		case r.OK || c.Charges[i].DryRun:
		case l.Wait.For != limit.ForSlot || r.RetryAfter == store.Never || c.patience(ctx, i) <= 0:
			return -1
		case first < 0:
			first = i
		}
	}
	return first
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

// waitForSlots stands in line for charge i's slots, and then in the lines of other slots that turn out
// to be missing, until the call is granted, denied by something else, or out of patience. answered says
// that the results hold the denial that brought it here.
func (c *Call) waitForSlots(ctx context.Context, i int, answered bool) error {
	for i >= 0 {
		next, ended, err := c.standInLine(ctx, i, &answered)
		switch {
		case err != nil:
			return err
		case ended != nil:
			return c.endWait(ctx, i, ended, answered)
		}
		i = next
	}
	return nil
}

// standInLine stands in line for charge i's slots, and asks the store whenever the call is the head,
// until an answer isn't a lack of these slots. next is what lacksSlot returns then. ended says why the
// wait has ended without such an answer, and err is the store's error. answered is set to whether the
// results are an answer by the limits that the call now has.
func (c *Call) standInLine(ctx context.Context, i int, answered *bool) (next int, ended, err error) {
	lines, start := &c.by.Lines.Slots, time.Now()
	if c.arrived.IsZero() {
		c.arrived = start
	}
	ch, l := &c.Charges[i], c.Limits[i]
	w := &slots.Waiter{
		Key: slots.KeyOf(ch.Limit, ch.Key), Cost: ch.Cost, Class: c.classOf(ctx), Arrived: c.arrived,
		Shares: l.Wait.Shares, Room: c.room(i), Until: start.Add(c.patience(ctx, i)),
	}
	defer func() { // also if the store or the application panics
		lines.Leave(w)
		waited := time.Since(start)
		c.Waited += waited
		c.lineWait(i).Waited += waited
	}()
	joined, queued := lines.Join(w)
	c.lineWait(i).Queued = queued
	if !joined {
		return -1, slots.ErrFull, nil
	}
	c.beginWait(i, 0)
	for {
		if ended := lines.Wait(ctx, w); ended != nil {
			return -1, ended, nil
		}
		if c.renew() {
			*answered = false
		}
		if ended := c.setMaxWaits(ctx); ended != nil {
			return -1, ended, nil
		}
		if err := c.claimAndTake(ctx); err != nil {
			return -1, nil, err
		}
		*answered = true
		if next := c.lacksSlot(ctx); next < 0 || c.Results[i].OK {
			return next, nil, nil
		}
	}
}

// endWait ends a wait for charge i's slots for which no slot has come in time, or whose caller has left.
func (c *Call) endWait(ctx context.Context, i int, ended error, answered bool) error {
	timedOut := errors.Is(ended, context.DeadlineExceeded)
	switch {
	case ended != slots.ErrFull && ended != slots.ErrLate && !timedOut:
		clear(c.Results)
		return &Canceled{ended}
	case answered: // the last denial is the limit's answer
		return nil
	case timedOut: // the store is still to be asked
		long, stop := context.WithTimeout(context.WithoutCancel(ctx), background.SettleTimeout)
		defer stop()
		ctx = long
	}
	return c.denyQueued(ctx, i)
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
