package store

// Epoch is 2026-01-01 00:00:00 UTC, in seconds since 1970. Instants are counted from Epoch
// instead of 1970, so that they stay below 2^53 for 56 more years.
const Epoch = 1767225600

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
