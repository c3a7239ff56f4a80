package stint

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// WithObserver passes the limiter's events to f from the start, as Limiter.Observe
// does. If given several times, all functions are called in order. An Update without it
// keeps the existing ones; an Update with it replaces them. New rejects nil. f is
// called concurrently.
func WithObserver(f func(Event)) Option {
	return checkedOption(f != nil, "WithObserver(nil)", "write a function, or leave it out",
		func(c *config) { c.observers = append(c.observers, f) })
}

// Observe passes every event of the limiter, and of those derived from it by With, to f
// until stop is called. f runs on the request's own goroutine, so it should be quick,
// and it must be safe for concurrent use. No lock is held while it runs, so it may use
// the request's permit. Several observers are called in the order in which they were
// added, those of the limiter that was extended first.
//
// Observers belong to the limiter, not to one configuration: they stay across Updates.
// Some events come on a goroutine of the limiter (an EventSettleFailed of turns that
// others have left, EventStoreDegraded): a panic of f there is logged, as it is for an
// EventUpdated.
//
// Of a request whose decision had begun when f was added, f gets neither the decision nor
// the wait nor the end. So what f counts up and down, such as requests in flight, never
// falls below zero.
//
// Observe and stop are safe for concurrent use. An event that is under way may still
// reach f after stop.
func (l *Limiter) Observe(f func(Event)) (stop func()) {
	if f == nil {
		return func() {}
	}
	return l.add(observer{tell: f})
}

// BriefObserver observes a limiter at a third of what a function costs that gets
// everything as events, since no event is built for a plain request that passes. A
// request is plain if only rates, quotas and bans apply to it, none of which lets it wait
// or reports a denial in a dry run, and if nothing is settled by its response.
//
// Its methods are called as a function of Limiter.Observe is, but before those.
type BriefObserver interface {
	// Observe gets all events but EventAdmitted and EventEnded of plain requests.
	Observe(Event)
	// Passed is called instead of EventAdmitted for a plain request. route is the
	// Route of that event, charges are those asked of the limits, results are their
	// answers, and storeTook is how long the store took. The slices are valid until
	// Passed returns and must not be changed. Charges have keys, which may be addresses
	// or credentials.
	Passed(route string, charges []store.Charge, results []store.Result, storeTook time.Duration)
	// Ended is called instead of EventEnded for a plain request.
	Ended()
}

// ObserveBriefly passes what happens to the limiter, and to those derived from it by
// With, to o until stop is called. It is Observe for figures to which every request adds.
// ObserveBriefly and stop are safe for concurrent use.
func (l *Limiter) ObserveBriefly(o BriefObserver) (stop func()) {
	if o == nil {
		return func() {}
	}
	return l.add(observer{tell: o.Observe, brief: o})
}

// add adds an observer until stop is called.
func (l *Limiter) add(o observer) (stop func()) {
	l.inForce()
	l.family.mu.Lock()
	defer l.family.mu.Unlock()
	remove := l.observers.add(o)
	l.family.enlist()
	return func() {
		l.family.mu.Lock()
		defer l.family.mu.Unlock()
		remove()
		l.family.enlist()
	}
}

// observer is one observer.
type observer struct {
	number uint32 // from 1; an observer of a family has a higher one than those before
	tell   func(Event)
	brief  BriefObserver // gets plain requests in brief; nil if tell gets them too
}

var observersMade atomic.Uint32

// observers are the observers that a limiter itself has. They aren't safe for concurrent
// use.
type observers struct {
	given []observer
	added []*observer // each at an address of its own
}

// give replaces the observers that were given before. Those added stay.
func (o *observers) give(all []func(Event)) {
	o.given = nil
	for _, f := range all {
		o.given = append(o.given, observer{number: observersMade.Add(1), tell: f})
	}
}

// add adds the last observer. It returns the function that removes it.
func (o *observers) add(last observer) (remove func()) {
	last.number = observersMade.Add(1)
	at := &last
	o.added = append(o.added, at)
	return func() { o.added = slices.DeleteFunc(o.added, func(other *observer) bool { return other == at }) }
}

