package stint

import (
	"context"
	"errors"
	"time"
)

// slotWait bounds the wait for a slot where WithQueue is given and WithMaxWait
// isn't: an HTTP/1.1 server doesn't notice that a client has left while the
// request's body is unread, so a wait without a bound would never end.
const slotWait = 5 * time.Second

// takeSlots asks the store, in turn where the call waits for slots.
func (c *call) takeSlots(ctx context.Context) error {
	s := &c.lim.family.slots
	if c.shared {
		c.class(ctx)
	}
	if s.waiting.Load() > 0 {
		// Somebody waits: a slot that is free now is theirs.
		for i, e := range c.entries {
			if !e.slots || e.dryRun {
				continue
			}
			if n := s.queued(c.slotKey(i)); n > 0 {
				if c.patience(ctx, i) <= 0 {
					c.note(i, n)
					return c.refuse(ctx, i)
				}
				return c.waitSlot(ctx, i, false)
			}
		}
	}
	if err := c.take(ctx); err != nil || c.granted {
		return err
	}
	if i := c.full(ctx); i >= 0 {
		return c.waitSlot(ctx, i, true)
	}
	return nil
}

func (c *call) slotKey(i int) slotKey { return slotKey{c.charges[i].Limit.Name(), c.charges[i].Key} }

// patience is how long a charge may go on waiting for a slot: as long as its own
// limit says, however long the call has stood in the lines of others. Wait has
// one patience for all of them.
func (c *call) patience(ctx context.Context, i int) time.Duration {
	wait := c.entries[i].maxWait
	switch {
	case c.entries[i].queue == 0:
		return 0
	case c.patient:
		wait = longWait - c.waited
	case len(c.lines) > 0:
		wait -= c.lines[i].waited
	}
	if t, ok := ctx.Deadline(); ok {
		if left := time.Until(t); left < wait || c.patient {
			wait = left
		}
	}
	return wait
}

// full returns the first charge that is refused for want of a slot and may
// wait, or -1 if there is none or something else refuses as well.
func (c *call) full(ctx context.Context) int {
	first := -1
	for i, e := range c.entries {
		switch r := &c.results[i]; {
		case r.OK || e.dryRun:
		case !e.slots || r.RetryAfter == Never || c.patience(ctx, i) <= 0:
			return -1
		case first < 0:
			first = i
		}
	}
	return first
}

// refuse answers a call that may not overtake who waits for charge i's slots.
func (c *call) refuse(ctx context.Context, i int) error {
	costs := make([]int64, len(c.charges))
	for j := range c.charges {
		costs[j], c.charges[j].Cost = c.charges[j].Cost, 0
	}
	err := c.ask(ctx)
	for j := range c.charges {
		c.charges[j].Cost = costs[j]
	}
	c.results[i].OK, c.results[i].Remaining = false, 0 // what is free is not theirs
	return err
}

// stand is a call's place in the line of one of its charges.
type stand struct {
	place
	charge int
	until  time.Time // when the patience for this line ends
	booked time.Time // up to when the wait is counted
}

// join has the call stand in line for charge i's slots, and reports whether there
// is room.
func (c *call) join(ctx context.Context, i int) bool {
	now := time.Now()
	s := &stand{charge: i, until: now.Add(c.patience(ctx, i)), booked: now}
	s.rank, s.cost, s.shares = c.rank(ctx, now), c.charges[i].Cost, c.entries[i].shares
	joined, n := c.lim.family.slots.join(c.slotKey(i), &s.place, c.entries[i].queue)
	if joined {
		c.stand = s
	}
	c.note(i, n)
	return joined
}

// leave ends the call's stand, if it has one.
func (c *call) leave() {
	if c.stand != nil {
		c.book()
		c.lim.family.slots.leave(&c.stand.place)
		c.stand = nil
	}
}

// book counts how long the call has stood in its line.
func (c *call) book() {
	now := time.Now()
	d := now.Sub(c.stand.booked)
	c.stand.booked = now
	c.waited += d
	c.lines[c.stand.charge].waited += d
}

// waitSlot stands in line for charge i's slots until the call is granted,
// refused by something else, or out of patience. asked says that results hold
// the refusal that brought it here.
func (c *call) waitSlot(ctx context.Context, i int, asked bool) error {
	if !c.join(ctx, i) {
		if asked {
			return nil
		}
		return c.refuse(ctx, i)
	}
	defer c.leave()
	c.begin(i, 0)
	s := &c.lim.family.slots
	timer := time.NewTimer(time.Until(c.stand.until))
	defer timer.Stop()
	for {
		select {
		case <-c.stand.woken:
		case <-timer.C:
		case <-ctx.Done():
			return c.timedOut(ctx, i, ctx.Err(), asked)
		}
		if !s.first(&c.stand.place) {
			if left := time.Until(c.stand.until); left > 0 {
				timer.Reset(left)
				continue
			}
			if asked {
				return nil
			}
			return c.refuse(ctx, i)
		}
		// The head asks, also when its time is up: its poll was a while ago.
		if err := c.bound(ctx); err != nil {
			return c.timedOut(ctx, i, err, asked)
		}
		c.renew()
		if err := c.take(ctx); err != nil {
			return err
		}
		asked = true
		c.book()
		j := c.full(ctx)
		if j < 0 {
			return nil
		}
		if c.results[i].OK { // free here, full there: the next here may go
			c.leave()
			if i = j; !c.join(ctx, i) {
				return nil
			}
		}
		timer.Reset(min(s.poll(), time.Until(c.stand.until)))
	}
}

// timedOut ends a wait for charge i's slots whose context has ended with err. Where
// that is the deadline, no slot has come in time, which is the limit's answer.
func (c *call) timedOut(ctx context.Context, i int, err error, asked bool) error {
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		clear(c.results)
		return &canceledError{err}
	case asked:
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer stop()
	return c.refuse(ctx, i)
}

// renew has a call that waits for slots ask for them by the limits as they now
// are: an Update that came after the call may have made more slots, or fewer,
// and there is one line for old and new. Who the call is, what it costs and what
// limits it has stay as they were when it came; what its limits say is taken from
// one generation, and shows in its fields and its decision.
func (c *call) renew() {
	g := c.lim.family.now.Load()
	if g == c.generation {
		return
	}
	c.generation = g
	for i, e := range c.entries {
		c.charges[i].Limit = g.successor(e.limit)
	}
	c.policy = ""
}
