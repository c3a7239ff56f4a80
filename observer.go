package stint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/events"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// Event is what an observer gets. It is valid only until the observer returns: to keep
// an event, keep its Clone.
//
// However an event is printed or logged, it shows no key. See Key.
type Event struct {
	Kind EventKind
	// Limiter is the limiter's name by WithLimiterName, or "".
	Limiter string
	// Route is the pattern of the WithRoute that the request has matched, or "" if it
	// has the limiter's own limits. A request that can be read in several ways, and is
	// held to several routes, has all their patterns, separated by commas.
	Route string
	// Request is the request that was decided. It is nil outside HTTP, for EventEnded,
	// and for what happens apart from decisions (EventSettleFailed, EventUpdated,
	// EventLimitChanged).
	Request *http.Request
	// Decision is the decision, for EventAdmitted, EventDenied, EventCanceled,
	// EventDryRunDenied, EventBanned, EventSettled and EventEnded. Its Limit is the one
	// that bound: the one that refused with the longest wait, or that has least left.
	// For other events only Limits is set, with the Name and Cost of those that the
	// event is about, and Limit if only one of them is enforced.
	Decision Decision
	// Err is the reason of a failure, and of a refusal for another reason than a limit.
	// What a limit refused is in Decision.
	Err error
	// Waited is how long the request has waited for its turn or a slot.
	Waited time.Duration
	// StoreTook is how long the store took: to decide the request, all calls together;
	// to settle its cost (EventSettled, EventSettleFailed); or to release its slots
	// (EventEnded, unless the same call also settled something).
	StoreTook time.Duration
	// Status is the status of the response, for EventEnded; 0 if no limit looks at it.
	Status int
	// Held is how long the request held its slots, for EventEnded; 0 without slots.
	Held time.Duration
	// Change is the change that EventLimitChanged reports.
	Change *LimitChange
	// Pacing is what a Bandwidth did to the request, for EventPaced.
	Pacing *Pacing
	// Path is the policy file, for EventPolicy.
	Path string
	// Warning is the likely mistake, for EventWarning.
	Warning *Warning
	// EndsWait says that the request's wait is over: an EventWaiting came before, and
	// this event's Kind (EventAdmitted, EventDenied, EventCanceled or EventStoreFailed)
	// is the outcome. Each EventWaiting is followed by exactly one such event.
	EndsWait bool

	plain bool // brief observers got it in brief
	keys  *eventKeys
	turn  uint64 // of keys
}

// eventKeys are the keys of an event, and the charges and statuses of an event that isn't
// about a decision.
type eventKeys struct {
	events.Keys
	own    []store.Charge
	limits []LimitStatus
	pacing Pacing
	pooled bool // false if it is part of a call
}

var keysOfEvents = sync.Pool{New: func() any { return &eventKeys{pooled: true} }}

// Key returns the key that Decision.Limits[i] was decided for, as stores see it:
// escaped, and hashed if it is long. It returns "" once the observer has returned. Keys
// may be addresses or credentials: show them only to those who may see them.
func (e Event) Key(i int) string {
	if e.keys == nil {
		return ""
	}
	return e.keys.Of(e.turn, i)
}

// lend gives the event the keys of charges, until takeBack. An event that an observer has
// kept shows no keys of later charges.
func (e *Event) lend(k *eventKeys, charges []store.Charge) {
	e.keys, e.turn = k, k.Lend(charges)
}

func (e *Event) takeBack() {
	k := e.keys
	k.TakeBack()
	if k.pooled {
		k.Lend(nil)
		clear(k.own)
		keysOfEvents.Put(k)
	}
}

// about sets the keys and limits of an event that isn't about a decision, until takeBack.
func (e *Event) about(charges []store.Charge) {
	k := keysOfEvents.Get().(*eventKeys)
	k.own = append(k.own[:0], charges...)
	e.lend(k, k.own)
	k.limits = slices.Grow(k.limits[:0], len(charges))[:len(charges)]
	enforced, only := 0, ""
	for i := range k.limits {
		l := &k.limits[i]
		*l = LimitStatus{Name: charges[i].Limit.Name(), DryRun: charges[i].DryRun, Cost: charges[i].Cost}
		if !l.DryRun || len(charges) == 1 {
			enforced, only = enforced+1, l.Name
		}
	}
	e.Decision.Limits = k.limits
	if enforced == 1 {
		e.Decision.Limit = only
	}
}

