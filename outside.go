package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// ErrHolds is the error of Allow on a limiter with a Concurrency or an
// AdaptiveConcurrency. Their slots are held until they are released, and Allow returns
// nothing to release them with. Use Take, and call Done on its permit.
var ErrHolds = errors.New("stint: Allow: the limiter has a limit with slots: use Take, and call Done")

// Allow charges cost to all of the limiter's limits (not those of its routes) for one
// key. It is Take for jobs, queues and RPCs that are charged once and hold nothing. It
// returns nil if all limits let the charge pass, a *DeniedError if one denies, and
// otherwise the errors of Take; unless it returns nil, nothing is charged. Keys and
// costs are those of Take.
//
// It returns ErrHolds if a limit of the limiter has slots, even in a dry run. It
// ignores a Bandwidth and WithSettle, which are about responses. If a limit makes
// callers wait (WithMaxWait, WithQueue, a LeakyBucket), Allow blocks until its turn has
// come. If the store fails, it returns nil unless a limit is FailClosed.
//
// It allocates nothing if it returns nil from a store in memory and nothing waits or
// observes.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) error {
	v := l.deciding()
	var denial store.Result
	known := false
	if l.recipients.audience.Load() == nil && !l.recipients.failing.Load() {
		ok, remaining, retryAfter, resetAfter, asked := allow(ctx, v, key, cost)
		if ok {
			return nil
		}
		if known = asked; known {
			denial.Remaining, denial.RetryAfter, denial.ResetAfter = remaining, retryAfter, resetAfter
		}
	}
	a := beginAdmission(v, &l.family.warnings, nil, nil)
	defer a.end(ctx)
	if known {
		if err := a.denied(key, cost, &denial); err != nil {
			return err
		}
	}
	for _, e := range v.plans.Base.Entries {
		if e.Terms.Way == waiting.ForSlot {
			return ErrHolds
		}
	}
	if decided, err := a.outside(ctx, key, cost); err != nil || !decided {
		return err
	}
	a.sendOutcome(EventAdmitted, nil)
	a.sendEnd()
	a.call.Spend()
	return nil
}

// allow is Allow for one limit in memory. It uses no admission: getting and filling one takes
// more than half as long as the decision. The answer is that of a store.Allower, in registers: a
// Result takes a quarter longer. If known is false, nothing is charged, and Allow asks again to
// find out why.
func allow(ctx context.Context, v *version, key string, cost int64) (ok bool, remaining int64, retryAfter, resetAfter time.Duration, known bool) {
	e := v.plans.Base.Alone
	if e == nil || v.allower == nil || cost < 1 || ctx.Err() != nil {
		return false, 0, 0, 0, false
	}
	under, err := e.Key.Under(keytext.Encode(key))
	if err != nil {
		return false, 0, 0, 0, false
	}
	ok, remaining, retryAfter, resetAfter, err = v.allower.Allow(ctx, under, e.Limit.Limit, cost)
	return ok && err == nil, remaining, retryAfter, resetAfter, err == nil
}

// denied returns the error of a denial that allow has found, or nil if waiters that have left
// may hold what was denied: then Allow asks again, as one of the line.
func (a *admission) denied(key string, cost int64, answer *store.Result) error {
	if a.version.backend.Lines.Vacant() {
		return nil
	}
	if err := a.chargeGiven(key, cost, a.version.plans.Base.Entries); err != nil {
		return err
	}
	a.call.Results[0] = *answer
	a.observersBefore = (*audience)(nil).next() // there were none
	a.record()
	err := a.newDenied()
	a.sendOutcome(EventDenied, nil)
	return err
}

