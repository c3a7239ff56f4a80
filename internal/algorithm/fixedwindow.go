package algorithm

// A FixedWindow's state is the Start of the present window and what is counted in it and later. Later
// windows fill up in order, each to the limit, and no charge is split over two. A debt counts in its own
// window and ends with it.
const (
	// Count is what has been counted in the present window; also of a SlidingCounter.
	Count = 1
	// Later is what has been reserved in later windows.
	Later = 2
)

// The period or the Window is part of StateName: a limit with another one counts by itself,
// and one with other Units goes on with the count.

func (l *Limit) workOutFixed() { l.largest = l.spec.Units }

// rebaseFixed clamps a state from before the clock was set back. It doesn't move the state on: a
// denial or a look by a version with other Units would then divide what is reserved anew.
func (l *Limit) rebaseFixed(now *Now, s *State) {
	s.W[Start] = l.clampStart(s.W[Start], l.instant(now))
}

// presentWindow returns where the present window begins, what has been counted in it, and what
// has been reserved in later ones.
func (l *Limit) presentWindow(at int64, s *State) (start, count, later int64) {
	if !s.Live {
		return l.startAt(at), 0, 0
	}
	k := l.boundariesIn(s.W[Start], at)
	if k == 0 {
		return s.W[Start], s.W[Count], s.W[Later]
	}
	if k > l.intervalsFor(s.W[Later]) { // no reservation reaches today's window
		return l.startAt(at), 0, 0
	}
	later = s.W[Later] - (k-1)*l.spec.Units
	count = min(later, l.spec.Units)
	return l.startAfter(s.W[Start], k, at), count, later - count
}

func (l *Limit) stepFixed(now *Now, c Charge, s *State, r *Result) {
	if s.Live {
		l.rebaseFixed(now, s)
	}
	at, n := l.instant(now), l.spec.Units
	start, count, later := l.presentWindow(at, s)
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case count+c.Cost <= n:
		count += c.Cost
		s.Live, s.W[Start], s.W[Count], s.W[Later] = true, start, count, later
		r.Receipt = Receipt{Instant: start, Mark: c.Cost, Cost: c.Cost}
	default:
		window, fills := l.laterWindow(start, later, c.Cost)
		if wait := window - at; wait > l.maxWait(c) {
			r.OK, r.RetryAfter = false, micros(wait-l.maxWait(c))
		} else {
			r.Delay = micros(wait)
			later = fills
			s.Live, s.W[Start], s.W[Count], s.W[Later] = true, start, count, later
			r.Receipt = Receipt{Instant: window, Mark: c.Cost, Cost: c.Cost}
		}
	}
	r.Remaining = max(0, n-count)
	if count > 0 || later > 0 {
		r.ResetAfter = micros(l.boundary(start, 1+l.intervalsFor(later)) - at)
	}
	if r.Remaining < n {
		window, _ := l.laterWindow(start, later, r.Remaining+1)
		r.MoreAfter = micros(window - at)
	}
}

// laterWindow returns the window behind the one from start in which there is room for cost, where
// so much is reserved, and what is reserved with it.
func (l *Limit) laterWindow(start, reserved, cost int64) (window, with int64) {
	n := l.spec.Units
	if used := reserved % n; used+cost > n {
		reserved += n - used
	}
	return l.boundary(start, reserved/n+1), reserved + cost
}

// amendFixed: the receipt's Instant is the window that a charge is in. Its Mark is how much of the charge
// that window holds, and so how much can be refunded there.
func (l *Limit) amendFixed(now *Now, c *Settlement, s *State) Receipt {
	r := c.Receipt
	r.Cost = c.Cost
	start, count, later := l.presentWindow(l.instant(now), s)
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff > 0:
		// The debt counts in the window in which it becomes known. If the charge is in
		// another window, or in none, the receipt is for the debt from here on.
		if r.Instant != start {
			r.Instant, r.Mark = start, 0
		}
		debt := min(diff, MaxCost-count)
		r.Mark += debt
		r.Cost -= diff - debt
		s.Live, s.W[Start], s.W[Count], s.W[Later] = true, start, count+debt, later
	case diff < 0:
		refund := min(-diff, r.Mark)
		switch {
		case r.Instant == start:
			refund = min(refund, count)
			count -= refund
		case r.Instant > start:
			refund = min(refund, l.inLastWindow(start, later, r.Instant))
			later -= refund
		default:
			refund = 0
		}
		if refund > 0 {
			r.Mark -= refund
			s.W[Start], s.W[Count], s.W[Later] = start, count, later
		}
		if refund > 0 && count == 0 && later == 0 {
			// Nothing counts any more, so no window is open: ResetAfter is 0, and a store
			// may or may not have dropped the state.
			*s = State{}
		}
	}
	return r
}

// inLastWindow returns how much is reserved in a later window if it is the last one with a reservation.
// Nothing is refunded in an earlier one: the hole would be filled from the last.
func (l *Limit) inLastWindow(start, later, window int64) int64 {
	last := l.intervalsFor(later)
	if last == 0 || l.boundariesIn(start, window) != last {
		return 0
	}
	return later - (last-1)*l.spec.Units
}

// validFixed reports whether a FixedWindow can have written the state.
func (s *State) validFixed() bool {
	return s.Numbers == Numbers{} && s.hasOnly(Start, Count, Later) && absBelow(s.W[Start], remote) &&
		isCount(s.W[Count]) && isCount(s.W[Later]) && len(s.Log) == 0
}
