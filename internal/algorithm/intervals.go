package algorithm

// The intervals of an IntervalBucket and the windows of a FixedWindow are of one kind. They follow
// the calendar, or begin with a key's first charge and have a fixed length. Instants are those of
// Limit.instant.

// Start is where the present interval or window begins; also of a SlidingCounter.
const Start = 0

// clampStart returns the start of an interval, which is in a state. If that is later than at, it was
// written before the clock was set back. The interval then begins now, or a key would be denied for as
// long as the difference.
func (l *Limit) clampStart(start, at int64) int64 {
	if start > at {
		return l.startAt(at)
	}
	return start
}

// furthestBoundary is how far ahead boundary looks, in microseconds: with an instant within the horizon
// on top, the sum is below 2^53.
const furthestBoundary = exact / 2

// boundary returns the start of the n-th interval after the one starting at start, or of the last
// one that isn't too far ahead.
func (l *Limit) boundary(start, n int64) int64 {
	if l.calendar() {
		if last := l.lastBounds.Load(); n == 1 && last != nil && start == last.start {
			return last.end
		}
		return l.spec.Window.startAhead(start, n)
	}
	return start + min(n, furthestBoundary/l.period)*l.period
}

// boundariesIn returns the number of intervals that begin in (start, at]. One begins at start.
func (l *Limit) boundariesIn(start, at int64) int64 {
	if at <= start {
		return 0
	}
	if l.calendar() {
		if last := l.lastBounds.Load(); last != nil && start == last.start && at < last.end {
			return 0
		}
		return l.spec.Window.between(start, at)
	}
	return (at - start) / l.period
}

// startAfter returns the start of the interval that contains at: the k-th after the one from start.
func (l *Limit) startAfter(start, k, at int64) int64 {
	if l.calendar() {
		return l.startAt(at)
	}
	return start + k*l.period
}

// startAt returns the start of the interval at an instant for a key never seen.
func (l *Limit) startAt(at int64) int64 {
	if !l.calendar() {
		return at
	}
	last := l.lastBounds.Load()
	if last == nil || at < last.start || at >= last.end {
		last = new(bounds)
		last.start, last.end = l.spec.Window.bounds(at)
		l.lastBounds.Store(last)
	}
	return last.start
}

// intervalsFor returns the number of intervals that bring n tokens.
func (l *Limit) intervalsFor(n int64) int64 { return (n + l.spec.Units - 1) / l.spec.Units }

// tokensIn returns how many tokens k intervals of units each bring, at most used.
func tokensIn(k, units, used int64) int64 {
	if k >= ceilDiv(used, units) {
		return used
	}
	return k * units
}

// intervalLength returns the length, in microseconds, of intervals with this Numbers.Unit: a length
// or a Window.code. Where the lengths vary, it is an upper bound. An hour is longer
// only where clocks change by part of one. A day, week or month can be a day longer: a time zone that
// changes sides of the date line sets its clocks back by up to a day. Daylight saving time may end in
// it as well: for that a day has 2 more hours, and the others have another day.
func intervalLength(unit int64) int64 {
	const (
		hour = 3600 * 1_000_000
		day  = 24 * hour
	)
	if unit > 0 {
		return unit
	}
	switch kind, every := decodeWindow(unit); kind {
	case everyWindow, everyFrom:
		return every
	case hourlyWindow:
		return 2 * hour
	case dailyWindow:
		return 2*day + 2*hour
	case weeklyWindow:
		return 9 * day
	case yearlyWindow:
		return 368 * day
	default:
		return 33 * day
	}
}
