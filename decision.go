package stint

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Decision is the answer of all limits that a limiter has for a request.
type Decision struct {
	// Allowed says that no enforced limit refused.
	Allowed bool
	// Limit names the limit that denied with the longest wait, else the
	// enforced one with the least left.
	Limit string
	// Remaining is what is left of that limit, in whole units.
	Remaining int64
	// Delay is how long the request waits, or waited, for its turn or a slot.
	Delay time.Duration
	// RetryAfter is when the same cost would pass if nobody else came: 0 when
	// allowed, or when it can't be told (a concurrency limit is full); Never
	// when it can't pass at all.
	RetryAfter time.Duration
	// ResetAfter is when that limit is back at full.
	ResetAfter time.Duration
	// Queued is how many requests waited in this process for what this one
	// waited for, itself included, when it began to; or when it was refused
	// without; 0 where nobody waited. Who waits for a slot is counted by limit
	// and key, who waits for the turn of a rate by all its limits, keys and
	// costs. Of several waits it is the longest line.
	Queued int64
	// Limits is every limit's own answer, in order, dry runs included. Those of
	// AdaptiveConcurrency come after those of the store.
	Limits []LimitStatus
}

// LimitStatus is one limit's own answer.
type LimitStatus struct {
	Name string
	// Allowed is what this limit says; a request that it allows may still be
	// refused by another.
	Allowed bool
	// DryRun says that the limit only reports.
	DryRun bool
	// Reason is why an AdaptiveConcurrency's limit is what it is; NotAdaptive
	// of any other.
	Reason AdaptiveReason
	// Quota is how many units pass per period, or how many slots there are: of
	// an AdaptiveConcurrency, at the moment.
	Quota int64
	// InFlight is how many slots of a concurrency limit are held, this
	// request's included, and above Quota where Update has lowered that; 0 of
	// another limit.
	InFlight int64
	// Remaining is what is left after the decision.
	Remaining                     int64
	Delay, RetryAfter, ResetAfter time.Duration
}

// decide fills d with what the results amount to. statuses, of the same
// length, becomes d.Limits.
func (d *Decision) decide(entries []*entry, charges []store.Charge, results []store.Result, statuses []LimitStatus) {
	*d = Decision{Allowed: waiting.Passes(charges, results), Limits: statuses}
	named := -1
	for i := range results {
		r, l := &results[i], charges[i].Limit
		statuses[i] = LimitStatus{
			Name: l.Name(), Allowed: r.OK, DryRun: charges[i].DryRun, InFlight: r.Held,
			Remaining: r.Remaining, Delay: r.Delay, RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter,
		}
		k := entries[i].kind
		statuses[i].Quota, statuses[i].Reason = k.stood(&charges[i], r)
		if charges[i].DryRun || r.OK && (!d.Allowed || !k.binds()) {
			continue
		}
		if d.Allowed {
			d.Delay = max(d.Delay, r.Delay)
			if named < 0 || r.Remaining < results[named].Remaining {
				named = i
			}
		} else {
			d.RetryAfter = max(d.RetryAfter, r.RetryAfter)
			if named < 0 || r.RetryAfter > results[named].RetryAfter {
				named = i
			}
		}
	}
	if named >= 0 {
		d.Limit = charges[named].Limit.Name()
		d.Remaining = results[named].Remaining
		d.ResetAfter = results[named].ResetAfter
	}
}

// Event is what an observer is told. It never holds a key.
type Event struct {
	Kind EventKind
	// Request is the request that was decided; nil outside HTTP and for what
	// happens beside decisions (EventSettleFailed, EventUpdated, EventLimitChanged).
	Request *http.Request
	// Decision is the decision of EventAdmitted, EventDenied, EventCanceled and EventDryRunDenied.
	Decision Decision
	// Err is the reason of a refusal or a failure.
	Err error
	// Waited is how long the request has waited for its turn or a slot.
	Waited time.Duration
	// Change is the change of EventLimitChanged.
	Change *LimitChange
	// Pacing is what a Bandwidth has made of the request of EventPaced.
	Pacing *Pacing
	// EndsWait says that the request waits no longer: an EventWaiting came
	// before, and Kind (EventAdmitted, EventDenied, EventCanceled or EventStoreFailed) is what came
	// of it. Each EventWaiting is followed by one such event.
	EndsWait bool
}

