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
	if err := c.take(ctx); err != nil {
		return err
	}
	c.hold()
	if i := c.full(ctx); i >= 0 {
		return c.waitSlot(ctx, i, true)
	}
	return nil
}

func (c *call) slotKey(i int) slotKey { return slotKey{c.charges[i].Limit.Name(), c.charges[i].Key} }

// patience is how long a charge may go on waiting for a slot.
func (c *call) patience(ctx context.Context, i int) time.Duration {
	wait := c.entries[i].maxWait
	if c.patient {
		wait = longWait
	}
	if wait == 0 || c.entries[i].queue == 0 {
		return 0
	}
	wait -= c.waited
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
	err := c.take(ctx)
	for j := range c.charges {
		c.charges[j].Cost = costs[j]
	}
	c.results[i].OK, c.results[i].Remaining = false, 0 // what is free is not theirs
	return err
}

// waitSlot stands in line for charge i's slots until the call is granted,
// refused by something else, or out of patience. asked says that results hold
// the refusal that brought it here.
func (c *call) waitSlot(ctx context.Context, i int, asked bool) error {
	s := &c.lim.family.slots
	start, before := time.Now(), c.waited
	until := start.Add(c.patience(ctx, i))
	var p *place
	var joined time.Time
	join := func() bool {
		joined = time.Now()
		p = &place{rank: c.rank(ctx, joined), cost: c.charges[i].Cost, shares: c.entries[i].shares}
		ok, n := s.join(c.slotKey(i), p, c.entries[i].queue)
		if !ok {
			p = nil
		}
		c.note(i, n)
		return ok
	}
	leave := func() {
		if p != nil {
			s.leave(p)
			c.lines[i].waited += time.Since(joined)
		}
		c.waited = before + time.Since(start)
	}
	if !join() {
		if asked {
			return nil
		}
		return c.refuse(ctx, i)
	}
	defer func() { leave() }()
	c.begin(i, 0)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		select {
		case <-p.woken:
		case <-timer.C:
		case <-ctx.Done():
			return c.timedOut(ctx, i, ctx.Err(), asked)
		}
		if !s.first(p) {
			if time.Now().Before(until) {
				timer.Reset(time.Until(until))
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
		c.hold() // before leaving: it bears on who is next
		c.waited = before + time.Since(start)
		j := c.full(ctx)
		if j < 0 {
			return nil
		}
		if j != i { // free here, full there: the next here may go
			leave()
			if i = j; !join() {
				return nil
			}
		}
		timer.Reset(min(s.poll(), time.Until(until)))
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