// Clone returns a copy of the event that may be kept: it has no keys, and its
// Decision.Limits and Pacing are its own.
func (e Event) Clone() Event {
	e.keys = nil
	e.Decision.Limits = slices.Clone(e.Decision.Limits)
	if e.Pacing != nil {
		own := *e.Pacing
		e.Pacing = &own
	}
	return e
}

// LogValue implements slog.LogValuer. The value says what happened, without a key, and
// leaves out empty fields.
func (e Event) LogValue() slog.Value {
	d := &e.Decision
	retry, limit, why := slog.Duration("retryAfter", d.RetryAfter), d.Limit, ""
	if d.RetryAfter == Never {
		retry = slog.String("retryAfter", "never")
	}
	if e.Err != nil {
		why = e.Err.Error()
	}
	if e.Change == nil {
		e.Change = new(LimitChange)
	}
	if e.Pacing == nil {
		e.Pacing = new(Pacing)
	}
	warning := ""
	if e.Warning != nil {
		limit, warning = strings.Join(e.Warning.Limits, ", "), e.Warning.Kind.String()
	} else {
		e.Warning = new(Warning)
	}
	limit = cmp.Or(limit, e.Change.Limit, e.Pacing.Limit)
	attrs := []slog.Attr{
		slog.String("event", e.Kind.String()), slog.String("limiter", e.Limiter), slog.String("route", e.Route),
		slog.String("limit", limit), slog.Int64("remaining", d.Remaining), retry,
		slog.Duration("waited", e.Waited), slog.Duration("storeTook", e.StoreTook),
		slog.Int("status", e.Status), slog.Duration("held", e.Held),
		slog.Int64("from", e.Change.From), slog.Int64("to", e.Change.To), slog.Int64("bytes", e.Pacing.Bytes),
		slog.String("path", e.Path), slog.String("warning", warning), slog.String("see", e.Warning.Link),
		slog.String("error", why),
	}
	left := ""
	if events.Kind(e.Kind).Decided() && d.Limit != "" {
		left = "remaining" // shown even if it is 0
	}
	return slog.GroupValue(events.Present(attrs, left)...)
}

// Format implements fmt.Formatter: every verb prints what LogValue returns.
func (e Event) Format(f fmt.State, _ rune) { events.Format(f, e.LogValue().Group()) }

// MarshalJSON implements json.Marshaler: an object of what LogValue returns, with
// durations in seconds.
func (e Event) MarshalJSON() ([]byte, error) { return events.JSON(e.LogValue().Group()) }

// EventKind says what has happened.
type EventKind uint8

