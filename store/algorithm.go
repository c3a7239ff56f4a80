package store

import "github.com/stint-go/stint/internal/algorithm"

// Algorithm is the algorithm by which a limit counts. The zero value is TokenBucket.
type Algorithm uint8

const (
	// TokenBucket starts full with Burst tokens and refills continuously at Units per Period. A
	// charge passes if the bucket holds its cost in tokens. The state is one integer, the
	// theoretical arrival time of the generic cell rate algorithm (ITU-T I.371).
	TokenBucket Algorithm = iota
	// IntervalBucket starts full with Burst tokens. Units tokens arrive together at the
	// end of each Period, counted from the first charge, or at the end of each Window.
	// Unused tokens are kept up to Burst.
	IntervalBucket
	// LeakyBucket is a queue that drains at Units per Period. A charge waits for its
	// turn (Result.Delay) and is denied if the Queue is full. The first Burst units
	// beyond the rate pass without delay: nginx's limit_req with burst=B delay=D is
	// Burst D, Queue B-D.
	LeakyBucket
	// FixedWindow allows Units per window. The window begins at a key's first charge, or is a
	// calendar Window. Up to twice Units can pass in a short time across the boundary of two
	// windows.
	FixedWindow
	// SlidingWindow divides the Period into Buckets and allows Units in the current bucket and
	// the Buckets-1 before it. Up to twice Units can pass within one Period; a SlidingLog and a
	// TokenBucket with a Burst of 1 don't allow that.
	SlidingWindow
	// SlidingCounter estimates a sliding window from the counts of two fixed windows, which are
	// aligned to the origin of Now.Steady. The estimate assumes that the charges of the previous
	// window were spread evenly, and is rounded to the nearest unit. The state has a constant size.
	SlidingCounter
	// SlidingLog stores every charge for one Period. It is exact, and takes 16 bytes for each
	// charge in the window.
	SlidingLog
	// WarmUp permits a third of the rate when cold. While the limit is used, the permitted rate
	// rises to the full rate over the WarmUp period. While the limit is idle, the permitted
	// rate falls again. A charge waits for the earlier charges; its own cost delays the next
	// charge. The curve is that of Guava's SmoothWarmingUp with cold factor 3.
	WarmUp
	// Concurrency allows Units slots to be held at a time. A charge holds a lease until the
	// charge is settled at cost 0.
	Concurrency
	// Ban denies every charge of a key for the Ban period once the key has been denied Units
	// times within Period. A charge on a Ban has no cost. A Ban counts the decisions in which
	// another limit denies the same key. A denial by a Concurrency isn't counted if its charge
	// may wait (Charge.MaxWait), because a waiting caller repeats the charge.
	Ban
)

// String returns the name of the constant.
func (a Algorithm) String() string { return algorithm.Algorithm(a).String() }
