package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// AdaptiveConcurrency limits a key (commonly Global) to a number of requests
// in flight that follows how long they take: it rises while they take as long
// as usual and at least half of it is in use, and falls when they take longer or
// fail. It starts at 20 and stays between min and max, at least 1 and at most
// 1,000,000. Its default name is "adaptive".
//
// The algorithms are those of Netflix's concurrency-limits
// (https://github.com/Netflix/concurrency-limits), with its numbers; see
// WithAdaptation. They learn from how long a request takes from when it is let
// in to Permit.Done, waits excluded:
//
//   - A status of 500 or above is a drop, and so are a handler's panic and a
//     request whose deadline passed. The status is known where an
//     adapter wraps the response as Permit.Next says.
//   - A request whose client left counts only if it has already taken longer
//     than others do.
//   - One whose connection was hijacked or detached (Permit.Detach), that a
//     limiter further in refused, or that panics with http.ErrAbortHandler,
//     isn't looked at; nor is one under 100 µs, which has waited for nothing, not
//     even if it fails.
//   - Outside HTTP (Take, Wait) the context isn't looked at: it may only have
//     bounded the wait.
//   - Permit.Drop and Permit.Ignore count before all of that, for what only the
//     handler knows.
//
// The limit and its slots live in this process, whatever the store: what a
// process can bear is its own. A slot is taken before the store decides the
// limits beside it and given back if one refuses, so all or none holds here
// too; while the store is down it goes on limiting. In Decision.Limits it comes
// after those of the store, with the limit of the moment as Quota.
//
// A limiter and those derived from it remember 10,000 keys that have nothing in
// flight, of all their adaptive limits together; beyond that those used least
// recently start anew, as do those of a limit that an Update has left out. A request that costs more
// than the limit of the moment, but no more than max, passes alone.
func AdaptiveConcurrency(min, max int64, opts ...AdaptiveOption) Limit {
	a := &adapting{
		process: func(freed func(limit, key string)) adaptive.Process { return adaptive.NewKeys(freed) },
		config: adaptive.Config{
			Min: min, Max: max, Window: adaptive.DefaultWindow,
		},
	}
	a.of.slots = a.now
	r := &rule{kind: a, lines: newLines, spec: store.Spec{Name: "adaptive", Algorithm: store.Concurrency, Units: max}}
	if min < 1 || max < min || max > mostAdaptive {
		r.errs.bad(fmt.Sprintf("AdaptiveConcurrency(%d, %d)", min, max), "",
			fmt.Sprintf("write a min of 1 or more, and a max of no less, up to %d", mostAdaptive))
		r.spec.Units = 1 // or the store's limit would be reported too
	}
	apply(r, opts)
	c := &a.config
	switch {
	case c.Start == 0:
		c.Start = adaptive.DefaultStart
		c.Start = clamp(c.Start, min, max)
	case c.Start < min || c.Start > max:
		r.errs.bad(fmt.Sprintf("WithInitialLimit(%d)", c.Start), "", fmt.Sprintf("write %d to %d, what AdaptiveConcurrency stays between", min, max))
	}
	ofOne(r, "WithTolerance", "tolerance", adaptive.Gradient2, &c.Tolerance, adaptive.DefaultTolerance)
	ofOne(r, "WithLatencyTimeout", "latency timeout", adaptive.AIMD, &c.Timeout, adaptive.DefaultTimeout)
	return Limit{r}
}

// ofOne fills in a number that one adaptation goes by, where no option has said it.
// Under another one an option would do nothing.
func ofOne[N comparable](r *rule, option, what string, of adaptive.Algorithm, n *N, otherwise N) {
	if *n == *new(N) {
		*n = otherwise
	} else if has := configOf(r).Algorithm; has != of {
		r.errs.bad(option, fmt.Sprintf("%v has no %s", has, what), fmt.Sprintf("leave it out, or write %v", of))
	}
}

// mostAdaptive is the largest max: far above what a process has in flight.
const mostAdaptive = 1_000_000

func clamp(n, low, high int64) int64 { return max(low, min(n, high)) }

// Adaptation is how an AdaptiveConcurrency follows the latency.
type Adaptation uint8

const (
	// Gradient2 compares latency with its long-term average. It is lenient
	// with work of mixed durations, and lets latency grow by the tolerance
	// before it shrinks the limit. It does not go below 8 for latency's sake.
	Gradient2 Adaptation = iota
	// Vegas estimates the queue from the smallest latency seen and keeps it
	// to a few requests. It stays close to what a service can do at once where
	// requests are many and alike; where durations differ by chance, it takes
	// that for a queue and refuses what is healthy.
	Vegas
	// AIMD adds one to the limit while requests take no longer than
	// WithLatencyTimeout, and takes a tenth off when one in twenty takes longer
	// or fails. It needs no usual latency, so no overload becomes usual to it, and
	// processes in front of one service end up with equal limits. The queue is as
	// long as the timeout allows: choose the timeout for your service.
	AIMD
)

