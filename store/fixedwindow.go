package store

// FixedWindow. State.A is the start of the current window in microseconds,
// State.B what has been counted in it, State.C what has been reserved in the
// windows after it: they fill up in order, each to the limit, and no charge is
// split over two. A debt counts in its own window and is gone with it.

func (l *Limit) workOutFixed() { l.largest = l.spec.Units }

func (l *Limit) rebaseFixed(now Now, s *State) {
	k := l.passed(s.A, l.instant(now))
	if k == 0 {
		return
	}
	n := l.spec.Units
	if s.C == 0 || k-1 >= l.steps(s.C) { // nobody reserved as far as today
		*s = State{}
		return
	}
	s.A = l.boundary(s.A, k)
	s.C -= (k - 1) * n
	s.B = min(s.C, n)
	s.C -= s.B
}

func (l *Limit) stepFixed(now Now, c *Charge, s *State, r *Result) {
	at, start, n := l.instant(now), s.A, l.spec.Units
	if !s.Live {
		start = l.opened(at)
	}
	at = max(at, start)
	count, later := s.B, s.C
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case count+c.Cost <= n:
		count += c.Cost
		*s = State{Live: true, A: start, B: count, C: later}
		r.Receipt = Receipt{Instant: start, Mark: count, Cost: c.Cost}
	default:
		if used := later % n; used+c.Cost > n {
			later += n - used
		}
		window := l.boundary(start, later/n+1)
		later += c.Cost
		if wait := window - at; wait > c.maxWait() {
			r.OK, r.RetryAfter = false, micros(wait-c.maxWait())
			later = s.C
		} else {
			r.Delay = micros(wait)
			*s = State{Live: true, A: start, B: count, C: later}
			r.Receipt = Receipt{Instant: window, Mark: later, Cost: c.Cost}
		}
	}
	r.Remaining = max(0, n-count)
	if count > 0 || later > 0 {
		r.ResetAfter = micros(l.boundary(start, 1+l.steps(later)) - at)
	}
}

func (l *Limit) amendFixed(now Now, c *Charge, s *State) Receipt {
	receipt := c.Receipt
	diff := c.Cost - c.Receipt.Cost
	switch {
	case diff > 0:
		if !s.Live {
			*s = State{Live: true, A: l.opened(l.instant(now))}
		}
		s.B = min(s.B+diff, MaxCost)
		if c.Receipt.Instant != s.A {
			// The charge it adds to is in another window, or in none: from here
			// on the receipt stands for the part that can still be refunded.
			receipt.Instant = s.A
		}
	case diff == 0 || !s.Live || receipt.Instant < s.A:
	case receipt.Instant == s.A:
		s.B = max(0, s.B+diff)
	default:
		// A window to come. Only from the last one reserved: a hole in an
		// earlier one would be filled from behind, in the last.
		last := l.steps(s.C)
		if l.passed(s.A, receipt.Instant) == last && last > 0 {
			s.C -= min(-diff, s.C-(last-1)*l.spec.Units)
		}
	}
	if s.B == 0 && s.C == 0 {
		// Nothing counts any more, so nothing has opened a window: ResetAfter
		// is 0, and a store may have dropped the state or not.
		*s = State{}
	}
	return receipt
}
