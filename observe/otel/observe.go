// Package stintotel reports a limiter's activity to OpenTelemetry: metrics of its decisions,
// and span events for denials and waits.
//
//	stop, err := stintotel.Observe(lim)
//
// README.md in this directory lists the metrics, their attributes and units.
//
// # Cardinality
//
// Attributes are the names of limiters and limits, and the patterns of routes: they
// come from the program, never from a request. No attribute of a metric or of a span's
// event holds a key. Limits of a stint.WithLimitFunc have the names that it gives them.
// After 1,000 combinations of limiter, route and limit, further ones are reported
// together, with otel.metric.overflow=true.
//
// # Cost
//
// Attribute sets are made once for each combination. After that an event allocates
// nothing here, unless the request's span is recorded or the store failed. Additions of admitted requests to
// counters are passed to the SDK when it collects, so they have no exemplars.
package stintotel

import (
	"errors"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// Scope is the name of the metrics' instrumentation scope.
const Scope = "github.com/stint-go/stint/observe/otel"

// Option changes a default of Observe.
type Option interface{ apply(*config) }

type option func(*config)

func (set option) apply(x *config) { set(x) }

type config struct {
	provider metric.MeterProvider
	memory   []*memory
}

// WithMeterProvider sets the provider that metrics are sent to. The default, also for nil, is
// the result of otel.GetMeterProvider when Observe is called.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(c *config) {
		if p != nil {
			c.provider = p
		}
	})
}

// WithMemory also reports the figures of a store in memory, under a name (stint.store.name). Use
// it for a store inside another one, such as the secondary of a failover: a limiter's own store
// is reported without it, under the limiter's name. By default, only the limiters' own stores
// are reported. Observe fails if s is nil.
func WithMemory(name string, s *memstore.Store) Option {
	return option(func(c *config) { c.memory = append(c.memory, &memory{name, s}) })
}

// Observe reports the activity of lim, and of limiters derived from it by With, until stop is
// called. It continues across Updates. Call Observe before the limiter decides requests:
// requests whose decision has begun before that call aren't counted. Observe and stop are safe
// for concurrent use.
//
// A store in memory that several limiters share is reported once, under the name from the first
// call of Observe. When that call's stop is called, the name from the next call of Observe is
// used.
//
// Limiters are distinguished by stint.WithLimiterName: the metrics of limiters with the
// same name, or with none, are added up.
//
// Span events go to the span in the context of the request, so mount the limiter inside
// the middleware that starts spans, such as otelhttp. Decisions outside HTTP
// (Limiter.Take, Wait, Allow) have metrics only.
//
// Observe returns the errors of the meter provider, and an error for a nil store. After an
// error, nothing is observed.
func Observe(lim *stint.Limiter, opts ...Option) (stop func(), err error) {
	global := otel.GetMeterProvider()
	c := config{provider: global}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	d := lim.Describe()
	if inMemory, ok := d.Store.(*memstore.Store); ok &&
		!slices.ContainsFunc(c.memory, func(m *memory) bool { return m.store == inMemory }) {
		c.memory = append(c.memory, &memory{d.Name, inMemory})
	}
	for _, m := range c.memory {
		if m.store == nil {
			return nil, errors.New("stintotel: WithMemory: the store is nil: use memstore.New()")
		}
	}
	o := newObserver(providerID(c.provider, global), c.memory)
	if err := o.start(c.provider.Meter(Scope, metric.WithInstrumentationVersion(version()))); err != nil {
		return nil, err
	}
	o.describe = lim.Describe
	end := lim.Observe(o.observe)
	o.startCounters(lim.Describe())
	return func() {
		end()
		o.stop()
	}, nil
}