// EventKind says what has happened.
type EventKind uint8

const (
	// EventAdmitted: all enforced limits let the request pass.
	EventAdmitted EventKind = iota
	// EventDenied: an enforced limit refused.
	EventDenied
	// EventCanceled: the request's context ended during the decision or the wait:
	// the client left, the server shut down, or a deadline passed. What had
	// been charged is given back.
	EventCanceled
	// EventBlocked: a predicate of WithBlock refused.
	EventBlocked
	// EventEmptyKey: refused for an empty key.
	EventEmptyKey
	// EventKeyFailed: a KeyFunc failed or gave too long a key.
	EventKeyFailed
	// EventLimitsFailed: a WithLimitFunc failed or gave limits that can't be used.
	EventLimitsFailed
	// EventStoreFailed: the store failed. Err is a *StoreError under FailClosed;
	// under FailOpen the request passed.
	EventStoreFailed
	// EventSettleFailed: a charge could not be given back, or a slot not released.
	EventSettleFailed
	// EventDryRunDenied: a limit that only reports would have refused. Decision is
	// what it would have been then, and Limit names that limit. It comes after
	// the event of the decision itself, once for each such limit.
	EventDryRunDenied
	// EventUpdated: Limiter.Update has put another configuration in place. It is
	// told to the observers of that one.
	EventUpdated
	// EventLimitChanged: an AdaptiveConcurrency has another limit for some key. It
	// comes when a request ends, at most once in a sample window for each key.
	EventLimitChanged
	// EventWaiting: the request begins to wait, for a slot or for its turn. Of
	// Decision there are Limit, which it waits for, Queued, and Delay, how long
	// its turn is away; 0 for a slot, as nobody knows.
	EventWaiting
	// EventSettled: a WithSettle has changed what a request has cost. Decision is
	// where its limits stand then.
	EventSettled
	// EventPaced: the response to a request that a Bandwidth paces has ended. It
	// comes once for each of them.
	EventPaced
	// EventBanned: a refusal has begun a Ban, or a ban that only reports has. It comes
	// besides the event of the decision itself.
	EventBanned
)

var eventNames = [...]string{
	"Admitted", "Denied", "Canceled", "Blocked", "EmptyKey", "KeyFailed",
	"LimitsFailed", "StoreFailed", "SettleFailed", "DryRunDenied", "Updated",
	"LimitChanged", "Waiting", "Settled", "Paced", "Banned",
}

// String returns the constant's name without Event: "Admitted".
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "EventKind(" + strconv.Itoa(int(k)) + ")"
}

func (v *version) observe(e Event) {
	for _, f := range v.observers {
		f(e)
	}
}

// observe tells the observers of a decision.
func (c *call) observe(kind EventKind, err error) {
	v := c.lim
	if len(v.observers) == 0 {
		return
	}
	e := Event{Kind: kind, Request: c.r, Err: err, Waited: c.Waited, EndsWait: c.Begun}
	c.decided(&e.Decision, make([]LimitStatus, len(c.Results)))
	if kind == EventCanceled {
		e.Decision.Allowed = false
	}
	v.observe(e)
	if kind == EventCanceled {
		return
	}
	if slices.ContainsFunc(c.Results, func(r store.Result) bool { return r.Begun }) {
		e.Kind, e.EndsWait = EventBanned, false
		v.observe(e)
	}
	for i := range c.Results {
		if c.Charges[i].DryRun && !c.Results[i].OK {
			v.observe(Event{Kind: EventDryRunDenied, Request: c.r, Waited: c.Waited, Decision: e.Decision.refusedBy(i)})
		}
	}
}

// refusedBy is the decision that d would have been had limit i, which has only
// reported, refused.
func (d Decision) refusedBy(i int) Decision {
	l := &d.Limits[i]
	d.Allowed, d.Limit = false, l.Name
	d.Remaining, d.RetryAfter, d.ResetAfter = l.Remaining, l.RetryAfter, l.ResetAfter
	return d
}
