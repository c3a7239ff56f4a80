package store

// IntervalBucket. State.A is the start of the current interval in
// microseconds, State.B the tokens used and not yet given back, which turns
// reserved and debts may take beyond the capacity; State.C is by how much they
// did when last written. Counting what is used, not what is left, makes a full
// bucket the zero state: the next interval then starts at the next charge, as
// it would for a key never seen.

func (l *Limit) workOutInterval() {
	l.capacity, l.largest = l.spec.Burst, l.spec.Burst
}

// boundary is the start of the n-th interval after the one starting at start.
func (l *Limit) boundary(start, n int64) int64 {
	if l.calendar() {
		return l.spec.Window.ahead(start, n)
	}
	return start + min(n, exact/2/l.period)*l.period
}

// passed is the number of boundaries in (start, at], given that a boundary is
// at start.
func (l *Limit) passed(start, at int64) int64 {
	if at <= start {
		return 0
	}
	if l.calendar() {
		return l.spec.Window.between(start, at)
	}
	return (at - start) / l.period
}

// opened is the start of the interval or window of a key never seen.
func (l *Limit) opened(at int64) int64 {
	if l.calendar() {
		start, _ := l.spec.Window.bounds(at)
		return start
	}
	return at
}

// steps is the number of intervals that bring n tokens.
func (l *Limit) steps(n int64) int64 { return (n + l.spec.Units - 1) / l.spec.Units }

func (l *Limit) rebaseInterval(now *Now, s *State) {
	at := l.instant(now)
	if k := l.passed(s.A, at); k > 0 {
		if k >= l.steps(s.B) {
			*s = State{}
			return
		}
		s.B -= k * l.spec.Units
		s.A = l.boundary(s.A, k)
	}
	s.B = min(s.B, l.capacity+s.C)
}

func (l *Limit) stepInterval(now *Now, c *Charge, s *State, r *Result) {
	at, start := l.instant(now), s.A
	if !s.Live {
		start = l.opened(at)
	}
	at = max(at, start)
	used := s.B
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	default:
		if short := used + c.Cost - l.capacity; short > 0 {
			k := l.steps(short)
			wait := l.boundary(start, k) - at
			if wait > c.maxWait() {
				r.OK, r.RetryAfter = false, micros(wait-c.maxWait())
				break
			}
			r.Delay = micros(wait)
			// The turn comes with the tokens of k intervals, of which the bucket
			// then holds no more than it can: the rest must not be there for the
			// next charge.
			used = max(used, k*l.spec.Units)
		}
		used += c.Cost
		*s = State{Live: true, A: start, B: used, C: max(0, used-l.capacity)}
		r.Receipt = Receipt{Instant: start, Mark: used, Cost: c.Cost}
	}
	r.Remaining = max(0, l.capacity-used)
	if used > 0 {
		r.ResetAfter = micros(l.boundary(start, l.steps(used)) - at)
	}
}

func (l *Limit) amendInterval(now *Now, c *Charge, s *State) Receipt {
	if !s.Live {
		*s = State{Live: c.Cost > c.Receipt.Cost, A: l.opened(l.instant(now))}
	}
	// Where the charge stands today: less what the intervals since then gave.
	mark := c.Receipt.Mark
	if k := l.passed(c.Receipt.Instant, s.A); k >= l.steps(mark) {
		mark = 0
	} else {
		mark -= k * l.spec.Units
	}
	mark = min(mark, s.B)
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff > 0:
		owing := max(s.B, min(s.B+diff, l.capacity+MaxCost))
		mark += owing - s.B
		s.B = owing
	case diff < 0:
		back := owed(-diff, mark, s.B-mark, s.B > l.capacity)
		s.B -= back
		mark -= back
	}
	s.C = max(0, s.B-l.capacity)
	if s.B == 0 {
		*s = State{}
	}
	return Receipt{Instant: s.A, Mark: mark}
}
