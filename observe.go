package stint

import (
	"reflect"

	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// WithObserver passes the limiter's events to f from the start, as Limiter.Observe
// does. If given several times, all functions are called in order. An Update without it
// keeps the existing ones. An Update with it replaces them: those replaced still get the
// events of requests whose decision had begun. New rejects nil. f is called concurrently.
func WithObserver(f func(Event)) Option {
	return checkedOption(f != nil, "WithObserver(nil)", "write a function, or leave it out",
		func(c *config) { c.observers = append(c.observers, f) })
}

// Observe passes every event of the limiter, and of those derived from it by With, to f
// until stop is called. f runs on the request's own goroutine, so it should be quick,
// and it must be safe for concurrent use. No lock is held while it runs, so it may call
// the limiter. Several observers are called in the order in which they were
// added, those of the limiter that was extended first.
//
// Observers belong to the limiter, not to one configuration: they stay across Updates.
// Some events come on a goroutine of the limiter (an EventSettleFailed of turns that
// others have left, EventStoreDegraded): a panic of f there is logged, as it is for an
// EventUpdated.
//
// f gets all events of a request or none: those of a request whose decision begins after
// Observe and before stop, even if some come after stop. So what f counts up and down, such as
// requests in flight, is never below zero, and zero in the end.
//
// Observe and stop are safe for concurrent use.
func (l *Limiter) Observe(f func(Event)) (stop func()) {
	if f == nil {
		return func() {}
	}
	l.inForce()
	l.family.mu.Lock()
	defer l.family.mu.Unlock()
	remove := l.observers.add(f)
	l.family.enlist()
	return func() {
		l.family.mu.Lock()
		defer l.family.mu.Unlock()
		remove()
		l.family.enlist()
	}
}

// enlist works out which observers and which log each limiter has. The caller holds f.mu.
func (f *family) enlist() {
	for _, m := range f.members {
		var log *logs.Log // the parent's
		var others []func(Event)
		if m.parent != nil {
			log = m.parent.recipients.log.Load()
			if to := m.parent.recipients.audience.Load(); to != nil {
				others = to.all
			}
		}
		m.recipients.log.Store(logs.Derive(log, m.recipients.log.Load(), m.logger, m.logKeys))
		if all := m.observers.after(others); len(all) > 0 {
			m.recipients.audience.Store(&audience{all})
		} else {
			m.recipients.audience.Store(nil)
		}
	}
}

// ReportPolicy reports to the limiter's observers and its log that the policy in a file is
// in force or, if err isn't nil, why it isn't and the one before stays: EventPolicy. It is
// for packages that read options from files and give them to Update, such as policy. A
// panic of an observer is logged and goes no further.
func (l *Limiter) ReportPolicy(file string, err error) {
	l.sendSafely(Event{Kind: EventPolicy, Path: file, Err: err})
}

// observeStore makes the limiter send the events of a store that it has itself. The
// limiter keeps the observer alive and the store doesn't, but for leases that are held, so
// that a store that outlives the limiter doesn't retain it.
func (l *Limiter) observeStore(c *config) {
	given := c.Store
	if given == nil && l.parent == nil {
		given = l.now.Load().backend.Store // its own
	}
	if from, ok := given.(store.Observable); ok {
		from.Observe(l.storeObserver)
	}
}

func (l *Limiter) handleNotice(n store.Notice) {
	switch n.Kind {
	case store.CallFailed, store.Degraded, store.Restored:
		e := Event{Kind: EventStoreDegraded, Err: n.Err, store: n.Store, call: n.Kind == store.CallFailed}
		if v := reflect.ValueOf(n.Err); v.Kind() == reflect.Pointer {
			e.told = n.Err
		}
		l.sendSafely(e)
	case store.LeaseLost:
		e := Event{Kind: EventLeaseLost}
		e.about([]store.Charge{{Key: n.Key, Limit: n.Limit}})
		l.sendSafely(e)
	case store.MayForget:
		l.warnOfForgetting(n.Err)
	case store.Full:
		v := l.inForce()
		l.family.warnings.warn(v, finding{kind: warnStoreFull, text: n.Err.Error(), applies: v.sharesStore})
	}
}

// warnOfForgetting warns of a store whose server evicts keys, as why says.
func (l *Limiter) warnOfForgetting(why error) {
	l.storeForgets.Store(why != nil)
	if why == nil {
		return
	}
	v := l.inForce()
	applies := func(o *version) bool { return l.storeForgets.Load() && v.sharesStore(o) }
	l.family.warnings.warn(v, finding{kind: warnStoreForgets, text: why.Error(), applies: applies})
}

// sendSafely passes an event that isn't a request's to the limiter's observers and its log.
func (l *Limiter) sendSafely(e Event) { l.inForce().events.sendSafely(e) }
