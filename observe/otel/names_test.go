package stintotel

import (
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// defined notes the names and units of the instruments that are made.
type defined struct {
	noop.Meter
	units map[string]string
}

func (d *defined) note(name, unit string) { d.units[name] = unit }

func (d *defined) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	d.note(name, metric.NewInt64CounterConfig(o...).Unit())
	return d.Meter.Int64Counter(name, o...)
}

func (d *defined) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	d.note(name, metric.NewFloat64HistogramConfig(o...).Unit())
	return d.Meter.Float64Histogram(name, o...)
}

func (d *defined) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	d.note(name, metric.NewInt64ObservableCounterConfig(o...).Unit())
	return d.Meter.Int64ObservableCounter(name, o...)
}

func (d *defined) Int64ObservableUpDownCounter(name string, o ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	d.note(name, metric.NewInt64ObservableUpDownCounterConfig(o...).Unit())
	return d.Meter.Int64ObservableUpDownCounter(name, o...)
}

func (d *defined) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	d.note(name, metric.NewInt64ObservableGaugeConfig(o...).Unit())
	return d.Meter.Int64ObservableGauge(name, o...)
}

func (d *defined) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	d.note(name, metric.NewFloat64ObservableGaugeConfig(o...).Unit())
	return d.Meter.Float64ObservableGauge(name, o...)
}

// Names follow OpenTelemetry's rules: lower case, a namespace of their own, parts with
// dots between and words with underscores, no unit and no total in them; units of UCUM,
// seconds for what lasts; and no name is the namespace of another.
func TestNames(t *testing.T) {
	d := &defined{units: map[string]string{}}
	if err := new(instruments).define(d); err != nil || len(d.units) < 20 {
		t.Fatal(err, d.units)
	}
	form := regexp.MustCompile(`^stint(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)+$`)
	for name, unit := range d.units {
		if !form.MatchString(name) {
			t.Errorf("%s: no name of a metric", name)
		}
		if regexp.MustCompile(`(_|\.)(total|seconds|bytes|ratio)\b|(_|\.)(count|sum|bucket)$`).MatchString(name) {
			t.Errorf("%s: what the unit or the exporter says", name)
		}
		if !regexp.MustCompile(`^(s|By|1|\{[a-z]+\})$`).MatchString(unit) {
			t.Errorf("%s: unit %q", name, unit)
		}
		if lasts := regexp.MustCompile(`(duration|latency|baseline)$`).MatchString(name); lasts != (unit == "s") {
			t.Errorf("%s: unit %q", name, unit)
		}
		if strings.HasSuffix(name, "utilization") != (unit == "1") {
			t.Errorf("%s: unit %q", name, unit)
		}
		for other := range d.units {
			if strings.HasPrefix(other, name+".") {
				t.Errorf("%s is the namespace of %s", name, other)
			}
		}
	}
	keys := []attribute.Key{limiterKey, routeKey, limitKey, outcomeKey, operationKey, storeKey, reasonKey, retryAfterKey, waitKey, queuedKey, warningKey}
	for _, key := range keys {
		if !form.MatchString(string(key)) {
			t.Errorf("%s: no name of an attribute", key)
		}
		for _, other := range keys {
			if strings.HasPrefix(string(other), string(key)+".") {
				t.Errorf("%s is the namespace of %s", key, other)
			}
		}
	}
}
