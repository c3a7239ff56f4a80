package stint

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// slotWait bounds the wait for a slot where WithQueue is given and WithMaxWait
// isn't: an HTTP/1.1 server doesn't notice that a client has left while the
// request's body is unread, so a wait without a bound would never end.
const slotWait = 5 * time.Second

// Concurrency limits a key to n requests in flight at once. A request that
// costs c takes c slots. Its default name is "concurrency".
//
// A slot is given back when the handler returns, also by a panic. A handler
// that hands its connection on (a websocket) calls Permit.Detach.
func Concurrency(n int64, opts ...ConcurrencyOption) Limit {
	k := &concurrency{}
	k.of.slots = func(c *store.Charge) int64 { return c.Limit.Spec().Units }
	l := newLimit(k, store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}, opts)
	l.rule.lines = newLines
	return l
}

// concurrency is the kind of Concurrency.
type concurrency struct{ held }

// line is how requests wait for a limit's slots, beside what the limit says.
type line struct {
	room   *int64 // of WithQueue; nil without
	shares *waiting.Shares
	slots  func(*store.Charge) int64 // how many there are
}

// held is what kinds have in common whose requests take slots.
type held struct {
	charged
	of line
}

// slotted is a kind with slots.
type slotted interface{ line() *line }

func (h *held) line() *line { return &h.of }

func (h *held) enter(e *entry) {
	e.settle = nil // of the limiter: slots are released
	e.wait.Way, e.wait.Room, e.wait.Slots = waiting.ForSlot, h.of.room, h.of.slots
	switch {
	case e.wait.Closed():
		e.wait.MaxWait = 0
	case h.of.room != nil && e.wait.MaxWait == 0:
		e.wait.MaxWait = slotWait
	}
	h.charged.enter(e)
	e.needs |= releases
	if !e.dryRun {
		e.needs |= slots
	}
}

// counted: who waits for a slot in vain is not banned for it.
func (*held) counted(e *entry) bool { return e.wait.MaxWait == 0 }

func (*held) free(r *store.Result) bool { return r.Remaining > 0 }

func (*held) refusal(c *store.Charge) refusal {
	if c.Key == keytext.GlobalText {
		return reducedCapacity
	}
	return quotaExceeded
}

func (*held) unsettled() string { return "a concurrency limit: its slots are released by Done" }

// hold counts sign times the slots that a charge of cost takes as held by a class.
func (f *family) hold(e *entry, key string, cost int64, class uint8, sign int64) {
	if e.needs&slots != 0 && cost > 0 {
		f.process.lines().Hold(waiting.Key{Limit: e.limit.Name(), Key: key}, class, sign*cost)
	}
}

