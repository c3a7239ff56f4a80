package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// allow is Allow for one limit in memory. It uses no admission: getting and filling one takes
// more than half as long as the decision. If known is false, nothing is charged, and Allow asks
// again to find out why.
func allow(ctx context.Context, v *version, key string, cost int64) (ok bool, remaining int64, retryAfter, resetAfter time.Duration, known bool) {
	e := v.plans.Base.Alone
	if e == nil || v.memory == nil || cost < 1 || ctx.Err() != nil {
		return false, 0, 0, 0, false
	}
	under, err := e.Key.Under(keytext.Encode(key))
	if err != nil {
		return false, 0, 0, 0, false
	}
	of := alones.Get().(*alone)
	c, r := &of.charges[0], &of.results[0]
	c.Key, c.Limit, c.Cost = under, e.Limit.Limit, cost
	if err = v.memory.Take(ctx, of.charges[:], of.results[:]); err == nil {
		ok, remaining, retryAfter, resetAfter = r.OK, r.Remaining, r.RetryAfter, r.ResetAfter
	}
	c.Key, c.Limit = "", nil
	alones.Put(of)
	return ok, remaining, retryAfter, resetAfter, err == nil
}

// alone is a call of one charge. It is in a pool, because what is given to a store escapes to the
// heap.
type alone struct {
	charges [1]store.Charge
	results [1]store.Result
}

var alones = sync.Pool{New: func() any { return new(alone) }}

// adoptDenial returns the error of a denial that allow has found.
func (a *admission) adoptDenial(key string, cost int64, answer *store.Result) error {
	if err := a.chargeGiven(key, cost, a.version.plans.Base.Entries); err != nil {
		return err
	}
	a.call.Results[0] = *answer
	a.call.Results[0].MoreAfter = answer.RetryAfter // of a cost of 1
	a.to = nil                                      // there were none
	a.recordResults()
	err := newDeniedOutside(a.version, &a.call)
	a.sendOutcome(EventDenied, nil)
	return err
}

// decideGiven decides the charges of a key that is given, outside HTTP. If decided is false and
// err is nil, the key has no limits, or the store or their source has failed and no limit is
// FailClosed. Unless the call may hold slots, a limit that has some is an error.
func (a *admission) decideGiven(ctx context.Context, key string, cost int64, mayHold bool) (decided bool, err error) {
	if cost < 1 || cost > store.MaxCost {
		return false, fmt.Errorf("stint: %w: %d: write 1 to 2^40, or use Peek", store.ErrCost, cost)
	}
	entries, known, err := a.reading.OfKey(ctx, key, a.version.plans.Base.Entries, false)
	if len(a.reading.Wrong) > 0 {
		a.sendWrong()
	}
	if err != nil {
		return false, err
	}
	if len(entries) == 0 && known {
		return false, nil
	}
	if !mayHold && slices.ContainsFunc(entries, func(e *read.Entry) bool { return e.Terms.Way == waiting.ForSlot }) {
		return false, ErrHolds
	}
	if err := a.chargeGiven(key, cost, entries); err != nil {
		return false, err
	}
	if err := a.decide(ctx); err != nil {
		return false, a.finishFailed(ctx, err)
	}
	if !a.call.Allowed {
		err := newDeniedOutside(a.version, &a.call)
		a.sendOutcome(EventDenied, nil)
		return false, err
	}
	return true, nil
}

// look returns how the call's charges stand, which have no cost.
func (a *admission) look(ctx context.Context) (d Decision, err error) {
	if err := a.call.Peek(ctx); err != nil {
		return Decision{}, &StoreError{err}
	}
	d.addUp(&a.call, make([]LimitStatus, len(a.call.Results)))
	return d, nil
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

// errUncharged is the error of a limiter with no limit that a key can be charged for. A
// call that charges nothing must not look as if it had been let through.
var errUncharged = errors.New("stint: the limiter has nothing to charge a key for (a Bandwidth, the limits of a WithLimitFunc and, except for PeekAll and Reset, those of a WithRoute are left out): add a limit to New, such as a stint.Rate")
