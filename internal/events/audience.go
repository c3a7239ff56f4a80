package events

import (
	"slices"
	"sync/atomic"
)

// Observers are the observers that a limiter itself has, of events of type E. They
// aren't safe for concurrent use.
type Observers[E any] struct {
	given []func(E)
	added []*func(E) // each at an address of its own
}

// Give replaces the observers that were given before. Those added stay.
func (o *Observers[E]) Give(all []func(E)) { o.given = all }

// Add adds f as the last observer. It returns the function that removes f.
func (o *Observers[E]) Add(f func(E)) (remove func()) {
	at := &f
	o.added = append(o.added, at)
	return func() { o.added = slices.DeleteFunc(o.added, func(other *func(E)) bool { return other == at }) }
}

// After returns others, the observers that were given and those added, in this order.
func (o *Observers[E]) After(others []func(E)) []func(E) {
	all := slices.Concat(others, o.given)
	for _, f := range o.added {
		all = append(all, *f)
	}
	return all
}

// Audience is the observers of a limiter's events, which are of type E. It is immutable
// and replaced as a whole; a nil Audience has no observers.
type Audience[E any] struct {
	All []func(E)
	// Failing: the store has failed, so its next answers are checked.
	Failing bool
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
