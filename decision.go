package stint

import (
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
	// Cost is what the request was charged, or would have been, in units; after a
	// Settle what it has cost.
	Cost int64
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
			Name: l.Name(), Allowed: r.OK, DryRun: charges[i].DryRun, InFlight: r.Held, Cost: charges[i].Cost,
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

// refusedBy is the decision that d would have been had limit i, which has only
// reported, refused.
func (d Decision) refusedBy(i int) Decision {
	l := &d.Limits[i]
	d.Allowed, d.Limit = false, l.Name
	d.Remaining, d.RetryAfter, d.ResetAfter = l.Remaining, l.RetryAfter, l.ResetAfter
	return d
}
