package stint

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// turnParts are the charges that a call waits with, where it waits for turns:
// those of its rates and quotas, in an order that is the same for all of their
// kind. Dry runs take no part, slots and bans reserve nothing.
func (c *call) turnParts() []waiting.Part {
	parts := make([]waiting.Part, 0, len(c.charges))
	for i, e := range c.entries {
		ch := &c.charges[i]
		if !reserves(e, ch) {
			continue
		}
		most := ch.MaxWait
		if most == 0 && e.needs&queues != 0 {
			most = Never
		}
		parts = append(parts, waiting.Part{Charge: *ch, Most: most, Index: i})
		for k := len(parts) - 1; k > 0 && before(parts[k].Charge, parts[k-1].Charge); k-- {
			parts[k], parts[k-1] = parts[k-1], parts[k]
		}
	}
	return parts
}

// reserves reports whether a charge may reserve a turn: slots and bans reserve
// nothing.
func reserves(e *entry, ch *store.Charge) bool {
	return ch.Cost > 0 && !ch.DryRun && e.needs&(slots|counts) == 0
}

// before is the order of parts, which are few: a call's limits.
func before(a, b store.Charge) bool {
	return cmp.Or(strings.Compare(a.Limit.Name(), b.Limit.Name()), strings.Compare(a.Key, b.Key)) < 0
}

// reserves reports whether the call may reserve a turn in a store that takes its
// time.
func (c *call) reserves() bool {
	if !c.mayWait() || store.AnswersAtOnce(c.store) {
		return false
	}
	for i, e := range c.entries {
		if ch := &c.charges[i]; reserves(e, ch) && (ch.MaxWait > 0 || e.needs&queues != 0) {
			return true
		}
	}
	return false
}

