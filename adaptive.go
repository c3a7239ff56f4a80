package stint

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// AdaptiveConcurrency limits a key (commonly Global) to a number of requests in flight
// that follows how long they take. The limit rises while requests take as long as usual
// and at least half of it is in use, and falls when they take longer or fail. It starts
// at 20 (WithInitialLimit) and stays between min and max. The default name is
// "adaptive".
//
// min is at least 1, and max from min to 1,000,000; New rejects other numbers. It
// combines with every other kind of limit. Requests wait for its slots as for those of
// a Concurrency (WithQueue, WithMaxWait). A request that costs more than the present
// limit, but no more than max, passes alone.
//
// The algorithms are those of Netflix's concurrency-limits
// (https://github.com/Netflix/concurrency-limits), with its numbers; see
// WithAdaptation. They learn from how long a request takes from when it is admitted to
// Permit.Done, not including waits:
//
//   - A status of 500 or above is a drop, and so are a handler's panic and a request
//     whose deadline passed. The status is known if an adapter passes on the writer
//     of Limiter.Admit.
//   - A request whose client left counts only if it has already taken longer than
//     others do.
//   - These requests are ignored: those whose connection was hijacked or detached
//     (Permit.Detach), that an inner limiter denied, or that panic with
//     http.ErrAbortHandler; and those under 100 µs, which have waited for nothing, even
//     if they fail.
//   - Outside HTTP (Take, Wait) the context is ignored: it may only have bounded the
//     wait.
//   - Permit.Drop and Permit.Ignore take precedence over all of this, for what only the
//     handler knows.
//
// The limit and its slots belong to this process, whatever the store, because each
// process has its own capacity. A slot is taken before the store decides the other
// limits, and given back if one denies, so still either all limits are charged or
// none. While the store is down, the limit continues to work. In Decision.Limits it
// comes after the store's limits, with the present limit as Quota.
//
// A limiter and those derived from it remember 10,000 keys without requests in flight,
// for all their adaptive limits together. Beyond that the least recently used keys
// start anew, as do those of a limit that an Update has removed.
func AdaptiveConcurrency(min, max int64, opts ...AdaptiveOption) Limit {
	a := &adapting{config: adaptive.Config{Min: min, Max: max, Window: adaptive.DefaultWindow}}
	a.of.slots = a.now
	r := &rule{kind: a, spec: store.Spec{Name: "adaptive", Algorithm: store.Concurrency, Units: max}}
	if min < 1 || max < min || max > mostAdaptive {
		r.errs.Bad(fmt.Sprintf("AdaptiveConcurrency(%d, %d)", min, max), "",
			fmt.Sprintf("write a min of 1 or more, and a max of no less, up to %d", mostAdaptive))
		r.spec.Units = 1 // or the store's limit would be reported too
	}
	apply(r, opts)
	c := &a.config
	switch {
	case c.Start == 0:
		c.Start = adaptive.StartIn(min, max)
	case c.Start < min || c.Start > max:
		r.errs.Bad(fmt.Sprintf("WithInitialLimit(%d)", c.Start), "", fmt.Sprintf("write %d to %d, the range of the limit", min, max))
	}
	ofOne(r, "WithTolerance", "tolerance", adaptive.Gradient2, &c.Tolerance, adaptive.DefaultTolerance)
	ofOne(r, "WithLatencyTimeout", "latency timeout", adaptive.AIMD, &c.Timeout, adaptive.DefaultTimeout)
	return Limit{r}
}

// ofOne fills in the default of a number that only one adaptation uses. With another
// adaptation the option would have no effect, so it is a mistake.
func ofOne[N comparable](r *rule, option, what string, of adaptive.Algorithm, n *N, otherwise N) {
	if *n == *new(N) {
		*n = otherwise
	} else if has := configOf(r).Algorithm; has != of {
		r.errs.Bad(option, "%v has no "+what, "leave it out, or write %v", has, of)
	}
}

// mostAdaptive is the largest max: far more than a process has in flight.
const mostAdaptive = 1_000_000

// configures returns an option that sets part of the configuration, unless its argument is
// wrong.
func configures(valid bool, option, write string, set func(*adaptive.Config)) AdaptiveOption {
	return checkedChange(valid, option, write, func(r *rule) { set(configOf(r)) })
}

// Adaptation says how an AdaptiveConcurrency follows the latency.
type Adaptation uint8

const (
	// Gradient2 compares latency with its long-term average. It is lenient with work of
	// mixed durations: latency may grow by the tolerance before the limit shrinks.
	// Latency alone doesn't take the limit below 8.
	Gradient2 = Adaptation(adaptive.Gradient2)
	// Vegas estimates the queue from the smallest latency seen, and keeps it to a few
	// requests. If requests are many and alike, it stays close to what a service can do
	// at once. If durations vary by chance, it takes that for a queue and denies
	// requests that the service could handle.
	Vegas = Adaptation(adaptive.Vegas)
	// AIMD adds one to the limit while requests take no longer than WithLatencyTimeout,
	// and takes off a tenth when one in twenty takes longer or fails. It needs no usual
	// latency, so an overload never becomes usual to it, and processes in front of one
	// service end up with equal limits. The queue grows as long as the timeout allows:
	// choose the timeout for your service.
	AIMD = Adaptation(adaptive.AIMD)
)

