package store

import "cmp"

// State is what a store keeps for one limit and one key. What the words mean
// is the algorithm's business; a store copies them and, where it has to,
// serializes them. The zero State means "never seen": a state that has become
// equal to that (Limit.Lifetime after its last change) may be dropped
// without anybody noticing.
//
// Instants count from the store's own origin: those of rates in the fractions
// of a tick that Numbers tell, others in microseconds. A limit that follows the
// calendar counts microseconds since Epoch.
type State struct {
	// Live tells a state with all words 0 from one never seen.
	Live bool
	// Low is part of an instant that takes more than a word: see Scale.Join.
	Low uint32
	// Numbers are those of the limit that the words were written under, where
	// the words can't be read without them.
	Numbers       Numbers
	A, B, C, D, E int64
	// Log holds entries in ascending order of At. A step only ever reslices
	// it and appends to it.
	Log []Entry
}

// Numbers are what a state has to keep of the limit it was written under, so
// that a limit that has come to say something else can tell what it means: what
// they have given back until then is given back, and no more. They are 0 where that
// doesn't matter.
type Numbers struct {
	// Token is, of rates, the units that one token takes; of an IntervalBucket
	// the tokens of an interval, and of a FixedWindow those of a window, if any to
	// come are reserved; of a WarmUp the units of the warm-up; of a SlidingLog its
	// period in microseconds, and of a SlidingWindow the units of a bucket.
	Token int64
	// Unit is the unit that instants are counted in: a Scale's Code. Of an
	// IntervalBucket or a FixedWindow it is the interval in microseconds, or below
	// 0 where that is a window of the calendar. Of a SlidingWindow it is the Code
	// times 1024, and the number of buckets. Of a Ban and of a SlidingCounter it is the period.
	Unit int64
}

// Entry is one charge, bucket or lease that a State remembers.
type Entry struct{ At, Units int64 }

func compareEntry(e Entry, at int64) int { return cmp.Compare(e.At, at) }

// Now is the instant of one decision.
type Now struct {
	// Steady is in microseconds since the store's own origin and never runs
	// back.
	Steady int64
	// Wall is in microseconds since Epoch and follows the wall clock. Only
	// limits with a calendar window read it.
	Wall int64
	// Lease is an id greater than any that these states have been given: drawn
	// while they are held. Only concurrency limits read it.
	Lease LeaseID
}

// Epoch is 2026-01-01 00:00:00 UTC in seconds since 1970: instants count from
// here, which buys the exact integers below 2^53 another 56 years.
const Epoch = 1767225600