// outliving is a context for a Take that may reserve a turn: it ends a while after
// ctx. Were the store left alone with the answer, it would settle the turn back by
// itself, out of order, and what this process gives back from its lines would stand
// before turns that nobody here knows of. So who leaves waits for the answer, and
// leaves the line like everybody else.
func outliving(ctx context.Context) (longer context.Context, end func()) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(settleTimeout, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// flushWait is for how long a call holds back while turns that others have left
// are on their way back to the store.
const flushWait = 100 * time.Millisecond

// askVacant is ask where somebody has left turns that nobody has taken yet. A
// call of their kind takes them over, and the store decides what else there is;
// any other waits until they have gone back, or it would wait behind nobody.
func (c *call) askVacant(ctx context.Context) error {
	turns := &c.lim.family.turns
	parts := c.turnParts()
	claim := turns.Claim(parts)
	if claim == nil {
		held := turns.Flush(ctx, c.charges, flushWait)
		c.waited += held
		for i := range c.charges {
			if ch := &c.charges[i]; ch.MaxWait > 0 {
				ch.MaxWait = max(ch.MaxWait-held, time.Microsecond)
			}
		}
		return c.askStore(ctx)
	}
	for k := range parts {
		if _, claimed := claim.Wait(k); claimed {
			c.charges[parts[k].Index].Cost = 0
		}
	}
	c.claim = claim
	err := c.askStore(ctx)
	for k := range parts {
		i := parts[k].Index
		c.charges[i].Cost = parts[k].Charge.Cost
		if wait, claimed := claim.Wait(k); claimed {
			c.results[i].Delay = wait
		}
	}
	if err != nil || !granted(c.charges, c.results) {
		c.dropClaim(ctx)
	}
	return err
}

// dropClaim leaves the turns that the call has taken over.
func (c *call) dropClaim(ctx context.Context) {
	c.lim.family.turns.Drop(ctx, c.claim)
	c.claim = nil
}

// sleep waits for a granted call's turn, or gives all of it back.
func (c *call) sleep(ctx context.Context) error {
	start := time.Now()
	parts := c.turnParts()
	slowest := c.slowest()
	for k := range parts { // what has been reserved is the line's from here on
		r := &c.results[parts[k].Index]
		parts[k].Charge.Receipt, parts[k].Wait = r.Receipt, r.Delay
		r.Receipt = store.Receipt{}
	}
	turn, queued, d := c.lim.family.turns.Join(ctx, parts, c.claim, c.rank(ctx, start), c.latest(start), c.lim.settleTurns)
	c.claim = nil
	defer turn.Leave(ctx) // also if an observer panics
	c.note(slowest, int64(queued))
	c.waiting(slowest, d)
	err := turn.Wait(ctx)
	waited := time.Since(start)
	c.waited += waited
	for i := range c.results { // they were of the decision's instant
		c.results[i].ResetAfter = max(0, c.results[i].ResetAfter-waited)
	}
	if err != nil {
		turn.Leave(ctx)
		c.giveBack(ctx)
		return &canceledError{err}
	}
	for i := range c.results { // others may have left, and it has come sooner
		c.results[i].Delay = min(c.results[i].Delay, waited)
	}
	for k := range parts {
		c.results[parts[k].Index].Receipt = turn.Receipt(k)
	}
	return nil
}

// settleTurns gives back what is left in the lines.
func (v *version) settleTurns(ctx context.Context, charges []store.Charge) []store.Result {
	results, err := v.settle(ctx, v.store, charges)
	if err != nil {
		v.observe(Event{Kind: EventSettleFailed, Err: err})
	}
	return results
}

// latest is the latest turn that the call may wait for: what the store was told
// of each limit. A queue without a WithMaxWait bounds the wait by its length.
func (c *call) latest(start time.Time) (t time.Time) {
	for i := range c.charges {
		if ch := &c.charges[i]; ch.MaxWait > 0 && !ch.DryRun {
			if u := start.Add(ch.MaxWait); t.IsZero() || u.Before(t) {
				t = u
			}
		}
	}
	return t
}

// slowest is the charge whose limit makes the call wait for the longest.
func (c *call) slowest() int {
	slowest := -1
	for i := range c.results {
		if !c.charges[i].DryRun && (slowest < 0 || c.results[i].Delay > c.results[slowest].Delay) {
			slowest = i
		}
	}
	return slowest
}

// noteTurns keeps for the decision of a refused call how many wait for the turn
// that it doesn't get.
func (c *call) noteTurns() {
	turns := &c.lim.family.turns
	if !turns.Waiting() {
		return
	}
	for i, e := range c.entries {
		if c.results[i].OK || e.dryRun || e.needs&slots != 0 || e.needs&waits == 0 && !c.patient {
			continue
		}
		if n := turns.Queued(c.turnParts()); n > 0 {
			c.note(i, int64(n))
		}
		return
	}
}

// lineStatus is what a call has seen of the line of one of its limits.
type lineStatus struct {
	queued int64 // with it, when it came
	waited time.Duration
}

// permitWait is what a permit knows of having waited; nil where it hasn't.
type permitWait struct {
	waited time.Duration
	lines  []lineStatus // of each charge, or none
}

// note keeps for the decision that n wait for the limit of charge i.
func (c *call) note(i int, n int64) {
	if len(c.lines) == 0 {
		c.lines = make([]lineStatus, len(c.charges))
	}
	c.lines[i].queued = n
}

// waiting tells the observers that the call has begun to wait: for d, where that
// is known. A call that waits for several things in turn begins once.
func (c *call) waiting(i int, d time.Duration) {
	if c.began {
		return
	}
	c.began = true
	if len(c.lim.observers) == 0 {
		return
	}
	c.lim.observe(Event{Kind: EventWaiting, Request: c.r, Decision: Decision{
		Limit: c.charges[i].Limit.Name(), Queued: c.lines[i].queued, Delay: d,
	}})
}

// decided is what the call's results and its waiting amount to.
func (c *call) decided(d *Decision, statuses []LimitStatus) {
	d.decide(c.entries, c.charges, c.results, statuses)
	d.add(c.waited, c.lines, statuses)
}

// add adds to a decision how its request has waited. lines are those of the
// limits of statuses, or none.
func (d *Decision) add(waited time.Duration, lines []lineStatus, statuses []LimitStatus) {
	d.Delay = max(d.Delay, waited)
	for i := range lines {
		statuses[i].Delay = max(statuses[i].Delay, lines[i].waited)
		d.Queued = max(d.Queued, lines[i].queued)
	}
}

// mayWait reports whether something may make the call wait.
func (c *call) mayWait() bool { return c.patient || c.needs&waits != 0 }

// longWait is how long Wait waits for a turn when its context has no deadline.
const longWait = time.Hour

// bound sets how long each charge may wait.
func (c *call) bound(ctx context.Context) error {
	left := Never
	if t, ok := ctx.Deadline(); ok {
		if left = time.Until(t); left <= 0 {
			return context.DeadlineExceeded
		}
	}
	for i, e := range c.entries {
		wait := e.maxWait
		if c.patient {
			wait = longWait
			if left < Never {
				wait = left
			}
		}
		c.charges[i].MaxWait = e.kind.patience(e, wait, left, c.needs&counts != 0)
	}
	return nil
}

// wait is decide for a call that may have to wait.
func (c *call) wait(ctx context.Context) error {
	waits := c.mayWait()
	if waits {
		if err := c.bound(ctx); err != nil {
			return &canceledError{err}
		}
	}
	take := (*call).take
	if c.needs&slots != 0 {
		take = (*call).takeSlots
	}
	if err := take(c, ctx); err != nil {
		return c.goOn(ctx, err)
	}
	switch {
	case !waits:
	case !c.granted:
		c.noteTurns()
	case c.claim != nil || longest(c.charges, c.results) > 0:
		return c.sleep(ctx)
	case ctx.Err() != nil: // it has left while the store was asked
		c.giveBack(ctx)
		return &canceledError{ctx.Err()}
	}
	return nil
}

// ask has the charges decided once.
func (c *call) ask(ctx context.Context) error {
	if c.lim.family.turns.Vacant() {
		return c.askVacant(ctx)
	}
	return c.askStore(ctx)
}

func (c *call) askStore(ctx context.Context) error {
	if c.reserves() {
		var end func()
		ctx, end = outliving(ctx)
		defer end()
	}
	return c.store.Take(ctx, c.charges, c.results)
}

// take asks, and notes what the call has then.
func (c *call) take(ctx context.Context) error {
	if err := c.ask(ctx); err != nil {
		return err
	}
	if c.granted = granted(c.charges, c.results); c.granted && c.needs&slots != 0 {
		c.lim.family.hold(c.entries, c.charges, c.ofClass, 1)
	}
	return nil
}
