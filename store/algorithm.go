package store

import "strconv"

// Algorithm names how a limit counts. The zero value is TokenBucket.
type Algorithm uint8

const (
	// TokenBucket starts full, refills continuously at Units per Period and
	// lets a charge pass if its cost is there. State is one integer, the
	// theoretical arrival time of the generic cell rate algorithm (ITU-T
	// I.371). Admits Burst at once and Units per Period from then on.
	TokenBucket Algorithm = iota
	// IntervalBucket starts full; Units tokens arrive together at the end of
	// each Period counted from the first charge, or of each Window. Unused
	// tokens are kept up to Burst.
	IntervalBucket
	// LeakyBucket is a queue that leaks at Units per Period. A charge waits for
	// its turn (Result.Delay); one that finds the Queue full is refused. The
	// first Burst charges beyond the rate pass without delay: nginx's
	// limit_req burst=B delay=D is Burst D, Queue B-D.
	LeakyBucket
	// FixedWindow allows Units per window. The window opens at a key's first
	// charge, or is a calendar Window. Twice the limit can pass across the
	// boundary of two windows.
	FixedWindow
	// SlidingWindow cuts the Period into Buckets and allows Units in the
	// current bucket and the Buckets-1 before it.
	SlidingWindow
	// SlidingCounter estimates a window that slides from the counts of two that don't,
	// aligned to 1970: in the window before charges are taken to have come evenly.
	// State is constant.
	SlidingCounter
	// SlidingLog remembers every charge for one Period: exact, at 16 bytes for
	// each charge in the window.
	SlidingLog
	// WarmUp permits a third of the rate when cold and the full rate once it
	// has been used for the WarmUp period; it cools down again when idle. A
	// charge waits for those before it and its own cost is paid by the next.
	// The curve is that of Guava's SmoothWarmingUp with cold factor 3.
	WarmUp
	// Concurrency allows Units slots to be held at a time. A charge holds a
	// lease until Settle gives it cost 0.
	Concurrency
	// Ban refuses everything for the Ban period once a key has been refused
	// Units times within Period. A charge on it costs nothing; what it counts
	// are the decisions it is part of that another limit refuses, of the same
	// key: see Decide.
	Ban
)

var algorithmNames = [...]string{
	"TokenBucket", "IntervalBucket", "LeakyBucket", "FixedWindow",
	"SlidingWindow", "SlidingCounter", "SlidingLog", "WarmUp", "Concurrency", "Ban",
}

// String returns the constant's name.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "Algorithm(" + strconv.Itoa(int(a)) + ")"
}
