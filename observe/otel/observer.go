package stintotel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/failover"
)

// observer turns events into measurements.
type observer struct {
	instruments
	registration    metric.Registration
	stopped         atomic.Bool
	provider        any // its identity
	memory          []*memory
	series          table[id, series]
	limiters        table[string, limiter]
	faults          faults
	countedWarnings sync.Map // of warningID
	describe        func() stint.Description
}

func newObserver(provider any, stores []*memory) *observer {
	overflow := []attribute.KeyValue{overflowKey.Bool(true)}
	overflowSet := set(overflow...)
	return &observer{
		provider: provider, memory: stores,
		series: table[id, series]{
			make:     func(i id) *series { return newSeries(i.attributes()) },
			overflow: newSeries(overflow),
		},
		limiters: table[string, limiter]{
			make: func(name string) *limiter {
				l := newLimiter(id{limiter: name}.attributes())
				l.degraded.markUsed() // 0 until an event reports that it is degraded
				return l
			},
			overflow: newLimiter(overflow),
		},
		faults: faults{
			make:     func(f fault) *attributes { as := set(f.attributes()...); return &as },
			overflow: &overflowSet,
		},
	}
}

// start registers the observer's instruments with meter, until stop.
func (o *observer) start(meter metric.Meter) (err error) {
	if err := o.define(meter); err != nil {
		return err
	}
	if o.registration, err = meter.RegisterCallback(o.collect, o.observables()...); err != nil {
		return err
	}
	for _, m := range o.memory {
		m.begin(o.provider)
	}
	return nil
}

func (o *observer) stop() {
	_ = o.registration.Unregister()
	for _, m := range o.memory {
		m.end(o.provider)
	}
	o.stopped.Store(true)
	o.flushCounters()
}

// observe is called for every event of the limiter, on the request's goroutine.
func (o *observer) observe(e stint.Event) {
	ctx := context.Background()
	if e.Request != nil {
		ctx = e.Request.Context() // its span is the exemplar
		annotate(ctx, &e)
	}
	l := o.limiters.at(e.Limiter)
	switch e.Kind {
	case stint.EventAdmitted, stint.EventDenied:
		o.recordDecision(ctx, &e, l)
	case stint.EventCanceled:
		o.recordStoreTime(ctx, &e, l.took[canceled])
		o.countOutcome(ctx, &e)
	case stint.EventEmptyKey:
		if e.Err != nil { // otherwise a dry run, which doesn't deny
			o.countOutcome(ctx, &e)
		}
	case stint.EventBlocked, stint.EventKeyFailed:
		o.countOutcome(ctx, &e)
	case stint.EventLimitsFailed:
		if source := (*stint.SourceError)(nil); errors.As(e.Err, &source) {
			o.sourceFailures.Add(ctx, 1, l.sourceDenied.add...)
		}
		o.countOutcome(ctx, &e)
	case stint.EventSourceFailed: // the request goes on
		if e.Err != nil { // otherwise it answers again
			o.sourceFailures.Add(ctx, 1, l.sourcePassed.add...)
		}
	case stint.EventStoreFailed:
		o.countFailure(ctx, &e, l)
	case stint.EventSettleFailed:
		o.recordStoreTime(ctx, &e, o.fault(&e, settle))
		o.storeFailures.Add(ctx, 1, l.settleFailed.add...)
	case stint.EventSettled:
		o.recordStoreTime(ctx, &e, l.settled)
	case stint.EventExtended:
		o.recordExtension(ctx, &e, l)
	case stint.EventWaiting:
		o.series.at(id{limiter: e.Limiter, route: e.Route}).waiting.add(1)
	case stint.EventEnded:
		o.recordStoreTime(ctx, &e, l.settled)
		o.recordEnd(&e)
	case stint.EventBanned:
		add := o.seriesOf(&e, e.Decision.Limit).plain.add
		if e.ByHand {
			add = append(slices.Clone(add), metric.WithAttributes(byHandKey.Bool(true)))
		}
		o.bans.Add(ctx, 1, add...)
	case stint.EventNearLimit:
		s := &e.Decision.Limits[0]
		o.nearLimits.Add(ctx, 1, o.seriesOf(&e, s.Name).nearLimit(e.Percent, s.DryRun)...)
	case stint.EventPaced:
		o.recordPacing(ctx, &e)
	case stint.EventLimitChanged:
		o.recordLimitChange(ctx, &e)
	case stint.EventStoreDegraded:
		// A failed call doesn't mean that the breaker is open.
		if open := errors.Is(e.Err, failover.ErrOpen); open || e.Err == nil {
			l.degraded.set(boolToInt(open))
		} else {
			o.primaryFailures.Add(ctx, 1, l.plain.add...)
		}
	case stint.EventLeaseLost:
		o.leasesLost.Add(ctx, 1, o.seriesOf(&e, e.Decision.Limit).plain.add...)
	case stint.EventUpdated:
		if o.describe != nil {
			o.startCounters(o.describe())
		}
	case stint.EventWarning:
		o.countWarning(ctx, e.Limiter, e.Warning)
	case stint.EventPolicy:
		o.reloads.Add(ctx, 1, l.reload[boolToInt(e.Err != nil)].add...)
	}
	if e.EndsWait {
		o.endWait(ctx, &e)
	}
	if o.stopped.Load() { // the event came during stop
		o.flushCounters()
	}
}