// WithAdaptation says how an AdaptiveConcurrency follows the latency. The
// default is Gradient2.
func WithAdaptation(a Adaptation) AdaptiveOption {
	return adaptiveOption{change: func(r *rule) {
		switch a {
		case Gradient2:
			configOf(r).Algorithm = adaptive.Gradient2
		case Vegas:
			configOf(r).Algorithm = adaptive.Vegas
		case AIMD:
			configOf(r).Algorithm = adaptive.AIMD
		default:
			r.errs.bad(fmt.Sprintf("WithAdaptation(%d)", a), "", "write stint.Gradient2, stint.Vegas or stint.AIMD")
		}
	}}
}

// WithTolerance says by what factor latency may exceed its long-term average
// before Gradient2 shrinks an AdaptiveConcurrency: 1 or more, by default 1.5.
// With 1 the limit stays within some requests of what the service can do at
// once, where requests are many and alike; with 1.5 it is half above that and
// rises further while an overload doesn't let up, but mixed work isn't mistaken
// for overload. New refuses it beside Vegas and AIMD.
func WithTolerance(factor float64) AdaptiveOption {
	return adaptiveOption{change: func(r *rule) {
		if !(factor >= 1 && factor <= 100) { // NaN is neither
			r.errs.bad(fmt.Sprintf("WithTolerance(%v)", factor), "", "write 1 or more, up to 100")
			return
		}
		configOf(r).Tolerance = factor
	}}
}

// WithLatencyTimeout says how long a request may take before AIMD counts it as
// slow and shrinks an AdaptiveConcurrency: 100 µs or more, by default 5 s, as
// in Netflix's library. No request is interrupted. New refuses it beside Gradient2,
// the default, and Vegas.
//
// A good start is twice what the slowest requests take without a queue. If more
// than one in twenty takes longer than d without any queue, the limit falls to
// its min.
func WithLatencyTimeout(d time.Duration) AdaptiveOption {
	return adaptiveOption{change: func(r *rule) {
		if d < 100*time.Microsecond {
			r.errs.bad(fmt.Sprintf("WithLatencyTimeout(%v)", d), "", "write 100µs or more")
			return
		}
		configOf(r).Timeout = d
	}}
}

// WithInitialLimit says where an AdaptiveConcurrency starts; by default 20, or
// what of min and max is nearer to it.
func WithInitialLimit(n int64) AdaptiveOption {
	return adaptiveOption{change: func(r *rule) {
		if n < 1 {
			r.errs.bad(fmt.Sprintf("WithInitialLimit(%d)", n), "", "write 1 or more")
			return
		}
		configOf(r).Start = n
	}}
}

// WithSampleWindow says over what time an AdaptiveConcurrency averages latency
// before it changes; by default a second, and at least 100 ms. A window goes on
// until it has ten requests. Shorter ones follow faster, and mistake chance for
// change sooner.
func WithSampleWindow(d time.Duration) AdaptiveOption {
	return adaptiveOption{change: func(r *rule) {
		if d < 100*time.Millisecond {
			r.errs.bad(fmt.Sprintf("WithSampleWindow(%v)", d), "", "write 100ms or more")
			return
		}
		configOf(r).Window = d
	}}
}

// AdaptiveReason is why the limit of an AdaptiveConcurrency is what it is.
type AdaptiveReason uint8

const (
	// NotAdaptive: it is another limit.
	NotAdaptive = AdaptiveReason(adaptive.None)
	// AdaptiveStart: too few requests have been seen to move it.
	AdaptiveStart = AdaptiveReason(adaptive.Start)
	// AdaptiveGrowing: it has risen, as requests take as long as usual.
	AdaptiveGrowing = AdaptiveReason(adaptive.Growing)
	// AdaptiveQueueing: it has fallen, as they take longer.
	AdaptiveQueueing = AdaptiveReason(adaptive.Queueing)
	// AdaptiveDrops: it has been halved, or cut by a tenth under AIMD, as they fail.
	AdaptiveDrops = AdaptiveReason(adaptive.Drops)
	// AdaptiveSteady: nothing calls for another, or it is at min or max.
	AdaptiveSteady = AdaptiveReason(adaptive.Steady)
	// AdaptiveUnused: less than half of it is in use, so it can't be told
	// whether more would be too much.
	AdaptiveUnused = AdaptiveReason(adaptive.Unused)
)

