package events

import "sync/atomic"

// Audience is who is told of a limiter's events, which are of type E. It is never
// changed, but replaced; a nil one is nobody.
type Audience[E any] struct {
	All []func(E)
	// Failing: the store has failed, so that its next answers are looked at.
	Failing bool
}

// Address puts what change makes of an audience in its place.
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
