package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/keytext"
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
	v := l.inForce()
	if l.audience.Load() == nil && v.allows(ctx, key, cost) {
		return nil
	}
	c := calls.Get().(*call)
	defer c.end(ctx)
	for _, e := range v.base.entries {
		if e.wait.Way == waiting.ForSlot {
			return ErrHolds
		}
	}
	if decided, err := c.outside(v, ctx, key, cost); err != nil || !decided {
		return err
	}
	c.observe(EventAdmitted, nil)
	if told := c.telling(); told != untold && !v.notifyEnd(told, c.below) {
		c.Took = 0 // that was for the decision
		c.tell(&Event{Kind: EventEnded, Waited: c.Waited, plain: told == plainly})
	}
	c.Granted = false // nothing is given back
	return nil
}

// allows is Allow for one limit in memory. It uses no call: getting and filling one takes
// more than half as long as the decision. If it returns false, nothing is charged, and
// Allow asks again to find out why.
func (v *version) allows(ctx context.Context, key string, cost int64) bool {
	e := v.base.alone
	if e == nil || v.allower == nil || cost < 1 || ctx.Err() != nil {
		return false
	}
	under, err := e.key.Under(keytext.Encode(key))
	if err != nil {
		return false
	}
	ok, err := v.allower.Allow(ctx, under, e.limit, cost)
	return ok && err == nil
}

// Take charges cost, from 1 to 2^40, to all of the limiter's limits (not those of its
// routes) for one key: jobs, queues, RPCs. Call Done on the permit when the work is
// over. If no limit has slots and nothing is settled, Allow does the same for less.
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
	c := calls.Get().(*call)
	defer c.end(ctx)
	c.Patient, c.walked = patient, patient
	decided, err := c.outside(l.inForce(), ctx, key, cost)
	switch {
	case err != nil:
		return nil, err
	case !decided:
		return &Permit{}, nil
	}
	p, _ := c.permit(ctx)
	c.observe(EventAdmitted, nil)
	c.Granted = false // the permit gives it back
	return p, nil
}

// outside decides a call outside HTTP. If decided is false and err is nil, the store has
// failed and no limit is FailClosed.
func (c *call) outside(v *version, ctx context.Context, key string, cost int64) (decided bool, err error) {
	if cost < 1 || cost > store.MaxCost {
		return false, fmt.Errorf("stint: %w: %d: write 1 to 2^40, or use Peek", store.ErrCost, cost)
	}
	if err := c.gatherKey(v, key, cost); err != nil {
		return false, err
	}
	if err := c.decide(ctx); err != nil {
		return false, c.failed(ctx, err)
	}
	if !c.Granted {
		err := c.newDenied()
		c.observe(EventDenied, nil)
		return false, err
	}
	return true, nil
}

// gatherKey adds the charges of one key, to all of the limiter's own limits.
func (c *call) gatherKey(v *version, key string, cost int64) error {
	c.version, c.Store = v, v.store
	encoded, unfit := keytext.Encode(key)
	for _, e := range v.base.entries {
		if e.needs&paces != 0 {
			continue
		}
		under, err := e.key.Under(encoded, unfit)
		if err != nil {
			return err
		}
		c.add(e, under, cost)
	}
	if len(c.Charges) == 0 {
		return errUncharged
	}
	if c.needs&local != 0 {
		c.decideLocally()
	}
	return nil
}

// Peek returns how key stands with the limiter's limits, and charges nothing.
// Decision.Allowed reports whether each enforced limit has a unit left; RetryAfter is
// the time until every limit has one.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	c := calls.Get().(*call)
	defer c.end(ctx)
	if err := c.gatherKey(l.inForce(), key, 0); err != nil {
		return Decision{}, err
	}
	return c.peek(ctx)
}

// PeekAll returns how key stands with all of the limiter's limits, including those of
// its routes, and charges nothing. Decision.Limits has each limit once; the rest of the
// Decision is of all of them together, which no request meets. Limits that a
// WithLimitFunc returns are left out, and so is a Bandwidth.
func (l *Limiter) PeekAll(ctx context.Context, key string) (Decision, error) {
	c := calls.Get().(*call)
	defer c.end(ctx)
	if err := c.gatherAll(l.inForce(), key); err != nil {
		return Decision{}, err
	}
	return c.peek(ctx)
}

// gatherAll adds a charge of cost 0 for each limit that applies to key.
func (c *call) gatherAll(v *version, key string) error {
	c.version, c.Store = v, v.store
	encoded, unfit := keytext.Encode(key)
	for e := range v.entries() {
		if e.needs&paces != 0 {
			continue
		}
		under, err := e.key.Under(encoded, unfit)
		if err != nil {
			return err
		}
		known := func(ch store.Charge) bool { return ch.Limit == e.limit && ch.Key == under }
		if !slices.ContainsFunc(c.Charges, known) {
			c.add(e, under, 0)
		}
	}
	if len(c.Charges) == 0 {
		return errUncharged
	}
	if c.needs&local != 0 {
		c.decideLocally()
	}
	return nil
}

// peek decides the charges, all of cost 0.
func (c *call) peek(ctx context.Context) (Decision, error) {
	c.walked = true
	if err := c.version.lines.Peek(ctx, &c.Call, (*caller)(c)); err != nil {
		return Decision{}, &StoreError{err}
	}
	for i := range c.Results {
		r := &c.Results[i]
		if r.OK = c.entries[i].kind.free(r); !r.OK {
			r.RetryAfter, _ = c.Charges[i].Limit.MoreAfter(r)
		}
	}
	var d Decision
	d.decide(c.entries, c.Charges, c.Results, make([]LimitStatus, len(c.Results)))
	return d, nil
}

// errUncharged is the error of a limiter with no limit that a key can be charged for. A
// call that charges nothing must not look as if it had been let through.
var errUncharged = errors.New("stint: the limiter has nothing to charge a key for (a Bandwidth, the limits of a WithLimitFunc and, except for PeekAll, those of a WithRoute are left out): add a limit to New, such as a stint.Rate")