// flushCounters adds to the SDK's counters what admitted requests have added to series.pending. It is
// called when the SDK collects, so nothing is late.
func (o *observer) flushCounters() {
	flush := func(s *series) {
		add := func(to metric.Int64Counter, l *level, as attributes) {
			if l.used.Load() {
				to.Add(context.Background(), l.value.Swap(0), as.add...)
			}
		}
		add(o.decisions, &s.pending.admitted, s.outcome[stint.EventAdmitted])
		add(o.limitDecisions, &s.pending.allowed, s.answer[allowed])
		add(o.charged, &s.pending.charged, s.plain)
		add(o.settled, &s.pending.settled, s.plain)
	}
	for s := range o.series.all {
		flush(s)
	}
	flush(o.series.overflow)
}

func boolToInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// seriesOf returns the series of a limit for the limiter and route of an event.
func (o *observer) seriesOf(e *stint.Event, limit string) *series {
	return o.series.at(id{e.Limiter, e.Route, limit})
}

// countOutcome counts the outcome of a request, by the limit that decided it.
func (o *observer) countOutcome(ctx context.Context, e *stint.Event) {
	s := o.seriesOf(e, e.Decision.Limit)
	if e.Kind == stint.EventAdmitted {
		s.pending.admitted.add(1)
		return
	}
	o.decisions.Add(ctx, 1, s.outcome[outcomeOf(e)].add...)
}

// recordStoreTime records how long the store took, if it was asked.
func (o *observer) recordStoreTime(ctx context.Context, e *stint.Event, as attributes) {
	if e.StoreTook > 0 {
		o.storeTook.Record(ctx, e.StoreTook.Seconds(), as.record...)
	}
}

func (o *observer) recordDecision(ctx context.Context, e *stint.Event, l *limiter) {
	o.recordStoreTime(ctx, e, l.took[done])
	o.countOutcome(ctx, e)
	for i := range e.Decision.Limits {
		at := &e.Decision.Limits[i]
		s := o.seriesOf(e, at.Name)
		if at.Allowed {
			s.pending.allowed.add(1)
		} else {
			o.limitDecisions.Add(ctx, 1, s.answer[denial(at)].add...)
		}
		if at.Capacity > 0 {
			o.utilization.Record(ctx, share(at), s.plain.record...)
		}
		if at.Reason != stint.NotAdaptive {
			o.series.at(id{limiter: e.Limiter, limit: at.Name}).adaptive.limit.set(at.Capacity)
		}
		if e.Kind != stint.EventAdmitted || !at.Allowed {
			continue
		}
		if at.InFlight > 0 {
			s.slots.add(at.Cost)
		} else {
			s.pending.charged.add(at.Cost)
		}
	}
}

// denial returns the outcome of a limit that denies.
func denial(at *stint.LimitStatus) int {
	if at.DryRun {
		return dryRunDenied
	}
	return denied
}

// share returns how much of the limit is used. Debt doesn't count.
func share(at *stint.LimitStatus) float64 {
	return min(max(0, 1-float64(at.Remaining)/float64(at.Capacity)), 1)
}

// recordEnd subtracts what recordDecision has added.
func (o *observer) recordEnd(e *stint.Event) {
	for i := range e.Decision.Limits {
		at := &e.Decision.Limits[i]
		switch s := o.seriesOf(e, at.Name); {
		case !at.Allowed:
		case at.InFlight == 0:
			s.pending.settled.add(at.Cost)
		default:
			s.slots.add(-at.Cost)
		}
	}
}

func (o *observer) endWait(ctx context.Context, e *stint.Event) {
	s := o.series.at(id{limiter: e.Limiter, route: e.Route})
	o.waited.Record(ctx, e.Waited.Seconds(), s.outcome[e.Kind].record...)
	s.waiting.add(-1)
}

// fault returns the attributes of a call of the store that failed.
func (o *observer) fault(e *stint.Event, operation string) attributes {
	return *o.faults.at(fault{e.Limiter, operation, errorType(e.Err)})
}

