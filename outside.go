package stint

import (
	"context"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Allow charges cost to all of the limiter's limits (not those of its routes), and to those that a
// WithLimitSource has for the key. It is Take for jobs, queues and RPCs that are charged once
// and hold nothing. It returns nil if all limits let the charge pass, a *DeniedError if one
// denies, and otherwise the errors of Take; unless it returns nil, nothing is charged. Keys
// and costs are those of Take.
//
// It returns ErrHolds if a limit of the limiter has slots, even in a dry run. It
// ignores a Bandwidth and WithSettle, which are about responses. If a limit makes
// callers wait (WithMaxWait, WithQueue, a LeakyBucket), Allow blocks until its turn has
// come. If the store or the source fails, it returns nil unless a limit is FailClosed.
//
// It allocates nothing if it returns nil from a store in memory and nothing waits or
// observes.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) error {
	v := l.deciding()
	var denial store.Result
	known := false
	if l.recipients.audience.Load() == nil && l.recipients.failed.Load() == 0 {
		ok, remaining, retryAfter, resetAfter, asked := allow(ctx, v, key, cost)
		if ok {
			return nil
		}
		if known = asked && cost == 1; known {
			denial.Remaining, denial.RetryAfter, denial.ResetAfter = remaining, retryAfter, resetAfter
		}
	}
	a := beginAdmission(v, nil, nil)
	defer a.end(ctx)
	if known {
		return a.adoptDenial(key, cost, &denial)
	}
	if decided, err := a.decideGiven(ctx, key, cost, false); err != nil || !decided {
		return err
	}
	a.sendOutcome(EventAdmitted, nil)
	a.sendEnd()
	a.call.Spend()
	return nil
}

// Take charges cost, from 1 to 2^40, to all of the limiter's limits (not those of its
// routes), and to those that a WithLimitSource has for the key: jobs, queues, RPCs. Call Done
// on the permit when the work is over: the slots of a permit that is dropped without Done stay
// taken as long as the process lives. If no limit has slots and nothing is settled, Allow does
// the same for less.
//
// If a limit denies, the error is a *DeniedError; if ctx has already ended, it wraps
// ctx's error; if the cost is out of range, it wraps store.ErrCost. In each case
// nothing is charged. If the store fails, the permit is an empty one, or the error a
// *StoreError if a limit is FailClosed. If the source fails, its limits are left out, or the error
// is a *SourceError; any other error of the source is returned.
//
// Limits with a constant key (Global, and Join or Hash of such keys) are charged under
// that key, as for requests; all others under the key given. If there are others, a key
// that is empty or too long is an error (ErrEmptyKey, ErrKeyTooLong). Predicates, other
// key functions and WithCost are about requests and are ignored; WithMaxWait applies.
// For a limiter that is used only this way, write WithKey(GivenKey()).
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, false)
}

// Wait is Take, but blocks until it is key's turn or ctx ends. If ctx ends, nothing is
// charged and the error wraps ctx's error. A turn that comes after ctx's deadline is denied at
// once with a *DeniedError, and so are a cost that can never pass and a full queue (WithQueue, a
// LeakyBucket). For slots of a concurrency limit it waits that long too; if none comes free by the
// deadline, the error is also a *DeniedError.
//
// Where a limit can't reserve a turn as far away as ctx allows (a SlidingCounter reserves one
// window ahead; a bucket that another version of the limit has charged reserves nothing for a
// ctx without a deadline), Wait asks again when the turn should have come. Those who ask again
// aren't in a line: who comes first is served first.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, true)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, patient bool) (*Permit, error) {
	a := beginAdmission(l.deciding(), nil, nil)
	defer a.end(ctx)
	a.call.Patient = patient
	decided, err := a.decideGiven(ctx, key, cost, true)
	switch {
	case err != nil:
		return nil, err
	case !decided:
		return &Permit{}, nil
	}
	p, _, room := a.permit(ctx, a.call.Needs)
	a.sendOutcome(EventAdmitted, nil)
	a.handTo(p, room)
	return p, nil
}

// Peek returns how key stands with the limiter's limits, and with those that a WithLimitSource has
// for it, and charges nothing. If the source fails, that is a *SourceError, whatever the failure
// policy; if it denies the key, as one without a plan, it is left out, or that is the error if there
// are no other limits.
// Decision.Allowed reports whether each enforced limit has a unit left; RetryAfter is
// the time until every limit has one.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	v := l.inForce()
	return l.peek(ctx, v, key, v.plans.Base.Entries)
}

// PeekAll is Peek for all of the limiter's limits, including those of its routes. Decision.Limits has each limit once; the rest of the
// Decision is of all of them together, which no request meets. Limits that a
// WithLimitFunc returns are left out, and so is a Bandwidth.
func (l *Limiter) PeekAll(ctx context.Context, key string) (Decision, error) {
	v := l.inForce()
	return l.peek(ctx, v, key, slices.Collect(v.plans.Entries))
}

// peek returns how key stands with the limits of a version's entries.
func (l *Limiter) peek(ctx context.Context, v *version, key string, entries []*read.Entry) (d Decision, err error) {
	a := beginAdmission(v, nil, nil)
	defer a.end(ctx)
	entries, known, err := a.reading.OfKey(ctx, key, entries, true)
	if err != nil {
		return Decision{}, err
	}
	if len(entries) == 0 && known {
		return Decision{Allowed: true}, nil
	}
	if err := a.chargeGiven(key, 0, entries); err != nil {
		return Decision{}, err
	}
	return a.look(ctx)
}

// PeekRequest returns what each limit has left for a request, including those that functions and
// sources have for it, and charges nothing. Decision.Allowed reports whether each enforced limit
// has a unit left, and is true for a request without limits. An error is that of the request if it
// isn't admitted for another reason than a limit; a failure of the store is a *StoreError.
//
// Keys of a framework's adapter can't be read from r. A Bandwidth is left out.
func (l *Limiter) PeekRequest(r *http.Request) (Decision, error) {
	v := l.inForce()
	switch exempt, blocked := v.plans.Sift(r); {
	case exempt:
		return Decision{Allowed: true}, nil
	case blocked:
		return Decision{}, errBlocked
	}
	a := beginAdmission(v, r, nil)
	defer a.end(r.Context())
	if err := a.reading.Request(v.plans.Find(r)); err != nil {
		return Decision{}, err
	}
	if len(a.call.Charges) == 0 {
		return Decision{Allowed: true}, nil
	}
	for i := range a.call.Charges {
		a.call.Charges[i].Cost = 0
	}
	return a.look(r.Context())
}