// after returns others, the observers that were given and those added, in this order.
func (o *observers) after(others []observer) []observer {
	all := slices.Concat(others, o.given)
	for _, added := range o.added {
		all = append(all, *added)
	}
	return all
}

// audience is all that observe a limiter. It is immutable and replaced as a whole; a nil
// audience has no observers.
type audience struct {
	all []observer
	// failing: the store has failed, so its next answers are checked.
	failing bool
}

// next returns a number above those of all observers in the audience. A request keeps it
// from its beginning: only observers with lower numbers get its events, so that each gets
// all of them or none.
func (a *audience) next() uint32 {
	next := uint32(1)
	if a != nil {
		for i := range a.all {
			next = max(next, a.all[i].number+1)
		}
	}
	return next
}

// notifyPassed notifies the brief observers below a number of a plain request that passes, and
// reports whether there are others.
func (a *audience) notifyPassed(below uint32, route string, charges []store.Charge, results []store.Result, storeTook time.Duration) (others bool) {
	for i := range a.all {
		if a.all[i].number >= below {
			continue
		}
		if b := a.all[i].brief; b != nil {
			b.Passed(route, charges, results, storeTook)
		} else {
			others = true
		}
	}
	return others
}

// notifyEnded notifies the brief observers below a number that a plain request has ended, and
// reports whether there are others.
func (a *audience) notifyEnded(below uint32) (others bool) {
	for i := range a.all {
		if a.all[i].number >= below {
			continue
		}
		if b := a.all[i].brief; b != nil {
			b.Ended()
		} else {
			others = true
		}
	}
	return others
}

// address replaces an audience with what change makes of it.
func address(to *atomic.Pointer[audience], change func(*audience)) {
	for {
		was := to.Load()
		next := new(audience)
		if was != nil {
			*next = *was
		}
		change(next)
		if len(next.all) == 0 && !next.failing {
			next = nil
		}
		if to.CompareAndSwap(was, next) {
			return
		}
	}
}

// enlist works out which observers and which log each limiter has. The caller holds f.mu.
func (f *family) enlist() {
	for _, m := range f.members {
		var log *logs.Log // the parent's
		var others []observer
		if m.parent != nil {
			log = m.parent.log.Load()
			if to := m.parent.audience.Load(); to != nil {
				others = to.all
			}
		}
		m.log.Store(logs.Derive(log, m.log.Load(), m.logger, m.logKeys))
		all := m.observers.after(others)
		address(&m.audience, func(a *audience) { a.all = all })
	}
}

// ReportPolicy reports to the limiter's observers and its log that the policy in a file is
// in force or, if err isn't nil, why it isn't and the one before stays: EventPolicy. It is
// for packages that read options from files and give them to Update, such as policy. A
// panic of an observer is logged and goes no further.
func (l *Limiter) ReportPolicy(file string, err error) {
	l.tell(Event{Kind: EventPolicy, Path: file, Err: err})
}

// tell passes an event that isn't a request's to the limiter's observers and its log.
func (l *Limiter) tell(e Event) {
	background.Do("telling observers", func() { l.now.Load().observe(&e) })
}

// observeStore makes the limiter report the loss of leases that it takes (see call.add), and the
// events of a store that it is given itself. The limiter keeps the observer alive and the
// store doesn't, but for leases that are held, so that a store that outlives the limiter
// doesn't retain it.
func (l *Limiter) observeStore(v *version, given store.Store) {
	if v.lent {
		l.storeObserver = &store.Observer{Tell: l.handleNotice}
	}
	if from, ok := given.(store.Observable); ok {
		from.Observe(l.storeObserver)
	}
}

func (l *Limiter) handleNotice(n store.Notice) {
	switch n.Kind {
	case store.Degraded, store.Restored:
		l.tell(Event{Kind: EventStoreDegraded, Err: n.Err})
	case store.LeaseLost:
		e := Event{Kind: EventLeaseLost}
		e.about([]store.Charge{{Key: n.Key, Limit: n.Limit}})
		l.tell(e)
	}
}

