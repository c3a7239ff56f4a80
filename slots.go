package stint

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// slotWait bounds the wait for a slot where WithQueue is given and WithMaxWait
// isn't: an HTTP/1.1 server doesn't notice that a client has left while the
// request's body is unread, so a wait without a bound would never end.
const slotWait = 5 * time.Second

// takeSlots asks the store, in turn where the call waits for slots.
func (c *call) takeSlots(ctx context.Context) error {
	s := &c.lim.family.slots
	if c.slotted {
		c.class(ctx) // who holds slots is counted by class
	}
	if s.waiting.Load() > 0 {
		if i, n := c.behind(); n > 0 {
			if c.patience(ctx, i) > 0 {
				return c.waitSlot(ctx, i, false)
			}
			c.note(i, n)
			return c.refuse(ctx, i)
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

// behind is the first charge whose slots others wait for, and how many do: a slot
// that is free now is theirs. A charge that takes none is behind nobody.
func (c *call) behind() (i int, waiting int64) {
	s := &c.lim.family.slots
	for i, e := range c.entries {
		if !e.slots || e.dryRun || c.charges[i].Cost == 0 {
			continue
		}
		n := s.queued(c.slotKey(i))
		if n == 0 {
			continue
		}
		if e.adaptive != nil {
			if _, newer := e.adaptive.meet(c.charges[i].Key); newer {
				s.wake(c.slotKey(i))
			}
		}
		return i, n
	}
	return 0, 0
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

// room is how many may stand in line for charge i's slots. By default it is as many
// as there are slots, so that a crowd finds a full line and not an endless one;
// Wait's callers are the application's own, and it knows how many there are.
func (c *call) room(i int) int64 {
	e, ch := c.entries[i], &c.charges[i]
	switch {
	case e.queue >= 0:
		return e.queue
	case c.patient:
		return math.MaxInt64
	case e.adaptive != nil:
		limit, _ := e.adaptive.meet(ch.Key)
		return limit
	}
	return ch.Limit.Spec().Units
}

// join has the call stand in line for charge i's slots, and reports whether there
// is room.
func (c *call) join(ctx context.Context, i int) bool {
	now := time.Now()
	s := &stand{charge: i, until: now.Add(c.patience(ctx, i)), booked: now}
	s.rank, s.cost = c.rank(ctx, now), c.charges[i].Cost
	f, e := c.lim.family, c.entries[i]
	s.shares = func() *shares { return f.shares(e) }
	joined, n := f.slots.join(c.slotKey(i), &s.place, c.room(i))
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
		}
		if err := ctx.Err(); err != nil { // who has left doesn't ask, also if just woken
			return c.timedOut(ctx, i, err, asked)
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
		if c.renew() {
			i, asked = c.stand.charge, false
		}
		if err := c.bound(ctx); err != nil {
			return c.timedOut(ctx, i, err, asked)
		}
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

// renew has a call that waits for slots ask by the limits as they now are: an
// Update that came after the call may have made more slots, or fewer, or another
// kind of limit, and there is one line for old and new. Who the call is, what it
// costs and what limits it has stay as they were when it came; what its limits say
// is taken from one generation, and shows in its fields and its decision. It
// reports whether there are others: there is no answer to go by then.
func (c *call) renew() bool {
	g := c.lim.family.now.Load()
	if g == c.generation {
		return false
	}
	c.generation = g
	entries, charges, lines := slices.Clone(c.entries), slices.Clone(c.charges), c.lines
	place := entries[c.stand.charge]
	c.entries, c.charges, c.results, c.local = c.entries[:0], c.charges[:0], c.results[:0], c.local[:0]
	c.slotted, c.bans, c.policy, c.lines = false, false, "", nil
	for i, e := range entries {
		c.add(g.successor(e), charges[i].Key, charges[i].Cost)
	}
	// Limits of this process stand last: one that has become one, or is one no
	// longer, has another place now.
	c.lines = make([]lineStatus, len(lines))
	for i, e := range entries {
		at := slices.IndexFunc(c.charges, func(ch store.Charge) bool {
			return ch.Key == charges[i].Key && ch.Limit.Name() == e.limit.Name()
		})
		c.lines[at] = lines[i]
		if e == place {
			c.stand.charge = at
		}
	}
	return true
}
