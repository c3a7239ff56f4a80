// Package engine holds what package store shares with the stores, lines and limiters of
// this module and with no other module: the words of a State, the numbers that steps count
// in, and the pass to the methods that use them.
package engine

// Access is the parameter of the Engine methods in package store. Only this module can name
// it, so only this module can call them.
type Access struct{ _ struct{} } // with a field, or a struct{}{} of any package would do

// State is a store's record of one limit and one key. The algorithm defines what the words
// mean; a store only copies and, if necessary, serializes them.
//
// Instants count from the store's own origin: those of rates in the units of the Scale
// that Numbers holds, all others in microseconds. Limits that follow the calendar count
// microseconds since store.Epoch.
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

// Entry is one charge, bucket or lease recorded in a State.
type Entry struct{ At, Units int64 }

// Rest is the part of a State beyond its words. It is never changed, so that copies of a
// State may share it.
type Rest struct {
	// Versions are those that keep what a SlidingWindow or a SlidingLog has entered, or
	// the denials of a Ban, if there are several.
	Versions []Version
}

// Version is a version of a limit that has charged a key, and the entry of its latest
// charge.
type Version struct {
	Numbers Numbers
	At      int64
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

// At returns the instant us, in microseconds, as word A of a rate's state with these
// numbers. A state whose A plus D isn't later than that is as if never seen.
func (n Numbers) At(us int64) int64 {
	s := ScaleOf(n.Unit)
	if s.Wide {
		return us << (WideBits - lowBits)
	}
	return s.At(us)
}

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
	// are in units of Scale for a TokenBucket or LeakyBucket whose scale isn't wide,
	// otherwise in tokens.
	Capacity, Queue int64
	// Largest is the largest cost that can ever pass.
	Largest int64
	// Period is in microseconds; 0 for calendar windows.
	Period int64
	// Warm is the whole warm-up of a WarmUp, in units of Scale or in ticks of a wide
	// one.
	Warm int64
	// Longest is the furthest into the future that a turn is reserved or a debt
	// reaches, in units of Scale or in ticks of a wide one.
	Longest int64
	// Patience is the longest MaxWait that counts, in microseconds. Longer ones are
	// treated as this.
	Patience int64
}

// Span is one window of the calendar, from Start up to but not including End, in
// microseconds since store.Epoch. The windows of a calendar are numbered in order. A number
// is skipped where a time zone has skipped a day.
type Span struct{ Number, Start, End int64 }