const (
	// EventAdmitted: all enforced limits let the request pass.
	EventAdmitted = EventKind(events.Admitted)
	// EventDenied: an enforced limit refused.
	EventDenied = EventKind(events.Denied)
	// EventCanceled: the request's context ended during the decision or the wait,
	// because the client left, the server shut down or a deadline passed. What had been
	// charged is given back.
	EventCanceled = EventKind(events.Canceled)
	// EventBlocked: a predicate of WithBlock refused.
	EventBlocked = EventKind(events.Blocked)
	// EventEmptyKey: a request was refused because its key is empty.
	EventEmptyKey = EventKind(events.EmptyKey)
	// EventKeyFailed: a KeyFunc failed or returned a key that is too long.
	EventKeyFailed = EventKind(events.KeyFailed)
	// EventLimitsFailed: a WithLimitFunc failed or returned limits that can't be used, or
	// a WithCost returned a negative cost.
	EventLimitsFailed = EventKind(events.LimitsFailed)
	// EventStoreFailed: the store failed. Under FailClosed Err is a *StoreError; under
	// FailOpen the request passed.
	EventStoreFailed = EventKind(events.StoreFailed)
	// EventSettleFailed: a charge could not be settled, or a slot not released.
	EventSettleFailed = EventKind(events.SettleFailed)
	// EventDryRunDenied: a limit that only reports would have refused. Decision is what
	// it would have been then, and its Limit names that limit. It comes after the event
	// of the decision itself, once for each such limit.
	EventDryRunDenied = EventKind(events.DryRunDenied)
	// EventUpdated: Limiter.Update has put a new configuration in place.
	EventUpdated = EventKind(events.Updated)
	// EventLimitChanged: the limit of an AdaptiveConcurrency has changed for some key.
	// It comes when a request ends, at most once in a sample window for each key.
	EventLimitChanged = EventKind(events.LimitChanged)
	// EventWaiting: the request begins to wait for a slot or for its turn. Of Decision
	// these are set: Limit, which it waits for; Queued; and Delay, the time until its
	// turn, or 0 for a slot, since nobody knows.
	EventWaiting = EventKind(events.Waiting)
	// EventSettled: a WithSettle or a Permit.Settle has changed what a request has
	// cost. Decision is where its limits stand afterwards.
	EventSettled = EventKind(events.Settled)
	// EventPaced: the response to a request that a Bandwidth paces has ended. It comes
	// once for each Bandwidth.
	EventPaced = EventKind(events.Paced)
	// EventBanned: a refusal has started a Ban, or would have if the ban weren't a dry
	// run. It comes after the event of the decision itself, once for each ban.
	// Decision.Limit names the ban, and RetryAfter is when it ends.
	EventBanned = EventKind(events.Banned)
	// EventEnded: an admitted request has ended: Permit.Done was called, or the release
	// of its Detach. Decision is where its limits stood when it was admitted, with its
	// final cost in Cost. Status is that of the response if a limit looks at it, and
	// Held is how long slots were held. It follows each EventAdmitted whose permit is
	// done, and comes last; for an Allow it comes at once.
	EventEnded = EventKind(events.Ended)
	// EventStoreDegraded: the primary store of a failover has failed a call or a probe,
	// or its breaker has closed: then Err is nil. While the breaker is open, Err wraps
	// failover.ErrOpen. The limiter that WithStore was given to gets it.
	EventStoreDegraded = EventKind(events.StoreDegraded)
	// EventPolicy: a policy file has been put in place, or refused: then Err says why,
	// and the previous policy stays.
	EventPolicy = EventKind(events.Policy)
	// EventLeaseLost: the lease of a slot that is still held is gone, and somebody else
	// may get the slot. Decision has the limit, and Key(0) is whose slot it is.
	EventLeaseLost = EventKind(events.LeaseLost)
	// EventWarning: the limiter has found a likely mistake in how it is used. Warning
	// says which; see WithoutWarnings. It may come before New returns, and on a
	// goroutine of the limiter's.
	EventWarning = EventKind(events.Warning)
)

// String returns the constant's name without Event: "Admitted".
func (k EventKind) String() string { return events.Kind(k).String() }

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
// Observe and stop are safe for concurrent use. An event that is under way may still
// reach f after stop.
func (l *Limiter) Observe(f func(Event)) (stop func()) {
	if f == nil {
		return func() {}
	}
	return l.add(events.Observer[Event]{Tell: f})
}

// BriefObserver observes a limiter at a third of what a function costs that gets
// everything as events, since no event is built for a plain request that passes. A
// request is plain if only rates, quotas and bans apply to it, none of which lets it wait
// or reports a refusal in a dry run, and if nothing is settled by its response.
//
// Its methods are called as a function of Limiter.Observe is, but before those.
type BriefObserver interface {
	// Observe gets all events but EventAdmitted and EventEnded of plain requests.
	Observe(Event)
	// Passed is called instead of EventAdmitted for a plain request. route is the
	// Route of that event, charges are what the limits were asked, results are their
	// answers, and storeTook is how long the store took. The slices are valid until
	// Passed returns and must not be changed. Charges have keys, which may be addresses
	// or credentials.
	//
	// near, from 0 to 63, is mostly the same for requests on one processor and another
	// for those on others: to keep processors from waiting for each other, count each
	// near, or each near%4, by itself.
	Passed(near uint8, route string, charges []store.Charge, results []store.Result, storeTook time.Duration)
	// Ended is called instead of EventEnded for a plain request, with the near that
	// Passed was called with.
	Ended(near uint8)
}

