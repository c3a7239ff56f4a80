package stint

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint/store"
)

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
