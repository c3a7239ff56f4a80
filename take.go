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
// AdaptiveConcurrency: slots are held until somebody gives them back, and Allow
// leaves nobody to do it. Use Take, and its permit's Done.
var ErrHolds = errors.New("stint: Allow: the limiter has a limit whose slots are held: use Take, and Done")

// Allow charges cost to all of the limiter's limits (not those of its routes) for
// one key, and is done: it is Take for jobs, queues and RPCs that are charged once
// and hold nothing. The error is nil when all limits let it pass, a *DeniedError
// when one refuses, and the same as Take's otherwise; unless it is nil, nothing is
// charged. Keys are Take's too.
//
// It returns ErrHolds where a limit of the limiter has slots, also in a dry run. A
// Bandwidth and WithSettle are about responses, and are ignored. Where a limit makes
// callers wait (WithMaxWait, WithQueue, a LeakyBucket), Allow sleeps until its turn
// has come. When the store fails, the error is nil unless a limit is FailClosed.
//
// It allocates nothing when it returns nil from a store in memory, where nothing
// waits or observes.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) error {
	c := calls.Get().(*call)
	defer c.end(ctx)
	v := l.now.Load()
	for _, e := range v.base.entries {
		if e.wait.Way == waiting.ForSlot {
			return ErrHolds
		}
	}
	if decided, err := c.outside(v, ctx, key, cost); err != nil || !decided {
		return err
	}
	c.observe(EventAdmitted, nil)
	c.Granted = false // nobody gives it back
	return nil
}

// Take charges cost to all of the limiter's limits (not those of its routes)
// for one key: jobs, queues, RPCs. The error is a *DeniedError when a limit
// refuses, and nothing is charged then; nor if ctx has already ended, when the
// error wraps ctx's. Call Done on the permit when the work is over. Where no limit
// has slots and nothing is settled, Allow does the same for less.
//
// Limits with a constant key (Global, and Join or Hash of such keys) are charged
// under that key, as for requests; all others under the key given. Predicates,
// other key functions and WithCost are about requests and are ignored;
// WithMaxWait counts. A limiter that is only for Take has WithKey(GivenKey()).
//
// When the store fails and no limit is FailClosed, the permit is an empty one.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, false)
}

// Wait is Take, but blocks until it is key's turn, or until ctx ends; then
// nothing is charged and the error wraps ctx's. A turn that comes after ctx's
// deadline, or after an hour where ctx has none, is refused at once with a
// *DeniedError, as is a cost that can never pass. Slots of a concurrency limit
// are waited for that long, if their WithQueue has room; by the deadline that is
// a *DeniedError as well.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (*Permit, error) {
	l.family.process.open(newLines)
	return l.take(ctx, key, cost, true)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, patient bool) (*Permit, error) {
	c := calls.Get().(*call)
	defer c.end(ctx)
	c.Patient = patient
	decided, err := c.outside(l.now.Load(), ctx, key, cost)
	switch {
	case err != nil:
		return nil, err
	case !decided:
		return &Permit{}, nil
	}
	p := c.permit(ctx)
	c.observe(EventAdmitted, nil)
	c.Granted = false // it is the permit's now
	return p, nil
}

// outside decides a call outside HTTP. It is not decided, without an error, where
// the store has failed and nothing minds.
func (c *call) outside(v *version, ctx context.Context, key string, cost int64) (decided bool, err error) {
	if cost < 1 || cost > store.MaxCost {
		return false, fmt.Errorf("stint: cost %d: write 1 to %d, or use Peek: %w", cost, int64(store.MaxCost), store.ErrCost)
	}
	if err := c.gatherKey(v, key, cost); err != nil {
		return false, err
	}
	if err := c.decide(ctx); err != nil {
		return false, c.failed(ctx, err)
	}
	if !c.Granted {
		err := c.denied()
		c.observe(EventDenied, err)
		return false, err
	}
	return true, nil
}

// gatherKey makes the charges of one key.
func (c *call) gatherKey(v *version, key string, cost int64) error {
	c.lim, c.Store = v, v.store
	encoded, err := keytext.Encode(key)
	if err != nil {
		return err
	}
	if len(v.base.entries) == 0 {
		return errNoLimits
	}
	for _, e := range v.base.entries {
		if e.needs&paces == 0 {
			c.add(e, e.key.under(encoded), cost)
		}
	}
	if len(c.Charges) == 0 {
		return errPaces
	}
	if c.needs&local != 0 {
		c.decideLocally()
	}
	return nil
}

// Peek returns where key stands with the limiter's limits, and charges
// nothing. Decision.Allowed says whether each enforced limit has a unit left,
// and RetryAfter when the last of those that don't will.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	c := calls.Get().(*call)
	defer c.end(ctx)
	if err := c.gatherKey(l.now.Load(), key, 0); err != nil {
		return Decision{}, err
	}
	ask := c.Ask
	if ls := c.lim.family.process.lines(); ls != nil {
		ask = func(ctx context.Context) error { return ls.Peek(ctx, &c.Call, (*caller)(c)) }
	}
	if err := ask(ctx); err != nil {
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

// Reset forgets what key has consumed of the limiter's limits, those of its
// routes included, and the slots it holds. Limits with a constant key are left
// alone; see ResetLimit. An AdaptiveConcurrency starts anew for key.
//
// The store has to be a store.Resetter: those of memstore and redisstore are, and
// one of failover if both of its sides are. With any other store Reset returns an
// error.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	encoded, err := keytext.Encode(key)
	if err != nil {
		return err
	}
	return l.now.Load().reset(ctx, func(e *entry) string {
		if e.key.constant != "" {
			return ""
		}
		return encoded
	})
}

// ResetLimit is Reset of one limit that has a constant key, such as Global: what
// everybody has consumed of it together is forgotten. The name of another limit
// is an error.
func (l *Limiter) ResetLimit(ctx context.Context, name string) error {
	v := l.now.Load()
	known, constant := false, false
	for e := range v.entries() {
		if e.limit.Name() == name {
			known, constant = true, constant || e.key.constant != ""
		}
	}
	switch {
	case !known:
		return fmt.Errorf("stint: ResetLimit: the limiter has no limit %q", name)
	case !constant:
		return fmt.Errorf("stint: ResetLimit: the key of %q isn't constant: write Reset with the key to forget", name)
	}
	return v.reset(ctx, func(e *entry) string {
		if e.limit.Name() != name {
			return ""
		}
		return e.key.constant
	})
}

// reset makes the version's limits forget a key each: keyOf's, unless it is "".
func (v *version) reset(ctx context.Context, keyOf func(*entry) string) error {
	limits, stored := map[string][]*store.Limit{}, false
	for e := range v.entries() {
		if key := keyOf(e); key != "" && !slices.Contains(limits[key], e.limit) {
			limits[key] = append(limits[key], e.limit)
			stored = stored || e.needs&local == 0
		}
	}
	resetter, can := v.store.(store.Resetter)
	if stored && !can {
		return fmt.Errorf("stint: Reset: %T can't: its store has no Reset method (store.Resetter)", v.store)
	}
	if all := v.family.process.now(); all != nil {
		resetter, _ = all.Over(v.store).(store.Resetter)
	}
	for key, limits := range limits {
		if err := resetter.Reset(ctx, key, limits...); err != nil {
			return &StoreError{err}
		}
	}
	return nil
}

var errPaces = errors.New("stint: the limiter has nothing but a Bandwidth, which is about responses: Allow, Take, Wait and Peek use other limits")

var errNoLimits = errors.New("stint: the limiter has limits on its routes only: Allow, Take, Wait and Peek use those of the limiter itself")
