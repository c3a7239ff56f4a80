package stint

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint/store"
)

// Take charges cost to all of the limiter's limits (not those of its routes)
// for one key: jobs, queues, RPCs. The error is a *DeniedError when a limit
// refuses, and nothing is charged then. Predicates, key functions and WithCost
// are about requests and don't count here; WithMaxWait does. Call Done on the
// permit when the work is over.
//
// When the store fails and no limit is FailClosed, the permit is an empty one.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.takeKey(ctx, key, cost, false)
}

// Wait is Take, but blocks until it is key's turn, or until ctx ends; then
// nothing is charged and the error wraps ctx's. A turn that comes after ctx's
// deadline, or after an hour where ctx has none, is refused at once with a
// *DeniedError, as is a cost that can never pass. Slots of a concurrency limit
// are waited for that long, if their WithQueue has room; by the deadline that is
// a *DeniedError as well.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.takeKey(ctx, key, cost, true)
}

func (l *Limiter) takeKey(ctx context.Context, key string, cost int64, patient bool) (*Permit, error) {
	if cost < 1 || cost > store.MaxCost {
		return nil, fmt.Errorf("stint: cost %d: write 1 to %d, or use Peek: %w", cost, int64(store.MaxCost), store.ErrCost)
	}
	c := newCall(l.now.Load(), nil)
	defer c.end(ctx)
	if err := c.gatherKey(key, cost); err != nil {
		return nil, err
	}
	c.patient = patient
	if err := c.decide(ctx); err != nil {
		if err = c.failed(ctx, err); err != nil {
			return nil, err
		}
		return &Permit{}, nil
	}
	if !c.granted {
		err := c.denied()
		c.lim.observeCall(Denied, c, err)
		return nil, err
	}
	p := c.permit(ctx)
	c.lim.observeCall(Admitted, c, nil)
	c.handOver()
	return p, nil
}

// gatherKey makes the charges of one key.
func (c *call) gatherKey(key string, cost int64) error {
	encoded, err := encodeKey(key)
	if err != nil {
		return err
	}
	if len(c.lim.base.entries) == 0 {
		return errNoLimits
	}
	c.waits = c.lim.base.waits
	for _, e := range c.lim.base.entries {
		if e.bandwidth == nil {
			c.add(e, encoded, cost)
		}
	}
	if len(c.charges) == 0 {
		return errPaces
	}
	return nil
}

// Peek returns where key stands with the limiter's limits, and charges
// nothing. Decision.Allowed says whether each enforced limit has a unit left,
// and RetryAfter when the last of those that don't will.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	c := newCall(l.now.Load(), nil)
	defer c.free()
	if err := c.gatherKey(key, 0); err != nil {
		return Decision{}, err
	}
	if err := c.ask(ctx); err != nil {
		return Decision{}, &StoreError{err}
	}
	for i := range c.results {
		// A limit with debt may let a charge pass without having a whole unit.
		r := &c.results[i]
		if r.OK = r.Remaining > 0 || r.ResetAfter == 0 && !c.entries[i].slots; !r.OK && !c.entries[i].slots {
			r.RetryAfter = moreAfter(c.charges[i].Limit, r)
		}
	}
	var d Decision
	d.decide(c.charges, c.results, make([]LimitStatus, len(c.results)))
	describe(c.local, d.Limits)
	return d, nil
}

// Reset forgets what key has consumed of the limiter's limits, those of its
// routes included, and the slots it holds. It needs a store that can: a
// store.Resetter, as the memory store is. An
// AdaptiveConcurrency starts anew for key.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	v := l.now.Load()
	limits, local := v.limits()
	rs, ok := v.store.(store.Resetter)
	if !ok && len(limits) > 0 {
		return fmt.Errorf("stint: Reset: %T can't: its store has no Reset method (store.Resetter)", v.store)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return err
	}
	if len(limits) > 0 {
		if err := rs.Reset(ctx, encoded, limits...); err != nil {
			return &StoreError{err}
		}
	}
	for _, keys := range local {
		keys.reset(encoded)
	}
	return nil
}

// limits returns each limit of the limiter and its routes once: those of the
// store, and those of this process.
func (v *version) limits() (all []*store.Limit, local []*adaptiveKeys) {
	seen := map[*store.Limit]bool{}
	for e := range v.entries() {
		switch {
		case seen[e.limit]:
		case e.adaptive != nil:
			local = append(local, e.adaptive.keys)
		default:
			all = append(all, e.limit)
		}
		seen[e.limit] = true
	}
	return all, local
}

var errPaces = errors.New("stint: the limiter has nothing but a Bandwidth, which is about responses: Take, Wait and Peek use other limits")

var errNoLimits = errors.New("stint: the limiter has limits on its routes only: Take, Wait and Peek use those of the limiter itself")
