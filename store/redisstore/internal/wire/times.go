package wire

import "time"

// Times are the arguments of a call that are about time.
type Times struct {
	// Clock is empty, or the caller's instant and the number of keys that guard it.
	Clock string
	// Wall is about the server's instant, in microseconds since store.Epoch. Asked are those
	// around which the script has asked for windows of the calendar.
	Wall  int64
	Asked []int64
	Lease *LeaseTime

	// counted lists the charges whose denial counts for the present one, by number.
	counted string
}

// LeaseTime is how long leases last, as arguments.
type LeaseTime struct {
	lasts    any // in microseconds
	lifetime any // of a set of leases, in milliseconds
}

// NewLeaseTime returns the arguments of leases that last for d.
func NewLeaseTime(d time.Duration) *LeaseTime {
	us := d.Microseconds()
	return &LeaseTime{text(us), text(2 * (us/1000 + 1))}
}