// Take charges cost, from 1 to 2^40, to all of the limiter's limits (not those of its
// routes) for one key: jobs, queues, RPCs. Call Done on the permit when the work is
// over. If no limit has slots and nothing is settled, Allow does the same for less. If the
// permit is dropped without Done, its slots come free some time after the garbage collector has
// found that, and a warning says so (WarnPermitLeaked).
//
// If a limit denies, the error is a *DeniedError; if ctx has already ended, it wraps
// ctx's error; if the cost is out of range, it wraps store.ErrCost. In each case
// nothing is charged. If the store fails, the permit is an empty one, or the error a
// *StoreError if a limit is FailClosed.
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
// charged and the error wraps ctx's error. A turn that comes after ctx's deadline, or
// after an hour if ctx has none, is denied at once with a *DeniedError, and so is a
// cost that can never pass. For slots of a concurrency limit it waits that long too, if
// their WithQueue has room; if none comes free by the deadline, the error is also a
// *DeniedError.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, true)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, patient bool) (*Permit, error) {
	a := beginAdmission(l.deciding(), &l.family.warnings, nil, nil)
	defer a.end(ctx)
	a.call.Patient = patient
	decided, err := a.outside(ctx, key, cost)
	switch {
	case err != nil:
		return nil, err
	case !decided:
		return &Permit{}, nil
	}
	p, _, room := a.permit(ctx, a.call.Needs)
	a.sendOutcome(EventAdmitted, nil)
	a.handTo(p, room)
	p.guard(&l.family.warnings)
	return p, nil
}

// outside decides an admission outside HTTP. If decided is false and err is nil, the store has
// failed and no limit is FailClosed.
func (a *admission) outside(ctx context.Context, key string, cost int64) (decided bool, err error) {
	if cost < 1 || cost > store.MaxCost {
		return false, fmt.Errorf("stint: %w: %d: write 1 to 2^40, or use Peek", store.ErrCost, cost)
	}
	if err := a.chargeGiven(key, cost, a.version.plans.Base.Entries); err != nil {
		return false, err
	}
	if err := a.decide(ctx); err != nil {
		return false, a.finishFailed(ctx, err)
	}
	if !a.call.Allowed {
		err := a.newDenied()
		a.sendOutcome(EventDenied, nil)
		return false, err
	}
	return true, nil
}

// chargeGiven makes the charges of a key, to entries.
func (a *admission) chargeGiven(key string, cost int64, entries []*read.Entry) error {
	if err := a.reading.ChargeGiven(key, cost, entries); err != nil {
		return err
	}
	if len(a.call.Charges) == 0 {
		return errUncharged
	}
	return nil
}

// Peek returns how key stands with the limiter's limits, and charges nothing.
// Decision.Allowed reports whether each enforced limit has a unit left; RetryAfter is
// the time until every limit has one.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	v := l.inForce()
	return l.peek(ctx, v, key, v.plans.Base.Entries)
}

// PeekAll returns how key stands with all of the limiter's limits, including those of
// its routes, and charges nothing. Decision.Limits has each limit once; the rest of the
// Decision is of all of them together, which no request meets. Limits that a
// WithLimitFunc returns are left out, and so is a Bandwidth.
func (l *Limiter) PeekAll(ctx context.Context, key string) (Decision, error) {
	v := l.inForce()
	return l.peek(ctx, v, key, slices.Collect(v.plans.Entries))
}

// peek returns how key stands with the limits of a version's entries.
func (l *Limiter) peek(ctx context.Context, v *version, key string, entries []*read.Entry) (d Decision, err error) {
	a := beginAdmission(v, &l.family.warnings, nil, nil)
	defer a.end(ctx)
	if err := a.chargeGiven(key, 0, entries); err != nil {
		return Decision{}, err
	}
	if err := a.call.Peek(ctx); err != nil {
		return Decision{}, &StoreError{err}
	}
	d.addUp(&a.call, make([]LimitStatus, len(a.call.Results)))
	return d, nil
}

// errUncharged is the error of a limiter with no limit that a key can be charged for. A
// call that charges nothing must not look as if it had been let through.
var errUncharged = errors.New("stint: the limiter has nothing to charge a key for (a Bandwidth, the limits of a WithLimitFunc and, except for PeekAll, those of a WithRoute are left out): add a limit to New, such as a stint.Rate")
