package algorithm

import "time"

// Never is the RetryAfter of a charge whose cost can never pass.
const Never = time.Duration(1<<63 - 1)

// MaxCost is the largest cost of one charge, and the largest Units, Burst and Queue of a limit.
const MaxCost = 1 << 40

// None, as a Burst or a Queue, means no burst or no queue; 0 means the default.
const None = -1

// Charge is what a step reads of a store.Charge.
type Charge struct {
	Cost    int64
	MaxWait time.Duration
}

// Settlement is what Amend reads of a store.Charge: the new cost of the charge that has the receipt.
type Settlement struct {
	Cost    int64
	MaxWait time.Duration // of charges that Remaining is for
	Receipt Receipt
}

// The types below have the fields of those of package store, which describes them, so that a pointer
// to one converts to a pointer to the other.

// Now is store.Now.
type Now struct {
	Steady int64
	Wall   int64
	Lease  LeaseID
}

// Result is store.Result.
type Result struct {
	OK         bool
	Begun      bool
	Processes  uint32
	Held       int64
	Remaining  int64
	Delay      time.Duration
	RetryAfter time.Duration
	ResetAfter time.Duration
	MoreAfter  time.Duration
	Receipt    Receipt
}

// LeaseID is store.LeaseID.
type LeaseID = [16]byte

// Receipt is store.Receipt.
type Receipt = struct {
	Instant, Mark int64
	Cost          int64
	Lease         LeaseID
	Path          uint8
}

// Spec has the fields of store.Spec.
type Spec struct {
	Name      string
	Algorithm Algorithm
	Units     int64
	Period    time.Duration
	Window    Window
	Burst     int64
	Queue     int64
	Debt      bool
	WarmUp    time.Duration
	Ban       time.Duration
	Buckets   int64
}

// Problem is store.SpecError.
type Problem struct {
	Field   string
	Problem string
	Write   string
	Names   []string
}
