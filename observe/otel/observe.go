// Package stintotel reports what a limiter does to OpenTelemetry: metrics of its
// decisions, and refusals and waits as events of the request's span.
//
//	stop, err := stintotel.Observe(lim)
//
// README.md beside this file lists the metrics, their attributes and units.
//
// # Cardinality
//
// Attributes are the names of limiters and limits, and the patterns of routes: what
// the program says, never what a request says. No attribute, of a metric or of a
// span's event, holds a key. Limits of a stint.WithLimitFunc have the names that it
// gives them: after 1,000 combinations of limiter, route and limit, further ones are
// reported together, with otel.metric.overflow=true.
//
// # Cost
//
// Attribute sets are made once for each combination. After that an event allocates
// nothing here, unless the request's span is recorded.
package stintotel

import (
	"errors"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// Scope is the name of the instrumentation scope that the metrics have.
const Scope = "github.com/stint-go/stint/observe/otel"

// Option changes a default of Observe.
type Option func(*config)

type config struct {
	provider metric.MeterProvider
	memory   []memory
}

// WithMeterProvider sets where metrics go. The default is otel.GetMeterProvider(),
// as it is when Observe is called. Nil keeps the default.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) {
		if p != nil {
			c.provider = p
		}
	}
}

// WithMemory also reports what a store in memory holds, under a name
// (stint.store.name). It is for one inside another store, such as the secondary of a
// failover: a limiter's own is reported without, under the limiter's name. Give each
// store to one Observe only.
func WithMemory(name string, s *memstore.Store) Option {
	return func(c *config) { c.memory = append(c.memory, memory{name, s}) }
}

// Observe reports what the limiter does, and those derived from it by With, until
// stop is called. It survives Update. Call it before the limiter decides anything:
// requests that hold slots or wait by then are not counted among those that do.
//
// Limiters are told apart by stint.WithLimiterName: the metrics of those that have
// the same name, or none, are added up.
//
// Span events go to the span in the context of the request that is decided, so mount
// the limiter inside the middleware that starts spans, such as otelhttp. Decisions
// outside HTTP (Limiter.Take, Wait, Allow) have metrics only.
//
// The error is the meter provider's, or that of a nil store; nothing is observed then.
func Observe(lim *stint.Limiter, opts ...Option) (stop func(), err error) {
	c := config{provider: otel.GetMeterProvider()}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	d := lim.Describe()
	if own, ok := d.Store.(*memstore.Store); ok && !slices.ContainsFunc(c.memory, func(m memory) bool { return m.store == own }) {
		c.memory = append(c.memory, memory{d.Name, own})
	}
	for _, m := range c.memory {
		if m.store == nil {
			return nil, errors.New("stintotel: WithMemory: the store is nil: write memstore.New()")
		}
	}
	meter := c.provider.Meter(Scope)
	o := newObserver(c.memory)
	if err := o.define(meter); err != nil {
		return nil, err
	}
	registered, err := meter.RegisterCallback(o.collect, o.observables()...)
	if err != nil {
		return nil, err
	}
	end := lim.Observe(o.observe)
	return func() {
		end()
		_ = registered.Unregister()
	}, nil
}
