package stint

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// wait is decide for a call that may have to wait.
func (c *call) wait(ctx context.Context) error {
	c.Counting, c.Aging, c.Settle = c.needs&counts != 0, c.lim.aging, c.lim.settleTurns
	err := c.lim.family.lines.Take(ctx, &c.Call, (*caller)(c), c.Patient || c.needs&waits != 0, c.needs&slots != 0)
	if left := (*waiting.LeftError)(nil); errors.As(err, &left) {
		c.giveBack(ctx)
		return &canceledError{left.Err}
	}
	if err != nil {
		return c.goOn(ctx, err)
	}
	return nil
}

// caller is a call as the lines know it.
type caller call

// Terms implements waiting.Caller.
func (c *caller) Terms(i int) *waiting.Terms { return &c.entries[i].wait }

// Class implements waiting.Caller. It is asked for once, and only when something
// depends on it.
func (c *caller) Class(ctx context.Context) uint8 {
	if !c.classed {
		n, _ := ctx.Value(priorityKey{}).(int)
		if c.lim.priority != nil && c.r != nil {
			n = c.lim.priority(c.r)
		}
		c.class, c.classed = uint8(min(max(n, 0), waiting.Classes-1)), true
	}
	return c.class
}

// Holds implements waiting.Caller.
func (c *caller) Holds() { c.lim.family.hold(c.entries, c.Charges, c.class, 1) }

// Shares implements waiting.Caller: those of the limit as it now is.
func (c *caller) Shares(i int) func() *waiting.Shares {
	f, e := c.lim.family, c.entries[i]
	return func() *waiting.Shares {
		k := e.kind
		if r := f.now.Load().named().rules[e.limit.Name()]; r != nil {
			k = r.kind
		}
		if l, ok := k.(slotted); ok {
			return l.line().shares
		}
		return nil
	}
}

// Waits implements waiting.Caller.
func (c *caller) Waits(i int, d time.Duration) {
	if len(c.lim.observers) > 0 {
		c.lim.observe(Event{Kind: EventWaiting, Request: c.r, Decision: Decision{
			Limit: c.Charges[i].Limit.Name(), Queued: c.Seen[i].Queued, Delay: d,
		}})
	}
}

// Renew implements waiting.Caller: an Update that came after the call may have made
// more slots, or fewer, or another kind of limit, and there is one line for old and
// new. Who the call is, what it costs and what limits it has stay as they were when
// it came; what its limits say is taken from one generation, and shows in its fields
// and its decision.
func (by *caller) Renew(at int) (now int, others bool) {
	c := (*call)(by)
	g := c.lim.family.now.Load()
	if g == c.generation || c.generation == nil && g == c.lim.generation {
		return at, false
	}
	c.generation = g
	entries, charges, seen := slices.Clone(c.entries), slices.Clone(c.Charges), c.Seen
	c.entries, c.Charges, c.Results = c.entries[:0], c.Charges[:0], c.Results[:0]
	c.policy = ""
	c.needs = c.ofPaced()
	for i, e := range entries {
		c.add(g.successor(e), charges[i].Key, charges[i].Cost)
	}
	c.Counting = c.needs&counts != 0
	c.Store = c.lim.store
	if c.needs&local != 0 {
		c.decideLocally()
	}
	// Limits of this process stand last: one that has become one, or is one no
	// longer, has another place now.
	c.Seen = make([]waiting.Seen, len(seen))
	for i, e := range entries {
		j := slices.IndexFunc(c.Charges, func(ch store.Charge) bool {
			return ch.Key == charges[i].Key && ch.Limit.Name() == e.limit.Name()
		})
		c.Seen[j] = seen[i]
		if i == at {
			now = j
		}
	}
	return now, true
}

// settleTurns gives back what is left in the lines.
func (v *version) settleTurns(ctx context.Context, charges []store.Charge) []store.Result {
	results, err := v.settle(ctx, v.store, charges)
	if err != nil {
		v.observe(Event{Kind: EventSettleFailed, Err: err})
	}
	return results
}

// permitWait is what a permit knows of having waited; nil where it hasn't.
type permitWait struct {
	waited time.Duration
	lines  []waiting.Seen // of each charge, or none
}

// decided is what the call's results and its waiting amount to.
func (c *call) decided(d *Decision, statuses []LimitStatus) {
	d.decide(c.entries, c.Charges, c.Results, statuses)
	d.add(c.Waited, c.Seen, statuses)
}

// add adds to a decision how its request has waited. seen are those of the
// limits of statuses, or none.
func (d *Decision) add(waited time.Duration, seen []waiting.Seen, statuses []LimitStatus) {
	d.Delay = max(d.Delay, waited)
	for i := range seen {
		statuses[i].Delay = max(statuses[i].Delay, seen[i].Waited)
		d.Queued = max(d.Queued, seen[i].Queued)
	}
}
