package store

import "cmp"

// State is a store's record of one limit and one key. The algorithm defines what the
// words mean; a store only copies and, if necessary, serializes them. The zero State
// means "never seen". Every state becomes equal to it Limit.Lifetime after its last
// change and may then be dropped without any effect.
//
// Instants count from the store's own origin: those of rates in the units of the Scale
// that Numbers holds, all others in microseconds. Limits that follow the calendar count
// microseconds since Epoch.
type State struct {
	// Live distinguishes a state whose words are all 0 from one never seen.
	Live bool
	// Low is the rest of an instant that needs more than one word: see Scale.Join.
	Low uint32
	// Numbers are those of the limit that the words were written under, if the words
	// can't be read without them.
	Numbers       Numbers
	A, B, C, D, E int64
	// Log holds entries in ascending order of At. A step only reslices it and appends
	// to it.
	Log []Entry
	// Rest holds the parts that few states have; otherwise it is nil.
	Rest *Rest
}

// Numbers are the numbers of the limit that a state was written under. They let a limit
// whose numbers have changed read the state: it gives back exactly what the old numbers
// have given back until now. They are 0 for algorithms that don't need them.
type Numbers struct {
	// Token depends on the algorithm:
	//
	//   - TokenBucket, LeakyBucket: the units of one token.
	//   - IntervalBucket: the tokens of an interval.
	//   - FixedWindow: the tokens of a window, if any are reserved in later ones.
	//   - SlidingWindow: the units of one bucket.
	//   - SlidingLog, Ban: the period in microseconds.
	//   - WarmUp: the units of the whole warm-up.
	Token int64
	// Unit is the unit of instants, the Code of a Scale, except for these:
	//
	//   - IntervalBucket, FixedWindow: the interval in microseconds, or a negative code
	//     for a calendar window.
	//   - SlidingWindow: the Code times 1024, plus the number of buckets.
	//   - SlidingCounter: the period in microseconds.
	Unit int64
}

// Entry is one charge, bucket or lease recorded in a State.
type Entry struct{ At, Units int64 }

func compareEntry(e Entry, at int64) int { return cmp.Compare(e.At, at) }

// Now is the instant of one decision.
type Now struct {
	// Steady is in microseconds since the store's own origin. It never runs back.
	Steady int64
	// Wall is in microseconds since Epoch and follows the wall clock. Only limits for
	// which Limit.FollowsCalendar is true need it; for all others it may be 0.
	Wall int64
	// Lease is an id greater than any given to these states before, drawn while they
	// are held. Only concurrency limits read it.
	Lease LeaseID
}

// Epoch is 2026-01-01 00:00:00 UTC, in seconds since 1970. Instants count from here
// rather than from 1970, which keeps them below 2^53 for another 56 years.
const Epoch = 1767225600