func (v *version) observe(e *Event) {
	e.Limiter = v.name
	if m := e.Kind.message(e.Err); m != 0 {
		v.write(m, *e)
	}
	to := v.limiter.audience.Load()
	// After the line: if recordAnswer comes in between, the store's next answer is
	// reported, too.
	if e.Kind == EventStoreFailed && (to == nil || !to.failing) {
		address(&v.limiter.audience, func(a *audience) { a.failing = true })
	}
	if to != nil {
		for i := range to.all {
			if o := &to.all[i]; (e.below == 0 || o.number < e.below) && (!e.plain || o.brief == nil) {
				o.tell(*e)
			}
		}
	}
}

// observeOf notifies the observers of an event that charges are part of.
func (v *version) observeOf(e *Event, charges []store.Charge) {
	e.about(charges)
	v.observe(e)
}

// observeSettleFailed notifies the observers of charges that could not be settled.
func (v *version) observeSettleFailed(p *plan, charges []store.Charge, took time.Duration, err error) {
	v.observeOf(&Event{Kind: EventSettleFailed, Route: p.route(), Err: err, StoreTook: took}, charges)
}

// observe notifies the observers of a decision, and logs it if the log shows such decisions.
func (c *call) observe(kind EventKind, err error) {
	to, plain := c.version.limiter.audience.Load(), false
	switch decided := kind == EventAdmitted || kind == EventDenied; {
	case to != nil:
		if to.failing && decided && slices.ContainsFunc(c.entries, func(e *entry) bool { return e.needs&local == 0 }) {
			c.version.recordAnswer()
		}
		if plain = kind == EventAdmitted && c.plain(); plain && !to.notifyPassed(c.below, c.plan.route(), c.Charges, c.Results, c.Took) {
			return
		}
	case decided && c.bans():
	case kind == EventDenied && c.version.limiter.log.Load().Shows(contextOf(c.r), logs.Denied):
	default:
		return
	}
	c.report(kind, err, plain)
}

// report sends the event of a decision. It isn't inlined, so that a request that is
// reported only in brief touches no stack for an event.
//
//go:noinline
func (c *call) report(kind EventKind, err error, plain bool) {
	c.tell(&Event{Kind: kind, Request: c.r, Err: err, Waited: c.Waited, EndsWait: c.Begun, plain: plain})
}

// plain reports whether a granted request has nothing to say that its charges and results
// don't, now or when it ends: see BriefObserver.
func (c *call) plain() bool {
	if c.needs&^counts != 0 || c.Begun {
		return false
	}
	for i := range c.Results {
		if !c.Results[i].OK {
			return false
		}
	}
	return true
}

// notifyEnd notifies brief observers that a granted request has ended, if they got it in brief,
// and reports whether there are no others to notify.
func (v *version) notifyEnd(told telling, below uint32) (all bool) {
	to := v.limiter.audience.Load()
	return to == nil || told == plainly && !to.notifyEnded(below)
}

// tell sends an event about the call, with its decision and keys.
func (c *call) tell(e *Event) {
	v := c.version
	c.setDecision(&e.Decision, make([]LimitStatus, len(c.Results)))
	e.Route, e.StoreTook, e.keys = c.plan.route(), c.Took, keysOf(c.Charges)
	e.below = c.below
	if e.Kind == EventCanceled { // no limit has denied it
		e.Decision.Allowed, e.Decision.RetryAfter = false, 0
		for i := range e.Decision.Limits {
			e.Decision.Limits[i].RetryAfter = 0
		}
	}
	v.observe(e)
	if e.Kind != EventAdmitted && e.Kind != EventDenied {
		return
	}
	e.Kind, e.EndsWait = EventBanned, false
	decided := e.Decision
	for i := range c.Results {
		if c.Results[i].Begun {
			e.Decision = decided.deniedBy(i)
			v.observe(e)
		}
	}
	e.Kind, e.Err = EventDryRunDenied, nil
	for i := range c.Results {
		if c.Charges[i].DryRun && !c.Results[i].OK {
			e.Decision = decided.deniedBy(i)
			v.observe(e)
		}
	}
}

// bans reports whether the decision has started a ban.
func (c *call) bans() bool {
	return c.needs&counts != 0 && slices.ContainsFunc(c.Results, func(r store.Result) bool { return r.Begun })
}
