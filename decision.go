package stint

import (
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Decision is the outcome of all limits of a limiter for a request.
type Decision struct {
	// Allowed reports whether no enforced limit denied the request.
	Allowed bool
	// Limit names the deciding limit: among those that denied, the one with the longest
	// RetryAfter; if none denied, the enforced limit with the least remaining.
	Limit string
	// Remaining is the number of whole units left of the deciding limit.
	Remaining int64
	// Delay is the time that the request waits, or has waited, for its turn or a slot.
	Delay time.Duration
	// RetryAfter is the time after which a request of the same cost would pass if no other
	// caller came; see [Decision.Retry]. It is 0 if the request is allowed, positive if the
	// request is denied, and [Never] if the cost can never pass. For a request that found no
	// free slot, RetryAfter is one second, because the time until a slot is released is
	// unknown.
	RetryAfter time.Duration
	// ResetAfter is the time until all units of the deciding limit are available again.
	ResetAfter time.Duration
	// Queued is the length of the line in this process when the request began to wait,
	// including the request itself, or when it was denied without waiting. It is 0 if no
	// request waited. A line is the requests that wait for one limit and key. If the request
	// waited in several lines, Queued is the length of the longest.
	Queued int64
	// Limits has the status of each limit, in order, including dry runs. An AdaptiveConcurrency
	// comes after the limits that the store decides.
	Limits []LimitStatus
}

// LimitStatus is the result of one limit in a Decision.
type LimitStatus struct {
	Name string
	// Allowed reports whether this limit allows the request. Another limit may still have
	// denied the request.
	Allowed bool
	// DryRun reports whether the limit is a dry run, which isn't enforced.
	DryRun bool
	// Reason is the reason for the current limit of an AdaptiveConcurrency. For any other
	// limit, Reason is NotAdaptive.
	Reason AdaptiveReason
	// Capacity is the Remaining of an unused key: the burst plus the queue of a bucket, n of a
	// window, or the number of slots of a concurrency limit. A Quota is a window, or a bucket if
	// it is an IntervalBucket. For an AdaptiveConcurrency, Capacity is the current limit. A
	// WithMaxWait that is shorter than the queue bounds the queue, here and in Remaining.
	Capacity int64
	// InFlight is the number of slots of a concurrency limit that are held, including those of
	// this request. InFlight may exceed Capacity after an Update has lowered the limit. For
	// other limits, InFlight is 0.
	InFlight int64
	// Cost is the cost of the request in units, even if the request was denied. After a Settle,
	// Cost is the settled cost.
	Cost int64
	// Remaining is the number of units left after the decision.
	Remaining int64
	// Delay, RetryAfter and ResetAfter are defined as in Decision, but for this limit alone.
	Delay, RetryAfter, ResetAfter time.Duration

	more      time.Duration // store.Result.MoreAfter, for header fields
	processes uint32        // store.Result.Processes, for header fields
}

// set sets d to the decision of a call, from its results and its waits. statuses, which has an
// element for each charge, becomes d.Limits.
func (d *Decision) set(c *decide.Call, statuses []LimitStatus) {
	d.addUp(c, statuses)
	d.addWaits(c.Waited, c.LineWaits)
}

// addUp sets d to the decision that a call's results add up to. statuses, which has an element for
// each charge, becomes d.Limits.
func (d *Decision) addUp(c *decide.Call, statuses []LimitStatus) {
	*d = Decision{Allowed: inside.Granted(c.Charges, c.Results), Limits: statuses}
	var deciding *LimitStatus // whose numbers are those of d
	for i := range statuses {
		l := &statuses[i]
		l.set(&c.Charges[i], &c.Results[i])
		switch {
		case l.DryRun:
		case !d.Allowed:
			if !l.Allowed && (deciding == nil || l.RetryAfter > deciding.RetryAfter) {
				deciding = l
			}
		case c.Limits[i].Kind.Traits().Binds:
			d.Delay = max(d.Delay, l.Delay)
			if deciding == nil || l.Remaining < deciding.Remaining {
				deciding = l
			}
		}
	}
	if deciding == nil {
		return
	}
	d.Limit, d.Remaining, d.ResetAfter = deciding.Name, deciding.Remaining, deciding.ResetAfter
	if !d.Allowed {
		d.RetryAfter = deciding.RetryAfter
	}
}

// set sets l to the answer of the limit of a charge.
func (l *LimitStatus) set(ch *store.Charge, r *store.Result) {
	l.Name, l.DryRun, l.Cost = ch.Limit.Name(), ch.DryRun, ch.Cost
	l.Allowed, l.InFlight, l.Remaining = r.OK, r.Held, r.Remaining
	l.Delay, l.RetryAfter, l.ResetAfter, l.more = r.Delay, r.RetryAfter, r.ResetAfter, r.MoreAfter
	l.processes = r.Processes
	if !r.OK && r.RetryAfter <= 0 {
		l.RetryAfter = retryUnknown
	}
	capacity, reason := limit.DecidedCapacity(ch, r)
	l.Capacity, l.Reason = capacity, AdaptiveReason(reason)
}

// retryUnknown is the RetryAfter of a denial if the time isn't known, as for slots.
const retryUnknown = time.Second

// Retry returns the time after which a request of the same cost would pass if no other caller
// came. ok is false if the request is allowed, or if its cost can never pass.
func (d Decision) Retry() (after time.Duration, ok bool) {
	if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter == Never {
		return 0, false
	}
	return d.RetryAfter, true
}

// Status returns the state of the limit with a name: the first one in Limits. ok is false if the decision has
// no such limit. Remaining of the Decision itself is that of the deciding limit, which may be another one.
func (d Decision) Status(limit string) (status LimitStatus, ok bool) {
	for _, l := range d.Limits {
		if l.Name == limit {
			return l, true
		}
	}
	return LimitStatus{}, false
}

// setCanceled makes d the decision of a request that is no longer waiting: no limit has denied it.
func (d *Decision) setCanceled() {
	d.Allowed, d.RetryAfter = false, 0
	for i := range d.Limits {
		d.Limits[i].RetryAfter = 0
	}
}

// deniedBy returns what d would be if limit i, a dry run, had been enforced.
func (d Decision) deniedBy(i int) Decision {
	l := &d.Limits[i]
	d.Allowed, d.Limit = false, l.Name
	d.Remaining, d.RetryAfter, d.ResetAfter = l.Remaining, l.RetryAfter, l.ResetAfter
	return d
}

// addWaits adds to a decision how its request has waited. inLines has an element for each limit, or
// for the first of them.
func (d *Decision) addWaits(waited time.Duration, inLines []decide.LineWait) {
	d.Delay = max(d.Delay, waited)
	for i, w := range inLines {
		l := &d.Limits[i]
		l.Delay = max(l.Delay, w.Waited)
		d.Queued = max(d.Queued, w.Queued)
	}
}

// Never is the RetryAfter of a request whose cost can never pass.
const Never = store.Never

// AdaptiveReason is the reason for the current limit of an [AdaptiveConcurrency].
type AdaptiveReason uint8

// The values are those of internal/adaptive, which sets them and can't import this package. An
// alias of its type would document an internal name.

const (
	// NotAdaptive: the limit isn't an AdaptiveConcurrency.
	NotAdaptive AdaptiveReason = AdaptiveReason(adaptive.None)
	// AdaptiveStart: too few requests have been measured to change the limit.
	AdaptiveStart AdaptiveReason = AdaptiveReason(adaptive.Start)
	// AdaptiveGrowing: the limit has been raised, because latency is as usual.
	AdaptiveGrowing AdaptiveReason = AdaptiveReason(adaptive.Growing)
	// AdaptiveQueueing: the limit has been lowered, because requests take longer than usual.
	AdaptiveQueueing AdaptiveReason = AdaptiveReason(adaptive.Queueing)
	// AdaptiveDrops: the limit has been halved, or cut by a tenth under AIMD, because requests
	// failed.
	AdaptiveDrops AdaptiveReason = AdaptiveReason(adaptive.Drops)
	// AdaptiveSteady: latency gives no reason for a change, or the limit is at min or max.
	AdaptiveSteady AdaptiveReason = AdaptiveReason(adaptive.Steady)
	// AdaptiveUnused: less than half of the limit is in use, so latency doesn't show whether a
	// higher limit would overload the service.
	AdaptiveUnused AdaptiveReason = AdaptiveReason(adaptive.Unused)
)

// String returns the reason as one word.
func (r AdaptiveReason) String() string { return adaptive.Reason(r).String() }
