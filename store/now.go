package store

import "time"

// Now is the instant of one decision.
type Now struct {
	// Steady is in microseconds since the store's own origin, the same for all of its states.
	// It never runs backwards while the store is in use. A store whose states outlive the
	// process counts from a date, such as Epoch; if its clock has been set back, states from
	// the future are clamped to the present.
	Steady int64
	// Wall is in microseconds since Epoch and follows the wall clock. Only limits for
	// which Limit.FollowsCalendar is true need it; for all others it may be 0.
	Wall int64
	// Lease is an id greater than any used with these states before, drawn while the states are
	// locked. Only concurrency limits read it.
	Lease LeaseID
}

// instant is the present as the limit counts it, in microseconds: limits of the
// calendar follow the wall clock, all others a clock that is never set.
func (l *Limit) instant(now *Now) int64 {
	if l.calendar() {
		return now.Wall
	}
	return now.Steady
}

// maxWait returns the charge's MaxWait in microseconds, at most the limit's patience.
func (l *Limit) maxWait(c *Charge) int64 {
	return min(int64(max(c.MaxWait, 0)/time.Microsecond), l.patience)
}
