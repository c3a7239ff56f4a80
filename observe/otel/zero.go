package stintotel

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// startCounters reports the counters of a limiter's limits at zero: a query for the rate of a counter
// misses the counter's first value. Limits that only requests show, such as those of
// a WithLimitFunc, begin with their first event. startCounters also counts the warnings that were given
// before the limiter was observed, as most of New's are.
func (o *observer) startCounters(d stint.Description) {
	zero := func(c metric.Int64Counter, all ...attributes) {
		for _, as := range all {
			c.Add(context.Background(), 0, as.add...)
		}
	}
	l := o.limiters.at(d.Name)
	zero(o.storeFailures, l.failedOpen, l.failedClosed, l.settleFailed)
	zero(o.primaryFailures, l.plain)
	zero(o.sourceFailures, l.sourcePassed, l.sourceDenied)
	zero(o.reloads, l.reload[:]...)
	zero(o.warnings, l.warning...)
	for _, w := range d.Warnings {
		o.countWarning(context.Background(), d.Name, &w)
	}
	for _, r := range d.Rules {
		// A Bandwidth decides nothing, and only its Text says that it is one.
		if strings.HasPrefix(r.Text, "Bandwidth:") {
			continue
		}
		s := o.series.at(id{d.Name, r.Route, r.Limit})
		s.pending.allowed.markUsed()
		if r.DryRun {
			zero(o.limitDecisions, s.answer[dryRunDenied])
		} else {
			s.pending.admitted.markUsed()
			zero(o.limitDecisions, s.answer[denied])
			zero(o.decisions, s.outcome[stint.EventDenied])
		}
		for _, percent := range r.NearLimit {
			o.nearLimits.Add(context.Background(), 0, s.nearLimit(percent, r.DryRun)...)
		}
		switch r.Spec.Algorithm {
		case store.Ban:
			zero(o.bans, s.plain)
		case store.Concurrency:
			if !r.Local {
				zero(o.leasesLost, o.series.at(id{limiter: d.Name, limit: r.Limit}).plain)
			}
		}
	}
}

// countWarning counts a warning, once: startCounters may find one that an event has just reported.
func (o *observer) countWarning(ctx context.Context, limiter string, w *stint.Warning) {
	all := o.limiters.at(limiter).warning
	i := slices.Index(warningKinds, w.Kind)
	if i < 0 {
		return
	}
	if _, counted := o.countedWarnings.LoadOrStore(warningID{limiter, w.Kind, strings.Join(w.Limits, "\x00")},
		nil); !counted {
		o.warnings.Add(ctx, 1, all[i].add...)
	}
}

// warningID identifies a warning.
type warningID struct{ limiter, kind, limits string }

// warningKinds are the kinds of warnings, each a line of docs/warnings.md. They are written here
// because each has a counter that begins at 0.
var warningKinds = []string{
	"forwarding-header", "port-in-key", "untrusted-proxy", "keys-never-repeat", "one-key", "rebuilt", "cost-too-high",
	"nothing-waits", "store-forgets", "quota-unreachable", "update-drops", "store-full", "name-conflict", "no-key",
}