// ObserveBriefly passes what happens to the limiter, and to those derived from it by
// With, to o until stop is called. It is Observe for figures to which every request adds.
// ObserveBriefly and stop are safe for concurrent use.
func (l *Limiter) ObserveBriefly(o BriefObserver) (stop func()) {
	if o == nil {
		return func() {}
	}
	return l.add(events.Observer[Event]{Tell: o.Observe, Brief: o})
}

// add adds an observer until stop is called.
func (l *Limiter) add(o events.Observer[Event]) (stop func()) {
	l.family.mu.Lock()
	defer l.family.mu.Unlock()
	remove := l.observers.Add(o)
	l.family.enlist()
	return func() {
		l.family.mu.Lock()
		defer l.family.mu.Unlock()
		remove()
		l.family.enlist()
	}
}

type audience = events.Audience[Event]

// enlist works out which observers and which log each limiter has. The caller holds f.mu.
func (f *family) enlist() {
	for _, m := range f.members {
		var log *logs.Log // the parent's
		var others []events.Observer[Event]
		if m.parent != nil {
			log = m.parent.log.Load()
			if to := m.parent.told.Load(); to != nil {
				others = to.All
			}
		}
		m.log.Store(logs.Derive(log, m.log.Load(), m.logger, m.logKeys))
		all := m.observers.After(others)
		events.Address(&m.told, func(a *audience) { a.All = all })
	}
}

// Tell passes an event that happened elsewhere to the limiter's observers and its log.
// It is for packages that manage a limiter, such as policy. A panic of an observer is
// logged and goes no further.
func (l *Limiter) Tell(e Event) {
	background.Do("telling observers", func() { l.now.Load().observe(&e) })
}

// hear makes the limiter report the store's own events. The limiter keeps the observer
// alive and the store doesn't, so that a store that outlives the limiter doesn't retain
// it.
func (l *Limiter) hear(s store.Store) {
	from, ok := s.(store.Observable)
	if !ok {
		return
	}
	l.hears = &store.Observer{Tell: l.heard}
	from.Observe(l.hears)
}

func (l *Limiter) heard(n store.Notice) {
	switch n.Kind {
	case store.Degraded, store.Restored:
		l.Tell(Event{Kind: EventStoreDegraded, Err: n.Err})
	case store.LeaseLost:
		e := Event{Kind: EventLeaseLost}
		e.about([]store.Charge{{Key: n.Key, Limit: n.Limit}})
		defer e.takeBack()
		l.Tell(e)
	}
}

func (v *version) observe(e *Event) {
	e.Limiter = v.name
	if m := events.Kind(e.Kind).Message(e.Err); m != 0 {
		v.write(m, *e)
	}
	to := v.of.told.Load()
	// After the line: if answered comes in between, the store's next answer is told, too.
	if e.Kind == EventStoreFailed && (to == nil || !to.Failing) {
		events.Address(&v.of.told, func(a *audience) { a.Failing = true })
	}
	if to != nil {
		for i := range to.All {
			if o := &to.All[i]; !e.plain || o.Brief == nil {
				o.Tell(*e)
			}
		}
	}
}

// observeOf tells the observers of an event that charges are part of.
func (v *version) observeOf(e *Event, charges []store.Charge) {
	e.about(charges)
	defer e.takeBack()
	v.observe(e)
}

// unsettled tells the observers of charges that could not be settled.
func (v *version) unsettled(p *plan, charges []store.Charge, took time.Duration, err error) {
	v.observeOf(&Event{Kind: EventSettleFailed, Route: p.route(), Err: err, StoreTook: took}, charges)
}

