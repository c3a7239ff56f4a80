// Package engine holds what package store shares with the stores, lines and limiters of
// this module and with no other module: the words of a State, the numbers that steps count
// in, and functions that package store keeps to itself.
package engine

// Sealed is a State that only this module can open: store.State is one. A package that can import
// Sealed converts a *store.State into a *Sealed, and opens it.
type Sealed struct{ state State }

// Open returns the state itself.
func (s *Sealed) Open() *State { return &s.state }

// State is a store's record of one limit and one key. The algorithm defines what the words
// mean; a store only copies and, if necessary, serializes them.
//
// Instants count from the store's own origin. A bucket's are in the units of the Scale in
// Numbers; all others are in microseconds. Limits that follow the calendar count
// microseconds since store.Epoch.
type State struct {
	// Live distinguishes a state whose words are all 0 from one never seen.
	Live bool
	// Read is true of a state read from bytes that no limit has checked yet: see
	// store.State.UnmarshalBinary.
	Read bool
	// Numbers are the limit's numbers when the words were written. Only algorithms whose
	// words can't be read without them set it.
	Numbers       Numbers
	A, B, C, D, E int64
	// Log holds entries in ascending order of At. A step only reslices it and appends
	// to it.
	Log []Entry
}

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

// Terms are a Limit's numbers as its steps use them, for a store that runs the steps
// elsewhere, such as in a server's script.
type Terms struct {
	// Numbers are the numbers that the limit's states are written under.
	Numbers Numbers
	// Scale is the unit of a rate's instants, or of a SlidingWindow's buckets.
	Scale Scale
	// Token is the units of one token of a rate, or of one bucket of a SlidingWindow.
	Token int64
	// Capacity is the units that pass at once; Queue those that may be reserved beyond it. They
	// are in units of Scale for a TokenBucket or LeakyBucket, otherwise in tokens.
	Capacity, Queue int64
	// Largest is the largest cost that can ever pass.
	Largest int64
	// Period is in microseconds; 0 for calendar windows.
	Period int64
	// Warm is the whole warm-up of a WarmUp, in units of Scale.
	Warm int64
	// Longest is the furthest into the future that a turn is reserved or a debt
	// reaches, in units of Scale.
	Longest int64
	// Patience is the longest MaxWait that counts, in microseconds. Longer ones are
	// treated as this.
	Patience int64
}

// Span is one window of the calendar, from Start up to but not including End, in
// microseconds since store.Epoch. The windows of a calendar are numbered in order. A number
// is skipped where a time zone has skipped a day.
type Span struct{ Number, Start, End int64 }