var reasonNames = [...]string{"not adaptive", "start", "growing", "queueing", "drops", "steady", "unused"}

// String returns the reason in a word.
func (r AdaptiveReason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("AdaptiveReason(%d)", uint8(r))
}

// LimitChange is a change of an AdaptiveConcurrency, as the observer is told.
type LimitChange struct {
	// Limit is its name. Several keys of one limit change apart.
	Limit string
	// From and To are the limits before and after.
	From, To int64
	// Reason is why.
	Reason AdaptiveReason
	// InFlight is how many units are in flight.
	InFlight int64
	// Latency is the average of the requests that have led to it, and
	// Baseline what it has been compared with (under AIMD, its timeout); 0 where
	// there was none.
	Latency, Baseline time.Duration
}

// decideLocally has the call decided where its limits of this process are. Charges
// on these come last.
func (c *call) decideLocally() {
	c.Store = c.lim.family.process.now().Over(c.lim.store)
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
	c.lim.observeOf(&Event{Kind: EventStoreFailed, Route: c.plan.route(), Request: c.r, Err: err}, c.Charges)
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
	e.needs, e.watch = e.needs|local|watches, watch
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

// story is how a request has gone.
type story struct {
	waited  time.Duration
	seen    []waiting.Seen
	since   time.Time     // when it was let in
	learns  bool          // an AdaptiveConcurrency learns from it
	outcome atomic.Uint32 // of outcomes
}

// learns reports whether an AdaptiveConcurrency learns from the request.
func (p *Permit) learns() bool { return p.story != nil && p.story.learns }

// outcomes of a request, as its handler or its end has told.
const (
	finished uint32 = iota
	dropped         // the handler says so, whatever else there is to see
	failed
	ignored
)

// end tells the outcome unless the handler has.
func (s *story) end(outcome uint32) { s.outcome.CompareAndSwap(finished, outcome) }

// Drop says that the request failed for want of capacity, as when a backend
// was overloaded or timed out: an AdaptiveConcurrency cuts its limit where at
// least one in twenty requests does. It says so for all limiters that the
// request has passed, and does nothing after Done, or without such a limit.
func (p *Permit) Drop() { p.note(dropped) }

// Ignore says that the request's duration says nothing about the service's
// load, as when it waits for an event: an AdaptiveConcurrency doesn't look at
// it. It says so for all limiters that the request has passed, and does nothing
// after Done, or without such a limit.
func (p *Permit) Ignore() { p.note(ignored) }

func (p *Permit) note(outcome uint32) {
	for ; p != nil; p = p.outer {
		if p.learns() {
			p.story.outcome.Store(outcome)
		}
	}
}

// turnedAway says that a limiter further in has refused: what the response then
// is says nothing about the work.
func (p *Permit) turnedAway() {
	for ; p != nil; p = p.outer {
		if p.learns() {
			p.story.end(ignored)
		}
	}
}

// sample is what the request has shown; nil if nothing. Outside HTTP its context
// says nothing: it may have bounded the wait, and ended before the work.
func (p *Permit) sample() *adaptive.Sample {
	outcome := p.story.outcome.Load()
	if outcome == ignored {
		return nil
	}
	s := &adaptive.Sample{RTT: clock.Since(p.story.since), Dropped: outcome == dropped}
	if p.response != nil && p.response.pacing != nil {
		s.RTT -= p.response.pacing.HeldUp()
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
func (p *Permit) endTiming() []adaptive.Change {
	if p.response != nil {
		switch got, ok := p.response.Outcome(); {
		case !ok:
		case got.Hijacked:
			p.story.end(ignored) // a connection's life, not a request's
		case got.Status >= http.StatusInternalServerError:
			p.story.end(failed)
		}
	}
	seen := p.sample()
	p.mu.Lock() // Decision may be at the results
	c := calls.Get().(*call)
	defer c.end(context.Background())
	c.recall(p.grants)
	changes := p.lim.family.process.now().End(c.Charges, c.Results, seen)
	for i := range c.Results {
		p.grants[i].result.Receipt = c.Results[i].Receipt
	}
	p.mu.Unlock()
	return changes
}

// changed tells the observers that a limit has changed.
func (p *Permit) changed(c *adaptive.Change) {
	p.lim.observeOf(&Event{Kind: EventLimitChanged, Route: p.plan.route(), Change: &LimitChange{
		Limit: c.Charge.Limit.Name(), From: c.From, To: c.To, Reason: AdaptiveReason(c.Reason),
		InFlight: c.InFlight, Latency: c.Latency, Baseline: c.Baseline,
	}}, []store.Charge{c.Charge})
}
