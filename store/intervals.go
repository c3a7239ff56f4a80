package store

// The intervals of an IntervalBucket and the windows of a FixedWindow are of one kind. They follow
// the calendar, or begin with a key's first charge and have a fixed length. Instants are those of
// Limit.instant.

// begun returns the start of an interval or window as of at. If the state says it
// begins later, it was written before the clock was set back: the interval then begins
// now, or a key would be denied for as long as the difference.
func (l *Limit) begun(start, at int64) int64 {
	if start > at {
		return l.opened(at)
	}
	return start
}

// boundary returns the start of the n-th interval after the one starting at start.
func (l *Limit) boundary(start, n int64) int64 {
	if l.calendar() {
		if last := l.last.Load(); n == 1 && last != nil && start == last.start {
			return last.end
		}
		return l.spec.Window.ahead(start, n)
	}
	return start + min(n, exact/2/l.period)*l.period
}

// passed returns the number of boundaries in (start, at], given that start is one.
func (l *Limit) passed(start, at int64) int64 {
	if at <= start {
		return 0
	}
	if l.calendar() {
		if last := l.last.Load(); last != nil && start == last.start && at < last.end {
			return 0
		}
		return l.spec.Window.between(start, at)
	}
	return (at - start) / l.period
}

// moved returns the start of the interval that contains at, which is k after the one
// from start.
func (l *Limit) moved(start, k, at int64) int64 {
	if l.calendar() {
		return l.opened(at)
	}
	return start + k*l.period
}

// opened returns the start of the interval or window for a key never seen.
func (l *Limit) opened(at int64) int64 {
	if !l.calendar() {
		return at
	}
	last := l.last.Load()
	if last == nil || at < last.start || at >= last.end {
		last = new(bounds)
		last.start, last.end = l.spec.Window.bounds(at)
		l.last.Store(last)
	}
	return last.start
}

// steps returns the number of intervals that bring n tokens.
func (l *Limit) steps(n int64) int64 { return (n + l.spec.Units - 1) / l.spec.Units }

// tokensOf returns what k intervals bring, at most used.
func tokensOf(k, units, used int64) int64 {
	if k >= ceilDiv(used, units) {
		return used
	}
	return k * units
}

// intervalLength returns the length of intervals with this Numbers.Unit, or of the longest
// if their lengths vary: a day where clocks skip one lasts for nearly two.
func intervalLength(unit int64) int64 {
	const hour = 3600 * 1_000_000
	if unit > 0 {
		return unit
	}
	switch windowKind(-unit & 7) {
	case everyWindow:
		return -unit / 8
	case hourlyWindow:
		return 2 * hour
	case dailyWindow:
		return 50 * hour
	case weeklyWindow:
		return 9 * 24 * hour
	default:
		return 33 * 24 * hour
	}
}