// WithAdaptation sets how an AdaptiveConcurrency follows the latency: Gradient2, Vegas
// or AIMD. The default is Gradient2. New rejects any other value.
func WithAdaptation(a Adaptation) AdaptiveOption {
	return configures(a <= AIMD, fmt.Sprintf("WithAdaptation(%d)", a), "write stint.Gradient2, stint.Vegas or stint.AIMD",
		func(c *adaptive.Config) { c.Algorithm = adaptive.Algorithm(a) })
}

// WithTolerance sets the factor by which latency may exceed its long-term average
// before Gradient2 shrinks the limit, from 1 to 100. The default is 1.5. New rejects
// other values, and the option beside Vegas and AIMD.
//
// With 1, if requests are many and alike, the limit stays within a few requests of what
// the service can do at once. With 1.5 it is half above that, and rises further while
// an overload lasts, but mixed work isn't mistaken for overload.
func WithTolerance(factor float64) AdaptiveOption {
	valid := factor >= 1 && factor <= 100 // NaN is neither
	return configures(valid, fmt.Sprintf("WithTolerance(%v)", factor), "write 1 or more, up to 100",
		func(c *adaptive.Config) { c.Tolerance = factor })
}

// WithLatencyTimeout sets how long a request may take before AIMD counts it as slow and
// shrinks the limit: 100 µs or more. No request is interrupted. The default is 5 s, as
// in Netflix's library. New rejects shorter times, and the option beside Gradient2 (the
// default) and Vegas.
//
// Start with twice what the slowest requests take without a queue. If more than one in
// twenty takes longer than d without any queue, the limit falls to its min.
func WithLatencyTimeout(d time.Duration) AdaptiveOption {
	return configures(d >= 100*time.Microsecond, fmt.Sprintf("WithLatencyTimeout(%v)", d), "write 100µs or more",
		func(c *adaptive.Config) { c.Timeout = d })
}

// WithInitialLimit sets where an AdaptiveConcurrency starts, between its min and max.
// The default is 20, or the nearer of min and max if 20 is outside. New rejects other
// values.
func WithInitialLimit(n int64) AdaptiveOption {
	return configures(n >= 1, fmt.Sprintf("WithInitialLimit(%d)", n), "write 1 or more",
		func(c *adaptive.Config) { c.Start = n })
}

// WithSampleWindow sets the time over which an AdaptiveConcurrency averages latency
// before it changes: 100 ms or more. The default is a second. New rejects shorter
// windows. A window continues until it has ten requests. Shorter windows react faster,
// and mistake chance for change sooner.
func WithSampleWindow(d time.Duration) AdaptiveOption {
	return configures(d >= 100*time.Millisecond, fmt.Sprintf("WithSampleWindow(%v)", d), "write 100ms or more",
		func(c *adaptive.Config) { c.Window = d })
}

// AdaptiveReason explains the present limit of an AdaptiveConcurrency.
type AdaptiveReason uint8

const (
	// NotAdaptive: it is another kind of limit.
	NotAdaptive = AdaptiveReason(adaptive.None)
	// AdaptiveStart: too few requests have been seen to change it.
	AdaptiveStart = AdaptiveReason(adaptive.Start)
	// AdaptiveGrowing: it has risen, because requests take as long as usual.
	AdaptiveGrowing = AdaptiveReason(adaptive.Growing)
	// AdaptiveQueueing: it has fallen, because requests take longer than usual.
	AdaptiveQueueing = AdaptiveReason(adaptive.Queueing)
	// AdaptiveDrops: it has been halved, or cut by a tenth under AIMD, because requests
	// failed.
	AdaptiveDrops = AdaptiveReason(adaptive.Drops)
	// AdaptiveSteady: no change is called for, or it is at min or max.
	AdaptiveSteady = AdaptiveReason(adaptive.Steady)
	// AdaptiveUnused: less than half of it is in use, so nothing shows whether more
	// would be too much.
	AdaptiveUnused = AdaptiveReason(adaptive.Unused)
)

// String returns the reason as one word.
func (r AdaptiveReason) String() string { return adaptive.Reason(r).String() }

// LimitChange is a change of the limit of an AdaptiveConcurrency, as observers get it
// (EventLimitChanged).
type LimitChange struct {
	// Limit is its name. Each key of a limit changes by itself.
	Limit string
	// From and To are the limits before and after.
	From, To int64
	// Reason says why it changed.
	Reason AdaptiveReason
	// InFlight is the number of units in flight.
	InFlight int64
	// Latency is the average of the requests that led to the change, and Baseline what
	// it was compared with (AIMD: its timeout). Both are 0 if there were none.
	Latency, Baseline time.Duration
}

