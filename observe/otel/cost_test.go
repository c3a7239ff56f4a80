package stintotel

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/stint-go/stint"
)

func observed(t *testing.T) (*observer, *metric.ManualReader) {
	t.Helper()
	reader := metric.NewManualReader()
	o := newObserver(nil, nil)
	if err := o.start(metric.NewMeterProvider(metric.WithReader(reader)).Meter(Scope)); err != nil {
		t.Fatal(err)
	}
	return o, reader
}

func TestEventsAllocateNothing(t *testing.T) {
	o, _ := observed(t)
	d := stint.Decision{Limit: "rate", Limits: []stint.LimitStatus{
		{Name: "rate", Allowed: true, Capacity: 10, Remaining: 4, Cost: 1},
		{Name: "slots", Allowed: true, Capacity: 10, InFlight: 2, Remaining: 8, Cost: 1, Reason: stint.AdaptiveSteady},
	}}
	r := httptest.NewRequest("GET", "/", nil)
	for _, e := range []stint.Event{
		{Kind: stint.EventAdmitted, Request: r, Decision: d, StoreTook: time.Millisecond, Waited: time.Second, EndsWait: true},
		{Kind: stint.EventDenied, Request: r, Decision: d, StoreTook: time.Millisecond},
		{Kind: stint.EventWaiting, Request: r},
		{Kind: stint.EventEnded, Decision: d, Held: time.Nanosecond},
		{Kind: stint.EventPaced, Request: r, Pacing: &stint.Pacing{Limit: "bytes", Bytes: 1, RequestBytes: 1, Waited: time.Second}},
		{Kind: stint.EventLimitChanged, Change: &stint.LimitChange{Limit: "slots", To: 7}},
	} {
		e.Limiter, e.Route = "api", "GET /users/{id}"
		if n := testing.AllocsPerRun(100, func() { o.observe(e) }); n != 0 {
			t.Errorf("%v allocates %v times", e.Kind, n)
		}
	}
}

// However many requests end while the SDK collects or stop is called, each counts once.
func TestCountsAreExact(t *testing.T) {
	const callers, each = 4, 2000
	o, reader := observed(t)
	e := stint.Event{Kind: stint.EventAdmitted, Decision: stint.Decision{Limit: "x", Limits: []stint.LimitStatus{{Name: "x", Allowed: true, Cost: 3}}}}
	sums := func() map[string]int64 {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Error(err)
		}
		got := map[string]int64{}
		for _, s := range all.ScopeMetrics {
			for _, m := range s.Metrics {
				if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
					got[m.Name] += sum.DataPoints[0].Value
				}
			}
		}
		return got
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				e := e
				if o.observe(e); i == each/2 {
					sums()
				}
				e.Kind = stint.EventEnded
				o.observe(e)
			}
		})
	}
	sums()
	o.stop()
	all.Wait()
	got := sums()
	for name, want := range map[string]int64{"stint.decisions": 1, "stint.limit.decisions": 1, "stint.limit.cost.charged": 3, "stint.limit.cost.settled": 3} {
		if got[name] != want*callers*each {
			t.Errorf("%s: %d, want %d", name, got[name], want*callers*each)
		}
	}
}

// However many names a program makes up, what is held and reported stays bounded, and
// nothing is lost.
func TestNamesAreBounded(t *testing.T) {
	o, reader := observed(t)
	const names = 3 * maxSeries
	for i := range names {
		name := fmt.Sprint("tenant-", i)
		o.observe(stint.Event{Kind: stint.EventAdmitted, Limiter: name, Decision: stint.Decision{
			Limit: name, Limits: []stint.LimitStatus{{Name: name, Allowed: true, Capacity: 1, InFlight: 1, Cost: 1}},
		}})
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != "stint.decisions" && m.Name != "stint.limit.held_slots" {
			continue
		}
		var sum, rest int64
		points := m.Data.(metricdata.Sum[int64]).DataPoints
		for _, p := range points {
			sum += p.Value
			if overflow, _ := p.Attributes.Value(overflowKey); overflow.AsBool() {
				rest += p.Value
			}
		}
		if len(points) > maxSeries+1 || sum != names || rest < names-maxSeries {
			t.Errorf("%s: %d series of %d in all, %d of them beyond the bound", m.Name, len(points), sum, rest)
		}
		seen++
	}
	if seen != 2 || o.series.n != maxSeries {
		t.Errorf("%d metrics, %d series", seen, o.series.n)
	}
}
