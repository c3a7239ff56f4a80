package stint

import (
	"context"
	"time"
)

// classes is how many classes of priority there are.
const classes = 10

// rank is where a waiter stands among others.
type rank struct {
	class uint8
	came  time.Time
	// since is came less the head start of its class. Ordering by it, a waiter
	// rises by a class for each aging it waits, with nothing to be worked out
	// anew while it does.
	since time.Time
}

// before reports whether r goes before o. Of equals, who came first; what is
// equal in that too is of one class, whose queue is in order.
func (r rank) before(o rank) bool {
	if !r.since.Equal(o.since) {
		return r.since.Before(o.since)
	}
	return r.came.Before(o.came)
}

// rank is the call's, for as long as it waits, whatever for.
func (c *call) rank(ctx context.Context, now time.Time) rank {
	if c.came.IsZero() {
		c.came = now
	}
	return rank{came: c.came, since: c.came}
}
