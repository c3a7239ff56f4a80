package stint

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/store"
)

// A call's charges on limits of this process come last, those for the store
// before them. Each has a slot, in c.local.

// addLocal adds the charge of an AdaptiveConcurrency.
func (c *call) addLocal(e *entry, key string, cost int64) {
	c.entries = append(c.entries, e)
	c.charges = append(c.charges, store.Charge{Key: key, Limit: e.adaptive.start, Cost: cost, DryRun: e.dryRun})
	c.results = append(c.results, store.Result{})
	c.local = append(c.local, adaptiveSlot{})
	c.policy = "" // its number changes
}

// stored is how many of the charges are the store's.
func (c *call) stored() int { return len(c.charges) - len(c.local) }

// veto is put in for local limits that refuse: the store then says what its
// own limits would have said, and charges nothing.
var veto = func() store.Charge {
	l, err := store.NewLimit(store.Spec{Name: "veto", Algorithm: store.Concurrency, Units: 1})
	if err != nil {
		panic(err)
	}
	return store.Charge{Limit: l, Cost: 2, MaxWait: time.Second} // counts for no ban
}()

// takeLocal is take for a call with local charges: their slots are taken
// first, and given back unless everything is granted.
func (c *call) takeLocal(ctx context.Context) error {
	n := c.stored()
	refused := false
	for i := range c.local {
		ch := &c.charges[n+i]
		c.results[n+i], c.local[i], ch.Limit = c.entries[n+i].adaptive.take(ch.Key, ch.Cost)
		refused = refused || !c.results[n+i].OK && !ch.DryRun
	}
	var err error
	switch {
	case n == 0:
	case refused:
		ch, r := c.charges[n], c.results[n]
		c.charges[n] = veto
		c.charges[n].Key = c.charges[0].Key // beside it in a cluster
		err = c.lim.store.Take(ctx, c.charges[:n+1], c.results[:n+1])
		c.charges[n], c.results[n] = ch, r
	default:
		err = c.lim.store.Take(ctx, c.charges[:n], c.results[:n])
		refused = err == nil && !granted(c.charges[:n], c.results[:n])
	}
	if err != nil || refused {
		c.freeLocal()
	}
	return err
}

// freeLocal gives a call's slots back without a sample. The results then say,
// as a store's do, what there is without them.
func (c *call) freeLocal() {
	n := c.stored()
	for i := range c.local {
		s := &c.local[i]
		if s.held == 0 {
			continue
		}
		s.inFlight -= s.held
		c.results[n+i].Remaining = max(0, c.charges[n+i].Limit.Spec().Units-s.inFlight)
		s.free(nil)
		c.lim.family.slots.Wake(slotsOf(&c.charges[n+i]))
	}
}

// goOn has a call go on without its charges on the store, which has failed, and
// reports whether it does: where its enforced limits were none of the store's,
// or the limits of this process, which need no store, still hold.
func (c *call) goOn(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.As(err, new(*canceledError)) {
		return false
	}
	n := c.stored()
	stored, local, closed := false, false, false
	for i, e := range c.entries {
		stored = stored || i < n && !e.dryRun
		local = local || i >= n && !e.dryRun
		closed = closed || e.closed
	}
	if stored && (closed || !local) {
		return false
	}
	c.lim.observe(Event{Kind: StoreFailed, Request: c.r, Err: err})
	c.drop(n)
	return true
}

// drop leaves out the call's first n charges, which have not been made.
func (c *call) drop(n int) {
	c.local = slices.Delete(c.local, 0, max(0, n-c.stored()))
	c.entries = slices.Delete(c.entries, 0, n)
	c.charges = slices.Delete(c.charges, 0, n)
	c.results = slices.Delete(c.results, 0, n)
	if len(c.lines) > 0 {
		c.lines = c.lines[n:]
	}
}

// describe adds to statuses, those of a decision, what only local limits say.
func describe(local []adaptiveSlot, statuses []LimitStatus) {
	statuses = statuses[len(statuses)-len(local):]
	for i := range local {
		statuses[i].Reason = local[i].reason
		statuses[i].hold(local[i].inFlight)
	}
}

// localPermit is what a permit holds of local limits.
type localPermit struct {
	slots   []adaptiveSlot
	since   time.Time
	outcome atomic.Uint32 // of outcomes
}

// outcomes of a request, as its handler or its end has told.
const (
	finished uint32 = iota
	dropped         // the handler says so, whatever else there is to see
	failed
	ignored
)

// local makes the permit's part of a call's slots.
func (c *call) localPermit() *localPermit {
	if len(c.local) == 0 {
		return nil
	}
	return &localPermit{slots: append([]adaptiveSlot(nil), c.local...), since: time.Now()}
}

// statuses are the slots, of a nil localPermit too.
func (l *localPermit) statuses() []adaptiveSlot {
	if l == nil {
		return nil
	}
	return l.slots
}

// end tells the outcome unless the handler has.
func (l *localPermit) end(outcome uint32) { l.outcome.CompareAndSwap(finished, outcome) }

// Drop says that the request failed for want of capacity, as when a backend
// was overloaded or timed out: an AdaptiveConcurrency halves its limit where at
// least one in twenty requests does. It says so for all limiters that the
// request has passed, and does nothing after Done, or without such a limit.
func (p *Permit) Drop() { p.tell(dropped) }

// Ignore says that the request's duration says nothing about the service's
// load, as when it waits for an event: an AdaptiveConcurrency doesn't look at
// it. It says so for all limiters that the request has passed, and does nothing
// after Done, or without such a limit.
func (p *Permit) Ignore() { p.tell(ignored) }

func (p *Permit) tell(outcome uint32) {
	for ; p != nil; p = p.outer {
		if p.local != nil {
			p.local.outcome.Store(outcome)
		}
	}
}

// turnedAway says that a limiter further in has refused: what the response then
// is says nothing about the work.
func (p *Permit) turnedAway() {
	for ; p != nil; p = p.outer {
		if p.local != nil {
			p.local.end(ignored)
		}
	}
}

// sample is what the request has shown; nil if nothing. Outside HTTP its context
// says nothing: it may have bounded the wait, and ended before the work.
func (p *Permit) sample() *adaptive.Sample {
	outcome := p.local.outcome.Load()
	if outcome == ignored {
		return nil
	}
	s := &adaptive.Sample{RTT: time.Since(p.local.since), Dropped: outcome == dropped}
	if p.response != nil {
		s.RTT -= p.response.HeldUp()
	}
	err := p.ctx.Err()
	switch late := errors.Is(err, context.DeadlineExceeded); {
	case p.response == nil:
		s.Failed = outcome == failed
	case outcome == failed || late:
		s.Failed = true
	case err != nil:
		s.Cut = true
	}
	return s
}

// releaseLocal gives the permit's local slots back with what the request has
// shown, and returns what has changed by it.
func (p *Permit) releaseLocal() (changes []*LimitChange) {
	l := p.local
	if p.response != nil {
		switch got, ok := p.response.Outcome(); {
		case !ok:
		case got.Hijacked:
			l.end(ignored) // a connection's life, not a request's
		case got.Status >= http.StatusInternalServerError:
			l.end(failed)
		}
	}
	sample := p.sample()
	first := len(p.charges) - len(l.slots)
	for i := range l.slots {
		if change := l.slots[i].free(sample); change != nil {
			changes = append(changes, change)
		}
		p.lim.family.slots.Wake(slotsOf(&p.charges[first+i]))
	}
	return changes
}
