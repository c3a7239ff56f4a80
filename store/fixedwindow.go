package store

// FixedWindow. State.A is the start of the current window in microseconds, State.B what
// has been counted in it, and State.C what has been reserved in later windows. Those
// fill up in order, each to the limit, and no charge is split over two. A debt counts
// in its own window and ends with it.

func (l *Limit) workOutFixed() {
	l.largest = l.spec.Units
	l.numbers = Numbers{Token: l.spec.Units, Unit: l.interval()}
}

func (l *Limit) rebaseFixed(now *Now, s *State) {
	at := l.instant(now)
	s.A = l.begun(s.A, at)
	if s.Numbers.Unit != l.numbers.Unit || s.C > 0 && s.Numbers != l.numbers {
		if l.changeFixed(at, s); !s.Live {
			return
		}
	}
	if k := l.passed(s.A, at); k > 0 {
		s.next(k, l.spec.Units, l.moved(s.A, k, at))
	}
}

// open returns a state with count in the window from start, and later in those after
// it.
func (l *Limit) open(start, count, later int64) State {
	s := State{Live: true, Numbers: l.numbers, A: start, B: count, C: later}
	if later == 0 {
		s.Numbers.Token = 0
	}
	return s
}

// changeFixed carries over a state that was written under other numbers. A window that
// is over by its own numbers stays over; one that isn't continues, for as long as
// windows are now. Of the calendar's windows only the present one is known: a state
// whose window began before it is taken to be in the window before.
func (l *Limit) changeFixed(at int64, s *State) {
	was := s.Numbers
	if length := intervalLength(was.Unit); length > 0 {
		if k := (at - s.A) / length; k > 0 {
			s.next(k, was.Token, s.A+k*length)
		}
	}
	if start := l.opened(at); l.calendar() && s.Live {
		if s.A < start {
			s.next(1, was.Token, start)
		}
		s.A = start
	}
	if s.Live {
		*s = l.open(s.A, s.B, s.C)
	}
}

// next moves the state on by k windows of n units each, to the one from start.
func (s *State) next(k, n, start int64) {
	if s.C == 0 || k-1 >= ceilDiv(s.C, n) { // no reservation reaches today's window
		*s = State{}
		return
	}
	s.A = start
	s.C -= (k - 1) * n
	s.B = min(s.C, n)
	if s.C -= s.B; s.C == 0 {
		s.Numbers.Token = 0
	}
}

func (l *Limit) stepFixed(now *Now, c *Charge, s *State, r *Result) {
	l.rebase(now, s)
	at, start, n := l.instant(now), s.A, l.spec.Units
	if !s.Live {
		start = l.opened(at)
	}
	count, later := s.B, s.C
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case count+c.Cost <= n:
		count += c.Cost
		*s = l.open(start, count, later)
		r.Receipt = Receipt{Instant: start, Mark: c.Cost, Cost: c.Cost}
	default:
		if used := later % n; used+c.Cost > n {
			later += n - used
		}
		window := l.boundary(start, later/n+1)
		later += c.Cost
		if wait := window - at; wait > l.maxWait(c) {
			r.OK, r.RetryAfter = false, micros(wait-l.maxWait(c))
			later = s.C
		} else {
			r.Delay = micros(wait)
			*s = l.open(start, count, later)
			r.Receipt = Receipt{Instant: window, Mark: c.Cost, Cost: c.Cost}
		}
	}
	r.Remaining = max(0, n-count)
	if count > 0 || later > 0 {
		r.ResetAfter = micros(l.boundary(start, 1+l.steps(later)) - at)
	}
}

// The receipt says which window a charge is in. Its Mark is how much of the charge that
// window holds, and so how much can be refunded there.
func (l *Limit) amendFixed(now *Now, c *Charge, s *State) Receipt {
	receipt := c.Receipt
	diff := c.Cost - c.Receipt.Cost
	receipt.Cost = c.Cost
	refund := min(-diff, receipt.Mark)
	switch {
	case diff > 0:
		// The debt counts in the window in which it becomes known. If the charge is in
		// another window, or in none, the receipt stands for the debt from here on.
		if !s.Live {
			*s = l.open(l.opened(l.instant(now)), 0, 0)
		}
		if receipt.Instant != s.A {
			receipt.Instant, receipt.Mark = s.A, 0
		}
		debt := min(diff, MaxCost-s.B)
		s.B += debt
		receipt.Mark += debt
		receipt.Cost -= diff - debt
		return receipt
	case refund <= 0 || !s.Live || receipt.Instant < s.A:
		return receipt
	case receipt.Instant == s.A:
		refund = min(refund, s.B)
		s.B -= refund
	default:
		// A later window. Refund only from the last one reserved: a hole in an earlier
		// one would be filled from the last.
		last := l.steps(s.C)
		if last == 0 || l.passed(s.A, receipt.Instant) != last {
			return receipt
		}
		refund = min(refund, s.C-(last-1)*l.spec.Units)
		if s.C -= refund; s.C == 0 {
			s.Numbers.Token = 0
		}
	}
	receipt.Mark -= refund
	if s.B == 0 && s.C == 0 {
		// Nothing counts any more, so no window is open: ResetAfter is 0, and a store
		// may or may not have dropped the state.
		*s = State{}
	}
	return receipt
}
