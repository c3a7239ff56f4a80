package stintotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are the metrics that README.md lists.
type instruments struct {
	decisions       metric.Int64Counter
	limitDecisions  metric.Int64Counter
	utilization     metric.Float64Histogram
	charged         metric.Int64Counter
	settled         metric.Int64Counter
	bans            metric.Int64Counter
	nearLimits      metric.Int64Counter
	extensions      metric.Int64Counter
	leasesLost      metric.Int64Counter
	slots           metric.Int64ObservableUpDownCounter
	waiting         metric.Int64ObservableUpDownCounter
	waited          metric.Float64Histogram
	storeTook       metric.Float64Histogram
	storeFailures   metric.Int64Counter
	primaryFailures metric.Int64Counter
	sourceFailures  metric.Int64Counter
	degraded        metric.Int64ObservableUpDownCounter
	keys            metric.Int64ObservableUpDownCounter
	keysMost        metric.Int64ObservableUpDownCounter
	expired         metric.Int64ObservableCounter
	overflow        metric.Int64ObservableCounter
	adaptiveLimit   metric.Int64ObservableGauge
	adaptiveLatency metric.Float64ObservableGauge
	adaptiveNormal  metric.Float64ObservableGauge
	adaptiveChanges metric.Int64Counter
	paced           metric.Int64Counter
	pacedWaited     metric.Float64Histogram
	reloads         metric.Int64Counter
	warnings        metric.Int64Counter
}

// Bounds of histograms. A store in memory answers in a microsecond; a wait takes up to
// minutes.
var (
	shares = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}
	waits  = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	calls  = []float64{0.000001, 0.000005, 0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
		0.05, 0.1, 0.25, 1}
)

func (i *instruments) define(m metric.Meter) error {
	var all mistakes
	i.decisions = newInstrument(&all, m.Int64Counter, "stint.decisions", "{decision}",
		"Requests decided, by what became of them and the limit that bound.")
	i.limitDecisions = newInstrument(&all, m.Int64Counter, "stint.limit.decisions", "{decision}",
		"Each limit's own answer to each request.")
	i.charged = newInstrument(&all, m.Int64Counter, "stint.limit.cost.charged", "{unit}",
		"Units charged to admitted requests, also while they run.")
	i.settled = newInstrument(&all, m.Int64Counter, "stint.limit.cost.settled", "{unit}",
		"Units that ended requests cost.")
	i.bans = newInstrument(&all, m.Int64Counter, "stint.bans", "{ban}", "Bans started.")
	i.nearLimits = newInstrument(&all, m.Int64Counter, "stint.near_limits", "{key}",
		"Keys whose use of a limit has reached a percentage.")
	i.extensions = newInstrument(&all, m.Int64Counter, "stint.extensions", "{extension}",
		"Raises of a request's cost while it runs, by what became of them and the limit that bound.")
	i.leasesLost = newInstrument(&all, m.Int64Counter, "stint.store.lost_leases", "{lease}",
		"Lost leases of slots that are still held.")
	i.storeFailures = newInstrument(&all, m.Int64Counter, "stint.store.failures", "{failure}",
		"Calls of the store that failed.")
	i.primaryFailures = newInstrument(&all, m.Int64Counter, "stint.store.primary_failures", "{failure}",
		"Calls that failed on the primary of a failover store.")
	i.sourceFailures = newInstrument(&all, m.Int64Counter, "stint.source.failures", "{failure}",
		"Failures of what limits are read from.")
	i.adaptiveChanges = newInstrument(&all, m.Int64Counter, "stint.adaptive.changes", "{change}",
		"Changes of an AdaptiveConcurrency, by reason.")
	i.paced = newInstrument(&all, m.Int64Counter, "stint.bandwidth.io", "By", "Bytes of bodies paced by a Bandwidth.")
	i.reloads = newInstrument(&all, m.Int64Counter, "stint.policy.reloads", "{reload}",
		"Policy files accepted or rejected.")
	i.warnings = newInstrument(&all, m.Int64Counter, "stint.warnings", "{warning}",
		"Likely mistakes found in how a limiter is used.")

	i.utilization = newInstrument(&all, withBounds(m, shares), "stint.limit.utilization", "1",
		"Share of the limit used after a decision.")
	i.waited = newInstrument(&all, withBounds(m, waits), "stint.wait.duration", "s",
		"How long requests waited for a turn or a slot.")
	i.storeTook = newInstrument(&all, withBounds(m, calls), "stint.store.duration", "s",
		"How long the store took to decide or settle a request.")
	i.pacedWaited = newInstrument(&all, withBounds(m, waits), "stint.bandwidth.wait.duration", "s",
		"How long a Bandwidth delayed a response.")

	i.slots = newInstrument(&all, m.Int64ObservableUpDownCounter, "stint.limit.held_slots", "{slot}",
		"Slots that requests of this process hold.")
	i.waiting = newInstrument(&all, m.Int64ObservableUpDownCounter, "stint.waiting_requests", "{request}",
		"Requests that wait for a turn or a slot.")
	i.degraded = newInstrument(&all, m.Int64ObservableUpDownCounter, "stint.store.degraded", "{store}",
		"1 while the breaker of a failover store is open.")
	i.keys = newInstrument(&all, m.Int64ObservableUpDownCounter, "stint.memory.key.usage", "{key}", "Keys in the store.")
	i.keysMost = newInstrument(&all, m.Int64ObservableUpDownCounter, "stint.memory.key.limit", "{key}",
		"The most keys that the store can hold.")
	i.expired = newInstrument(&all, m.Int64ObservableCounter, "stint.memory.key.expired", "{key}",
		"Expired keys that were dropped.")
	i.overflow = newInstrument(&all, m.Int64ObservableCounter, "stint.memory.overflow", "{charge}",
		"Charges on keys for which the store had no place.")
	i.adaptiveLimit = newInstrument(&all, m.Int64ObservableGauge, "stint.adaptive.limit", "{slot}",
		"The current limit of an AdaptiveConcurrency.")
	i.adaptiveLatency = newInstrument(&all, m.Float64ObservableGauge, "stint.adaptive.latency", "s",
		"Average latency behind an AdaptiveConcurrency's last change.")
	i.adaptiveNormal = newInstrument(&all, m.Float64ObservableGauge, "stint.adaptive.baseline", "s",
		"The latency that it was compared with.")
	return errors.Join(all.errs...)
}