// decideLocally makes the call use the store that decides the limits of this process and
// passes the rest on. Charges of the former come last.
func (c *call) decideLocally() {
	c.Store = c.version.local
	c.policy = "" // the limits' numbers change
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

// adapting is the kind of AdaptiveConcurrency.
type adapting struct {
	held
	config adaptive.Config
}

func configOf(r *rule) *adaptive.Config { return &r.kind.(*adapting).config }

func (a *adapting) enter(e *entry, r *rule) {
	a.held.enter(e, r)
	e.needs |= local | watches
}

func (a *adapting) says(s store.Spec) string {
	return fmt.Sprintf("AdaptiveConcurrency: %d to %d", a.config.Min, s.Units)
}

func (a *adapting) decided(l *store.Limit, all *adaptive.Keys) *store.Limit {
	if adaptive.RuleOf(l) != nil { // an Update kept the existing one
		return l
	}
	return all.Limit(l, a.config)
}

func (a *adapting) same(l *store.Limit) bool {
	was := adaptive.RuleOf(l)
	return was != nil && was.Config() == a.config
}

// now returns how many slots there are.
func (*adapting) now(c *store.Charge) int64 { return adaptive.RuleOf(c.Limit).Meet(c.Key) }

// counted: the service's load must not get anybody banned.
func (*adapting) counted(*entry) bool { return false }

func (*adapting) stood(c *store.Charge, r *store.Result) (int64, AdaptiveReason) {
	limit, why := adaptive.RuleOf(c.Limit).Stood(c, r)
	return limit, AdaptiveReason(why)
}

// story is the observations of a request.
type story struct {
	waited  time.Duration
	seen    []waiting.Seen
	since   time.Time     // when it was admitted
	held    time.Duration // how long it held slots, once they are released
	learns  bool          // whether an AdaptiveConcurrency learns from it
	outcome adaptive.Outcome
}

// learns reports whether an AdaptiveConcurrency learns from the request.
func (p *Permit) learns() bool { return p.story != nil && p.story.learns }

// Drop reports that the request failed for lack of capacity, for instance because a
// backend was overloaded or timed out. An AdaptiveConcurrency cuts its limit if at
// least one in twenty requests does. It applies to all limiters that the request has
// passed, and does nothing after Done or without such a limit.
func (p *Permit) Drop() { p.record((*adaptive.Outcome).Report, adaptive.Dropped) }

// Ignore reports that the request's duration says nothing about the service's load, for
// instance because it waited for an event. An AdaptiveConcurrency doesn't learn from
// it. It applies to all limiters that the request has passed, and does nothing after
// Done or without such a limit.
func (p *Permit) Ignore() { p.record((*adaptive.Outcome).Report, adaptive.Ignored) }

// recordInnerDenial records that an inner limiter has denied: the response then says nothing
// about the work.
func (p *Permit) recordInnerDenial() { p.record((*adaptive.Outcome).Show, adaptive.Ignored) }

func (p *Permit) record(by func(*adaptive.Outcome, adaptive.Ending), e adaptive.Ending) {
	for ; p != nil; p = p.outer {
		if p.learns() {
			by(&p.story.outcome, e)
		}
	}
}

// sample returns what was observed of the request, or nil. Outside HTTP its context
// says nothing: it may have bounded the wait and ended before the work.
func (p *Permit) sample() *adaptive.Sample {
	took, err := clock.Since(p.story.since), p.ctx.Err()
	switch {
	case p.response == nil:
		err = nil
	case p.response.pacing != nil:
		took -= p.response.pacing.HeldUp()
	}
	return p.story.outcome.Sample(took, err)
}

// endTiming releases the permit's slots of this process with what was observed of the
// request, and returns what has changed by it.
func (p *Permit) endTiming() []adaptive.Change {
	if p.response != nil && p.story.outcome.Open() {
		switch got, ok := p.response.Outcome(); {
		case !ok:
		case got.Hijacked:
			p.story.outcome.Show(adaptive.Ignored) // the duration is that of a connection, not of a request
		case got.Status >= http.StatusInternalServerError:
			p.story.outcome.Show(adaptive.Failed)
		}
	}
	seen := p.sample()
	p.mu.Lock() // Decision may be reading the results
	c := calls.Get().(*call)
	defer c.end(context.Background())
	c.recall(p.grants)
	changes := p.version.family.adaptive.End(c.Charges, c.Results, seen)
	for i := range c.Results {
		p.grants[i].result.Receipt = c.Results[i].Receipt
	}
	p.mu.Unlock()
	return changes
}

// observeLimitChange notifies the observers that a limit has changed.
func (p *Permit) observeLimitChange(c *adaptive.Change) {
	p.version.observeOf(&Event{Kind: EventLimitChanged, Route: p.plan.route(), Change: &LimitChange{
		Limit: c.Charge.Limit.Name(), From: c.From, To: c.To, Reason: AdaptiveReason(c.Reason),
		InFlight: c.InFlight, Latency: c.Latency, Baseline: c.Baseline,
	}}, []store.Charge{c.Charge})
}
