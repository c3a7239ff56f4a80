package waiting

import "time"

// Rank is where a waiter stands among others.
type Rank struct {
	Class uint8
	// Came is when the waiter began to wait, for whatever it was.
	Came time.Time
	// Since is Came less the head start of the class. Ordering by it, a waiter
	// rises by a class for each aging that it waits, and nothing has to be worked
	// out anew while it does.
	Since time.Time
}

// Before reports whether r goes before o. Equals go in the order they came;
// those equal in that too are of one class, whose queue is in order.
func (r Rank) Before(o Rank) bool {
	if !r.Since.Equal(o.Since) {
		return r.Since.Before(o.Since)
	}
	return r.Came.Before(o.Came)
}