// countFailure counts a failure of the store. The request may have gone on, so this isn't a
// decision.
func (o *observer) countFailure(ctx context.Context, e *stint.Event, l *limiter) {
	o.recordStoreTime(ctx, e, o.fault(e, take))
	as := l.failedOpen
	if closed := (*stint.StoreError)(nil); errors.As(e.Err, &closed) {
		as = l.failedClosed
	}
	o.storeFailures.Add(ctx, 1, as.add...)
}

// recordExtension records a raise of a request's cost. If the store failed, it has passed or not by the failure policy.
func (o *observer) recordExtension(ctx context.Context, e *stint.Event, l *limiter) {
	as := o.seriesOf(e, e.Decision.Limit)
	switch {
	case errors.Is(e.Err, context.Canceled):
		o.recordStoreTime(ctx, e, l.took[canceled])
		o.extensions.Add(ctx, 1, as.extended[extensionCanceled].add...)
		return
	case e.Err != nil:
		o.countFailure(ctx, e, l)
	default:
		o.recordStoreTime(ctx, e, l.took[done])
		o.recordUse(ctx, e)
	}
	outcome := extensionDenied
	if e.Decision.Allowed {
		outcome = extensionGranted
	}
	o.extensions.Add(ctx, 1, as.extended[outcome].add...)
}

// recordUse records what a raise has charged, and how much of its limits is used.
func (o *observer) recordUse(ctx context.Context, e *stint.Event) {
	for i := range e.Decision.Limits {
		at := &e.Decision.Limits[i]
		s := o.seriesOf(e, at.Name)
		if at.Capacity > 0 {
			o.utilization.Record(ctx, share(at), s.plain.record...)
		}
		if e.Decision.Allowed && at.Allowed {
			s.pending.charged.add(at.Cost)
		}
	}
}

func (o *observer) recordPacing(ctx context.Context, e *stint.Event) {
	p := e.Pacing
	s := o.seriesOf(e, p.Limit)
	o.paced.Add(ctx, p.Bytes, s.sent.add...)
	if p.RequestBytes > 0 {
		o.paced.Add(ctx, p.RequestBytes, s.received.add...)
	}
	if p.Waited > 0 {
		o.pacedWaited.Record(ctx, p.Waited.Seconds(), s.plain.record...)
	}
}

func (o *observer) recordLimitChange(ctx context.Context, e *stint.Event) {
	c := e.Change
	s := o.series.at(id{limiter: e.Limiter, limit: c.Limit})
	s.adaptive.limit.set(c.To)
	s.adaptive.latency.set(int64(c.Latency))
	s.adaptive.baseline.set(int64(c.Baseline))
	if int(c.Reason) < len(s.adaptive.reason) {
		o.adaptiveChanges.Add(ctx, 1, s.adaptive.reason[c.Reason].add...)
	}
}

// limiter holds the attribute sets of the measurements of a limiter as a whole.
type limiter struct {
	took                                   [2]attributes // by the outcome of a Take that hasn't failed
	settled                                attributes    // of a Settle that hasn't failed
	failedOpen, failedClosed, settleFailed attributes
	sourcePassed, sourceDenied             attributes
	reload                                 [2]attributes // accepted, rejected
	warning                                []attributes  // as warningKinds
	plain                                  attributes
	degraded                               level
}

// Outcomes of a call of the store that hasn't failed.
const (
	done = iota
	canceled
)

const outcomeError = "error"

// Operations of a store.
const take, settle = "take", "settle"

func newLimiter(all []attribute.KeyValue) *limiter {
	with := func(kvs ...attribute.KeyValue) attributes {
		return set(append(all[:len(all):len(all)], kvs...)...)
	}
	take, settle := operationKey.String(take), operationKey.String(settle)
	l := &limiter{
		plain:        set(all...),
		failedOpen:   with(take, outcomeKey.String("passed")),
		failedClosed: with(take, outcomeKey.String("denied")),
		settleFailed: with(settle, outcomeKey.String("lost")),
		sourcePassed: with(outcomeKey.String("passed")),
		sourceDenied: with(outcomeKey.String("denied")),
		reload:       [2]attributes{with(outcomeKey.String("accepted")), with(outcomeKey.String("rejected"))},
	}
	for i, outcome := range [...]string{done: "ok", canceled: "canceled"} {
		l.took[i] = with(take, outcomeKey.String(outcome))
	}
	l.settled = with(settle, outcomeKey.String("ok"))
	for _, kind := range warningKinds {
		l.warning = append(l.warning, with(warningKey.String(kind)))
	}
	return l
}
