package stint

import (
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// tell passes an event that isn't a request's to the observers and the log. A panic of
// theirs is logged, and goes no further.
func (v *version) tell(e Event) { background.Do("telling observers", func() { v.observe(&e) }) }

// observe logs an event, and passes it to the observers.
func (v *version) observe(e *Event) {
	e.Limiter = v.name
	defer v.notify(e) // also if the log panics
	if m := e.Kind.message(e.Err); m != 0 {
		v.write(m, *e)
	}
}

// notify passes an event to the observers.
func (v *version) notify(e *Event) {
	to := v.reporter.audience.Load()
	// After the line: if recordAnswer comes in between, the store's next answer is
	// reported, too.
	if e.Kind == EventStoreFailed && (to == nil || !to.failing) {
		address(&v.reporter.audience, func(a *audience) { a.failing = true })
	}
	if to != nil {
		to.each(e.below, func(o *observer) {
			if !e.plain || o.brief == nil {
				o.tell(*e)
			}
		})
	}
}

// observeOf notifies the observers of an event that charges are part of.
func (v *version) observeOf(e *Event, charges []store.Charge) {
	e.about(charges)
	v.observe(e)
}

// observed reports whether there are observers.
func (v *version) observed() bool { return v.reporter.audience.Load() != nil }

// observeUnsettled notifies the observers of a settlement that the store could not make, and
// returns its error.
func (v *version) observeUnsettled(p *read.Plan, of decide.Settlement) error {
	if of.Err == nil {
		return nil
	}
	err := &StoreError{of.Err}
	v.observeSettleFailed(p, of.Charges, of.Took, err)
	return err
}

// observeSettleFailed notifies the observers of charges that could not be settled.
func (v *version) observeSettleFailed(p *read.Plan, charges []store.Charge, took time.Duration, err error) {
	v.observeOf(&Event{Kind: EventSettleFailed, Route: p.Route(), Err: err, StoreTook: took}, charges)
}
