package algorithm

// SlidingLog enters every charge at its own microsecond, merging charges of the same
// microsecond, and is exact: over any period ending now at most Units have passed.
// Denied charges aren't entered, so a caller that keeps retrying gets back in. A state
// takes 16 bytes for each microsecond with a charge in the window, and at most twice
// that while it grows.

func (l *Limit) workOutSlidingLog() {
	l.largest = l.spec.Units
	l.lookback = lookback{token: l.period}
}