// mistakes are the errors of defining instruments.
type mistakes struct{ errs []error }

func newInstrument[I, O any](all *mistakes, create func(string, ...O) (I, error), name, unit, description string) I {
	i, err := create(name, any(metric.WithUnit(unit)).(O), any(metric.WithDescription(description)).(O))
	if err != nil {
		all.errs = append(all.errs, err)
	}
	return i
}

// withBounds makes histograms with these bounds.
func withBounds(
	m metric.Meter, bounds []float64,
) func(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return func(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
		return m.Float64Histogram(name, append(opts, metric.WithExplicitBucketBoundaries(bounds...))...)
	}
}

func (i *instruments) observables() []metric.Observable {
	return []metric.Observable{
		i.slots, i.waiting, i.degraded, i.keys, i.keysMost, i.expired, i.overflow,
		i.adaptiveLimit, i.adaptiveLatency, i.adaptiveNormal,
	}
}

// collect reports the gauges, and flushes the counters.
func (o *observer) collect(_ context.Context, to metric.Observer) error {
	o.flushCounters()
	observe := func(what metric.Int64Observable, l *level, as attributes) {
		if l.used.Load() {
			to.ObserveInt64(what, l.value.Load(), as.observe...)
		}
	}
	seconds := func(what metric.Float64Observable, l *level, as attributes) {
		if l.used.Load() {
			to.ObserveFloat64(what, time.Duration(l.value.Load()).Seconds(), as.observe...)
		}
	}
	report := func(s *series) {
		observe(o.slots, &s.slots, s.plain)
		observe(o.waiting, &s.waiting, s.plain)
		observe(o.adaptiveLimit, &s.adaptive.limit, s.plain)
		seconds(o.adaptiveLatency, &s.adaptive.latency, s.plain)
		seconds(o.adaptiveNormal, &s.adaptive.baseline, s.plain)
	}
	for s := range o.series.all {
		report(s)
	}
	report(o.series.overflow)
	for l := range o.limiters.all {
		observe(o.degraded, &l.degraded, l.plain)
	}
	observe(o.degraded, &o.limiters.overflow.degraded, o.limiters.overflow.plain)
	for _, m := range o.memory {
		if !m.reports(o.provider) {
			continue
		}
		now := m.store.Stats()
		var name []attribute.KeyValue
		if m.name != "" {
			name = append(name, storeKey.String(m.name))
		}
		as := set(name...)
		to.ObserveInt64(o.keys, now.Keys, as.observe...)
		to.ObserveInt64(o.keysMost, now.MaxKeys, as.observe...)
		to.ObserveInt64(o.expired, int64(now.Expired), as.observe...)
		// The two are read one after the other: more may be denied by then.
		to.ObserveInt64(o.overflow, int64(now.Overflow-min(now.Denied, now.Overflow)),
			set(append(name, outcomeKey.String(answers[allowed]))...).observe...)
		to.ObserveInt64(o.overflow, int64(now.Denied), set(append(name, outcomeKey.String(answers[denied]))...).observe...)
	}
	return nil
}