// write logs an event.
func (v *version) write(m logs.Message, e Event) {
	text := ""
	if e.Warning != nil {
		text = e.Warning.Text
	}
	v.of.log.Load().Say(contextOf(e.Request), m, text, func(keys bool) []slog.Attr {
		attrs := e.LogValue().Group()
		if e.Kind == EventStoreFailed {
			became := "passed"
			if errors.As(e.Err, new(*StoreError)) {
				became = "refused"
			}
			attrs = append(attrs, slog.String("request", became))
		}
		if keys {
			for i := range e.Decision.Limits {
				if key := e.Key(i); key != "" && e.Decision.Limits[i].Name == e.Decision.Limit {
					attrs = append(attrs, slog.String("key", key))
				}
			}
		}
		return attrs
	})
}

func contextOf(r *http.Request) context.Context {
	if r == nil {
		return context.Background()
	}
	return r.Context()
}

// recovered is how long a store must not have failed before it counts as answering again.
// If only a part of a store fails, some calls succeed all the time.
const recovered = 10 * time.Second

// answered records that a store that had failed has decided a request.
func (v *version) answered() {
	log := v.of.log.Load()
	if log.Quiet(logs.StoreFailed) < recovered {
		return
	}
	events.Address(&v.of.told, func(a *audience) { a.Failing = false })
	log.Write(context.Background(), logs.StoreAnswers, func(bool) (attrs []slog.Attr) {
		if v.name != "" {
			attrs = append(attrs, slog.String("limiter", v.name))
		}
		return attrs
	})
}

// observe tells the observers of a decision, and logs it if the log shows such decisions.
func (c *call) observe(kind EventKind, err error) {
	to, plain := c.lim.of.told.Load(), false
	switch decided := kind == EventAdmitted || kind == EventDenied; {
	case to != nil:
		if to.Failing && decided && slices.ContainsFunc(c.entries, func(e *entry) bool { return e.needs&local == 0 }) {
			c.lim.answered()
		}
		if plain = kind == EventAdmitted && c.plain(); plain && !to.Passed(c.near, c.plan.route(), c.Charges, c.Results, c.Took) {
			return
		}
	case decided && c.bans():
	case kind == EventDenied && c.lim.of.log.Load().Shows(contextOf(c.r), logs.Refused):
	default:
		return
	}
	c.report(kind, err, plain)
}

// report sends the event of a decision. It isn't inlined, so that a request that is told
// only in brief touches no stack for an event.
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

// over tells brief observers that a granted request has ended, if they got it in brief,
// and reports whether there are no others to tell.
func (v *version) over(told telling) (all bool) {
	to := v.of.told.Load()
	return to == nil || told >= plainly && !to.Ended(uint8(told-plainly))
}

// tell sends an event about the call, with its decision and keys.
func (c *call) tell(e *Event) {
	v := c.lim
	c.statuses = slices.Grow(c.statuses[:0], len(c.Results))[:len(c.Results)]
	c.decided(&e.Decision, c.statuses)
	e.Route, e.StoreTook = c.plan.route(), c.Took
	e.lend(&c.lent, c.Charges)
	defer e.takeBack()
	if e.Kind == EventCanceled {
		e.Decision.Allowed = false
	}
	v.observe(e)
	if e.Kind != EventAdmitted && e.Kind != EventDenied {
		return
	}
	e.Kind, e.EndsWait = EventBanned, false
	decided := e.Decision
	for i := range c.Results {
		if c.Results[i].Begun {
			e.Decision = decided.refusedBy(i)
			v.observe(e)
		}
	}
	e.Kind, e.Err = EventDryRunDenied, nil
	for i := range c.Results {
		if c.Charges[i].DryRun && !c.Results[i].OK {
			e.Decision = decided.refusedBy(i)
			v.observe(e)
		}
	}
}

// bans reports whether the decision has started a ban.
func (c *call) bans() bool {
	return c.needs&counts != 0 && slices.ContainsFunc(c.Results, func(r store.Result) bool { return r.Begun })
}
