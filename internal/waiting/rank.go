package waiting

import "time"

// Classes is the number of priority classes, from 0 on.
const Classes = 10

// Rank is where a waiter stands among others.
type Rank struct {
	Class uint8
	// Came is when the waiter began to wait, for whatever it was.
	Came time.Time
	// Since is Came less the head start of the class. Ordered by it, a waiter rises by
	// a class for each aging that it waits, and nothing has to be recomputed while it
	// waits.
	Since time.Time
}

// RankOf returns the rank of a waiter that came at some time, where waiters rise by a
// class per aging.
func RankOf(class uint8, came time.Time, aging time.Duration) Rank {
	return Rank{class, came, came.Add(-time.Duration(class) * aging)}
}

// Before reports whether r goes before o. Equals go in the order in which they came;
// those equal in that too are of one class, whose queue is in order.
func (r Rank) Before(o Rank) bool {
	if !r.Since.Equal(o.Since) {
		return r.Since.Before(o.Since)
	}
	return r.Came.Before(o.Came)
}
