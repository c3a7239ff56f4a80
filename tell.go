package stint

import (
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/store"
)

// observeSafely is observe for an event that isn't a request's: a panic is logged, and goes no
// further.
func (v *version) observeSafely(e Event) {
	background.Do("notifying observers", func() { v.observe(&e) })
}

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
	// After the line: if recordAnswer comes in between, the store's next answer is
	// reported, too.
	if e.Kind == EventStoreFailed && !v.reporter.failing.Load() {
		v.reporter.failing.Store(true)
	}
	if to := v.reporter.audience.Load(); to != nil {
		to.each(e.observersBefore, func(o *observer) {
			if !e.briefed || o.brief == nil {
				o.notify(e.own())
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
func (v *version) observeUnsettled(of subject, done decide.Settlement) error {
	if done.Err == nil {
		return nil
	}
	err := &StoreError{done.Err}
	v.observeSettleFailed(of, done.Charges, done.Took, err)
	return err
}

// observeSettleFailed notifies the observers of charges that could not be settled.
func (v *version) observeSettleFailed(of subject, charges []store.Charge, took time.Duration, err error) {
	e := of.later().event(EventSettleFailed, err)
	e.StoreTook = took
	v.observeOf(&e, charges)
}