// wait is decide for a call that may have to wait.
func (c *call) wait(ctx context.Context) error {
	c.walked = true
	c.Counting, c.Aging, c.Settle = c.needs&counts != 0, c.lim.aging, c.lim.settler
	err := c.lim.family.process.lines().Take(ctx, &c.Call, (*caller)(c), c.Patient || c.needs&waits != 0, c.needs&slots != 0)
	if left, ok := err.(*waiting.LeftError); ok { // errors.As allocates
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
func (c *caller) Holds() { c.hold(1) }

// hold counts what the call has been granted as held, or no longer held.
func (c *caller) hold(sign int64) {
	for i := range c.Charges {
		c.lim.family.hold(c.entries[i], c.Charges[i].Key, c.Charges[i].Cost, c.class, sign)
	}
}

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
	if c.lim.of.told.Load() != nil {
		c.lim.observeOf(&Event{Kind: EventWaiting, Route: c.plan.route(), Request: c.r, Decision: Decision{
			Limit: c.Charges[i].Limit.Name(), Queued: c.Seen[i].Queued, Delay: d,
		}}, c.Charges)
	}
}

// Renew implements waiting.Caller: an Update that came after the call may have made
// more slots, or fewer, or another kind of limit, and there is one line for old and
// new. Who the call is, what it costs and what limits it has stay as they were when
// it came; what its limits say is taken from one generation, and shows in its fields
// and its decision.
func (c *caller) Renew(at int) (now int, others bool) {
	g := c.lim.family.now.Load()
	if g == c.generation || c.generation == nil && g == c.lim.generation {
		return at, false
	}
	c.generation = g
	entries, charges, seen := slices.Clone(c.entries), slices.Clone(c.Charges), c.Seen
	c.entries, c.Charges, c.Results = c.entries[:0], c.Charges[:0], c.Results[:0]
	c.policy = ""
	c.needs = (*call)(c).ofPaced()
	for i, e := range entries {
		(*call)(c).add(g.successor(e), charges[i].Key, charges[i].Cost)
	}
	c.Counting = c.needs&counts != 0
	c.Store = c.lim.store
	if c.needs&local != 0 {
		(*call)(c).decideLocally()
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
	results, took, err := v.settle(ctx, v.store, charges)
	if err != nil {
		v.unsettled(nil, charges, took, err)
	}
	return results
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

// defaultAging is how long a class is worth.
const defaultAging = time.Second

// WithPriority says which requests go first where some wait: class gives a
// class of 0 to 9, and higher ones are woken first. What is less counts as 0,
// what is more as 9. By default, and outside HTTP, a request has the class of
// its context (ContextWithPriority), and 0 where there is none. Within a class
// it is first come, first served.
//
// Nobody starves: a waiter rises by a class for each second it waits (see
// WithAging), so that it is never overtaken by one that comes more than nine
// seconds later, and class 2 goes before those of class 0 that came less than
// two seconds before it.
//
// Priorities are about waiting for the same: the slots of one concurrency limit
// for one key, and in this process, or the turns of a rate. Whoever waits for a
// turn, and is overtaken, gets the next one's, unless that is later than it may
// wait; then it is not overtaken. class is called once for a request that takes
// a slot or waits, and for no other.
func WithPriority(class func(*http.Request) int) Option {
	return limiterOption(func(c *config) {
		if class == nil {
			c.errs.bad("WithPriority(nil)", "", "write a function, or leave it out where all are equal")
			return
		}
		c.priority = class
	})
}

// WithAging says how long a waiter takes to rise by a class; by default a
// second. With a time longer than anybody waits, classes are strict.
func WithAging(d time.Duration) Option {
	return limiterOption(func(c *config) {
		if d <= 0 || d > waiting.Longest {
			c.errs.bad(fmt.Sprintf("WithAging(%v)", d), "", fmt.Sprintf("write a duration of up to %v", waiting.Longest))
			return
		}
		c.aging = d
	})
}

// WithShare promises a class of WithPriority a share of a concurrency limit's
// slots, in percent. Others may use what of it is idle; when the class needs it,
// it gets it back as slots are released, before all others and whatever their
// class: nobody is interrupted.
//
// Exactly: of the slots that this process holds for a key, counting the one to
// be given, a class that would hold no more than its percentage with it is woken
// before any that would, and so is a class that holds none. Among those, as
// among all others, WithPriority's order counts. A class may hold more than its
// share, in that order.
//
// In a fleet each process keeps to the share of what it holds itself, so the
// whole does, give or take the part of a slot that each rounds: where a process
// holds but a few slots for a key, a small share is one of them.
//
// Slots that were taken before an Update that adds a share count, and those who
// wait then have it.
//
// The shares of a limit's classes are 100 at the most. A class without a share
// gets what those leave; where they add up to 100 and are all used, nothing.
func WithShare(class, percent int) SlotOption {
	return slotOption{change: func(r *rule) {
		bad := func(problem, write string) {
			r.errs.bad(fmt.Sprintf("WithShare(%d, %d)", class, percent), problem, write)
		}
		switch {
		case class < 0 || class >= waiting.Classes:
			bad("", "write a class from 0 to 9")
			return
		case percent < 1 || percent > 100:
			bad("", "write a share of 1 to 100 percent")
			return
		}
		l := r.kind.(slotted).line()
		if l.shares == nil {
			l.shares = new(waiting.Shares)
		}
		sum := percent
		for _, p := range l.shares {
			sum += int(p)
		}
		switch {
		case l.shares[class] != 0:
			bad("the class has a share already", "leave one out")
		case sum > 100:
			bad(fmt.Sprintf("the shares add up to %d percent", sum), "write at most 100 in total")
		default:
			l.shares[class] = uint8(percent)
		}
	}}
}

type priorityKey struct{}

// ContextWithPriority returns a context whose requests, Takes and Waits are of
// a class from 0 to 9. A request's own WithPriority counts before it.
func ContextWithPriority(ctx context.Context, class int) context.Context {
	return context.WithValue(ctx, priorityKey{}, class)
}

// process has the limits of this process, once there are any: a server without them
// is not built with what decides them.
type process struct {
	freed func(limit, key string)
	once  sync.Once
	all   atomic.Pointer[adaptive.Process]
	waits atomic.Pointer[lines]
}

// lines are those of who waits in this process: waiting.Lines.
type lines interface {
	Take(ctx context.Context, c *waiting.Call, by waiting.Caller, waits, slots bool) error
	Peek(ctx context.Context, c *waiting.Call, by waiting.Caller) error
	Vacant() bool
	Hold(of waiting.Key, class uint8, n int64)
	Wake(of waiting.Key)
	WakeAll()
}

// newLines makes the lines of a process. Nothing but what lets somebody wait leads
// here, or every server would be built with it.
func newLines() lines { return new(waiting.Lines) }

// wake tells who waits for slots that one has been given back.
func (p *process) wake(limit, key string) {
	if ls := p.lines(); ls != nil {
		ls.Wake(waiting.Key{Limit: limit, Key: key})
	}
}

// open sees to it that there are lines.
func (p *process) open(begin func() lines) {
	if begin != nil && p.waits.Load() == nil {
		l := begin()
		p.waits.CompareAndSwap(nil, &l)
	}
}

// lines are those there are, nil before any.
func (p *process) lines() lines {
	if l := p.waits.Load(); l != nil {
		return *l
	}
	return nil
}

// made is what there is, made first if there is none.
func (p *process) made(begin func(freed func(limit, key string)) adaptive.Process) adaptive.Process {
	p.once.Do(func() {
		all := begin(p.freed)
		p.all.Store(&all)
	})
	return p.now()
}

// now is what there is; nil before any.
func (p *process) now() adaptive.Process {
	if all := p.all.Load(); all != nil {
		return *all
	}
	return nil
}
