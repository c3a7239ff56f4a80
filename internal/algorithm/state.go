package algorithm

import (
	"cmp"
)

// Sealed is a State that only this module can open: store.State is one. A package that can import
// Sealed converts a *store.State into a *Sealed, and opens it.
type Sealed struct{ state State }

// Open returns the state itself.
func (s *Sealed) Open() *State { return &s.state }

// State is a store's record of one limit and one key. The algorithm defines what the words
// mean; a store only copies and, if necessary, serializes them.
//
// Instants count from the store's own origin. A bucket's Tat and Ahead are in the units of the Scale in
// Numbers; all other instants are in microseconds. Limits that follow the calendar count
// microseconds since store.Epoch.
type State struct {
	// Live distinguishes a state whose words are all 0 from one never seen.
	Live bool
	// Read is true of a state read from bytes that no limit has checked yet: see
	// store.State.UnmarshalBinary.
	Read bool
	// Numbers are the limit's numbers when the words were written. Only algorithms whose
	// words can't be read without them set it.
	Numbers Numbers
	// W are the words by name: s.W[Tat].
	W Words
	// Log holds entries in ascending order of At. A step reslices it, appends to it or replaces it, but never
	// writes to its entries: copies of a State share them.
	Log []Entry
}

// Words are what a state consists of beside its Log. Each algorithm has its own names for them.
type Words [5]int64

// Entry is one charge, bucket, level or lease recorded in a State.
type Entry struct{ At, Units int64 }

// Numbers are the numbers that a state was written under. A limit with other numbers reads
// the state by these: time gives back what they give back. They are 0 for algorithms whose
// states don't depend on numbers, or whose StateName contains them.
type Numbers struct {
	// Token depends on the algorithm:
	//
	//   - TokenBucket, LeakyBucket: the units of one token.
	//   - IntervalBucket: the tokens of an interval.
	//   - WarmUp: the units of the whole warm-up.
	//   - Ban: the period in microseconds.
	Token int64
	// Unit is the Code of the Scale of instants; of an IntervalBucket it is the interval
	// in microseconds, or a negative code for a calendar window.
	Unit int64
	// Burst is the capacity of a bucket in tokens.
	Burst int64
}

// At returns the instant us, in microseconds, in the units of a bucket with these numbers.
func (n Numbers) At(us int64) int64 { return ScaleOf(n.Unit).At(us) }

// hasOnly reports whether all other words of a state are 0.
func (s *State) hasOnly(used ...int) bool {
	w := s.W
	for _, i := range used {
		w[i] = 0
	}
	return w == Words{}
}

// isCount reports whether n may be a number of units or tokens.
func isCount(n int64) bool { return 0 <= n && n < exact }

// absBelow reports whether n is nearer to 0 than end.
func absBelow(n, end int64) bool { return -end < n && n < end }

// ascends reports whether the Log is in order and ends before end, and whether every entry
// has as many units as least.
func (s *State) ascends(least, end int64) bool {
	last := int64(-remote)
	for _, e := range s.Log {
		if e.At < last || e.At >= end || e.Units < least {
			return false
		}
		last = e.At
	}
	return true
}

// units returns the sum of the Log's units, or -1 if it is too large.
func (s *State) units() (sum int64) {
	for _, e := range s.Log {
		if e.Units >= exact-sum {
			return -1
		}
		sum += e.Units
	}
	return sum
}

func compareEntry(e Entry, at int64) int { return cmp.Compare(e.At, at) }
