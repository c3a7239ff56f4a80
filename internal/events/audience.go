package events

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/store"
)

// Observer is one observer of events of type E.
type Observer[E any] struct {
	Tell  func(E)
	Brief Brief // gets plain requests in brief; nil if Tell gets them too
}

// Brief is what a stint.BriefObserver gets in brief.
type Brief interface {
	Passed(near uint8, route string, charges []store.Charge, results []store.Result, storeTook time.Duration)
	Ended(near uint8)
}

// Observers are the observers that a limiter itself has, of events of type E. They
// aren't safe for concurrent use.
type Observers[E any] struct {
	given []Observer[E]
	added []*Observer[E] // each at an address of its own
}

// Give replaces the observers that were given before. Those added stay.
func (o *Observers[E]) Give(all []func(E)) {
	o.given = nil
	for _, f := range all {
		o.given = append(o.given, Observer[E]{Tell: f})
	}
}

// Add adds the last observer. It returns the function that removes it.
func (o *Observers[E]) Add(last Observer[E]) (remove func()) {
	at := &last
	o.added = append(o.added, at)
	return func() { o.added = slices.DeleteFunc(o.added, func(other *Observer[E]) bool { return other == at }) }
}

// After returns others, the observers that were given and those added, in this order.
func (o *Observers[E]) After(others []Observer[E]) []Observer[E] {
	all := slices.Concat(others, o.given)
	for _, added := range o.added {
		all = append(all, *added)
	}
	return all
}

// Audience is the observers of a limiter's events, which are of type E. It is immutable
// and replaced as a whole; a nil Audience has no observers.
type Audience[E any] struct {
	All []Observer[E]
	// Failing: the store has failed, so its next answers are checked.
	Failing bool
}

// Passed tells the brief observers of a plain request that passes, and reports whether
// there are others.
func (a *Audience[E]) Passed(near uint8, route string, charges []store.Charge, results []store.Result, storeTook time.Duration) (others bool) {
	for i := range a.All {
		if b := a.All[i].Brief; b != nil {
			b.Passed(near, route, charges, results, storeTook)
		} else {
			others = true
		}
	}
	return others
}

// Ended tells the brief observers that a plain request has ended, and reports whether
// there are others.
func (a *Audience[E]) Ended(near uint8) (others bool) {
	for i := range a.All {
		if b := a.All[i].Brief; b != nil {
			b.Ended(near)
		} else {
			others = true
		}
	}
	return others
}

// Address replaces an audience with what change makes of it.
func Address[E any](to *atomic.Pointer[Audience[E]], change func(*Audience[E])) {
	for {
		was := to.Load()
		next := new(Audience[E])
		if was != nil {
			*next = *was
		}
		change(next)
		if len(next.All) == 0 && !next.Failing {
			next = nil
		}
		if to.CompareAndSwap(was, next) {
			return
		}
	}
}
