package stint

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/store"
)

// process has the limits of this process, once there are any: a server without them
// is not built with what decides them.
type process struct {
	freed func(limit, key string)
	once  sync.Once
	all   atomic.Pointer[adaptive.Process]
}

// made is what there is, made first if there is none.
func (p *process) made(begin func(freed func(limit, key string)) adaptive.Process) adaptive.Process {
	p.once.Do(func() {
		all := begin(p.freed)
		p.all.Store(&all)
	})
	return p.now()
}

// now is what there is; nil before any.
func (p *process) now() adaptive.Process {
	if all := p.all.Load(); all != nil {
		return *all
	}
	return nil
}

// decideLocally has the call decided where its limits of this process are. Charges
// on these come last.
func (c *call) decideLocally() {
	c.Store = c.lim.family.adaptive.now().Over(c.lim.store)
	c.policy = "" // their numbers change
	n := 0
	for i, e := range c.entries {
		if e.needs&local != 0 {
			continue
		}
		if i > n {
			ch := c.Charges[i]
			copy(c.entries[n+1:], c.entries[n:i])
			copy(c.Charges[n+1:], c.Charges[n:i])
			c.entries[n], c.Charges[n] = e, ch
		}
		n++
	}
}

// goOn has a call go on without its charges on the store, which has failed with
// err: where its enforced limits were none of the store's, or the limits of this
// process, which need no store, still hold. Otherwise err is the answer.
func (c *call) goOn(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.As(err, new(*canceledError)) {
		return err
	}
	stored, here, closed := false, false, false
	for _, e := range c.entries {
		stored = stored || e.needs&local == 0 && !e.dryRun
		here = here || e.needs&local != 0 && !e.dryRun
		closed = closed || e.closed
	}
	if stored && (closed || !here) {
		return err
	}
	c.lim.observe(Event{Kind: EventStoreFailed, Request: c.r, Err: err})
	c.keep(func(e *entry) bool { return e.needs&local != 0 })
	return c.decide(ctx)
}

// keep leaves out the charges of all other limits, which have not been made.
func (c *call) keep(which func(*entry) bool) {
	n := 0
	c.needs = c.ofPaced()
	for i, e := range c.entries {
		if !which(e) {
			continue
		}
		c.needs |= e.needs
		c.entries[n], c.Charges[n], c.Results[n] = e, c.Charges[i], c.Results[i]
		if len(c.Seen) > 0 {
			c.Seen[n] = c.Seen[i]
		}
		n++
	}
	c.entries = slices.Delete(c.entries, n, len(c.entries))
	c.Charges = slices.Delete(c.Charges, n, len(c.Charges))
	c.Results = slices.Delete(c.Results, n, len(c.Results))
	c.Seen = c.Seen[:min(n, len(c.Seen))]
}

// adapting is the kind of AdaptiveConcurrency.
type adapting struct {
	held
	config  adaptive.Config
	process func(freed func(limit, key string)) adaptive.Process
}

func configOf(r *rule) *adaptive.Config { return &r.kind.(*adapting).config }

func (a *adapting) enter(e *entry) {
	a.held.enter(e)
	e.needs |= local | watches
}

func (a *adapting) decided(l *store.Limit, p *process) *store.Limit {
	if adaptive.Of(l) != nil { // an Update has found the one there was
		return l
	}
	return p.made(a.process).Limit(l, a.config)
}

func (a *adapting) same(l *store.Limit) bool {
	was := adaptive.Of(l)
	return was != nil && was.Config() == a.config
}

// now is how many slots there are.
func (*adapting) now(c *store.Charge) int64 { return adaptive.Of(c.Limit).Meet(c.Key) }

func (*adapting) counted(*entry) bool { return false } // it is the service's state

func (*adapting) stood(c *store.Charge, r *store.Result) (int64, AdaptiveReason) {
	limit, why := adaptive.Of(c.Limit).Stood(c, r)
	return limit, AdaptiveReason(why)
}

// timing is how a request that has slots of an AdaptiveConcurrency has gone.
type timing struct {
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

// end tells the outcome unless the handler has.
func (t *timing) end(outcome uint32) { t.outcome.CompareAndSwap(finished, outcome) }

// Drop says that the request failed for want of capacity, as when a backend
// was overloaded or timed out: an AdaptiveConcurrency cuts its limit where at
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
		if p.timing != nil {
			p.timing.outcome.Store(outcome)
		}
	}
}

// turnedAway says that a limiter further in has refused: what the response then
// is says nothing about the work.
func (p *Permit) turnedAway() {
	for ; p != nil; p = p.outer {
		if p.timing != nil {
			p.timing.end(ignored)
		}
	}
}

// sample is what the request has shown; nil if nothing. Outside HTTP its context
// says nothing: it may have bounded the wait, and ended before the work.
func (p *Permit) sample() *adaptive.Sample {
	outcome := p.timing.outcome.Load()
	if outcome == ignored {
		return nil
	}
	s := &adaptive.Sample{RTT: time.Since(p.timing.since), Dropped: outcome == dropped}
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

// endTiming releases the permit's slots of this process with what the request has
// shown, and returns what has changed by it.
func (p *Permit) endTiming() (changes []*LimitChange) {
	if p.response != nil {
		switch got, ok := p.response.Outcome(); {
		case !ok:
		case got.Hijacked:
			p.timing.end(ignored) // a connection's life, not a request's
		case got.Status >= http.StatusInternalServerError:
			p.timing.end(failed)
		}
	}
	seen := p.sample()
	p.mu.Lock() // Decision may be at the results
	moved := p.lim.family.adaptive.now().End(p.charges, p.results, seen)
	p.mu.Unlock()
	for _, m := range moved {
		changes = append(changes, &LimitChange{
			Limit: m.Limit, From: m.From, To: m.To, Reason: AdaptiveReason(m.Reason),
			InFlight: m.InFlight, Latency: m.Latency, Baseline: m.Baseline,
		})
	}
	return changes
}
