package store

import "time"

// Now is the instant of one decision.
type Now struct {
	// Steady is in microseconds since an origin that the store chooses for all of its states.
	// Steady never decreases while the store is in use. A store whose states outlive the
	// process counts from a date, such as Epoch. If its clock has been set back, states from
	// the future are clamped to the present.
	Steady int64
	// Wall is the time of the wall clock in microseconds since Epoch. It may be 0 if
	// Limit.FollowsCalendar is false for all limits of the decision.
	Wall int64
	// Lease is an id that is greater than all ids used with these states before. The store
	// chooses it while the states are locked. Only concurrency limits use Lease.
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
