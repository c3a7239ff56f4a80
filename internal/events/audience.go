package events

import "sync/atomic"

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
