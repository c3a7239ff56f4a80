package store

import (
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// FixedWindow. State.A is the start of the current window in microseconds, State.B what
// has been counted in it, and State.C what has been reserved in later windows. Those
// fill up in order, each to the limit, and no charge is split over two. A debt counts
// in its own window and ends with it. The windows are those of the Numbers that the
// state was opened under.

func (l *Limit) workOutFixed() {
	l.largest = l.spec.Units
	l.numbers = engine.Numbers{Token: l.spec.Units, Unit: l.interval()}
}

// rebaseFixed: a window that was opened under other numbers lasts as long as those say,
// or as the limit's own window in which it began, whichever is longer. Charges until then
// count there, against the new numbers. So versions that take turns agree on when a
// count ends, and neither ends it nor prolongs it further.
func (l *Limit) rebaseFixed(now *Now, s *state) {
	if s.Numbers.Unit != l.numbers.Unit {
		l.rebaseOther(now, s)
		return
	}
	at, units := l.instant(now), l.spec.Units
	if s.C > 0 {
		units, s.Numbers.Token = s.Numbers.Token, units
	}
	s.A = l.begun(s.A, at)
	if k := l.passed(s.A, at); k > 0 {
		s.next(k, units, l.moved(s.A, k, at))
	}
}

// rebaseOther brings a state that isn't in the limit's own windows to the present.
func (l *Limit) rebaseOther(now *Now, s *state) {
	at, length := l.instantOf(s, now), lengthOf(s.Numbers.Unit)
	if k := (at - s.A) / length; k > 0 {
		s.next(k, s.Numbers.Token, s.A+k*length)
	}
	switch began := s.A; {
	case !s.Live:
	case began > at || !l.reads(s, now): // the clock has been set back, or isn't known
		*s = l.open(l.opened(l.instant(now)), s.B, s.C)
	default:
		began += l.instant(now) - at // by the limit's own clock
		if start := l.opened(began); l.boundary(start, 1) > began+length {
			*s = l.open(start, s.B, s.C)
		}
	}
}

// reads reports whether the clock of a state's windows is known.
func (l *Limit) reads(s *state, now *Now) bool {
	return s.Numbers.Unit > 0 || l.calendar() || now.Wall != 0
}

// instantOf is the present by the clock of a state's windows, or their beginning if that
// isn't known: see instant.
func (l *Limit) instantOf(s *state, now *Now) int64 {
	switch {
	case s.Numbers.Unit > 0:
		return now.Steady
	case l.reads(s, now):
		return now.Wall
	default:
		return s.A
	}
}

// lengthOf returns the length of windows with this Numbers.Unit, or about that: of a
// calendar that isn't the limit's own, the zone isn't known.
func lengthOf(unit int64) int64 {
	if length := intervalLength(unit); length > 0 {
		return length
	}
	return Window{kind: windowKind(-unit & 7)}.nominal()
}

// open returns a state with count in the window from start, and later in those after
// it.
func (l *Limit) open(start, count, later int64) state {
	s := state{Live: true, Numbers: l.numbers, A: start, B: count, C: later}
	if later == 0 {
		s.Numbers.Token = 0
	}
	return s
}

// next moves the state on by k windows of n units each, to the one from start.
func (s *state) next(k, n, start int64) {
	if s.C == 0 || k-1 >= ceilDiv(s.C, n) { // no reservation reaches today's window
		*s = state{}
		return
	}
	s.A = start
	s.C -= (k - 1) * n
	s.B = min(s.C, n)
	if s.C -= s.B; s.C == 0 {
		s.Numbers.Token = 0
	}
}

func (l *Limit) stepFixed(now *Now, c *Charge, s *state, r *Result) {
	l.rebase(now, s)
	if s.Live && s.Numbers.Unit != l.numbers.Unit {
		l.stepOther(now, c, s, r)
		return
	}
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
		if count += c.Cost; s.Live {
			s.B = count // writing the whole State would take longer than all else
		} else {
			*s = l.open(start, count, 0)
		}
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

// stepOther is stepFixed in windows that were opened under other numbers. Nothing is
// reserved in those.
func (l *Limit) stepOther(now *Now, c *Charge, s *state, r *Result) {
	n, length := l.spec.Units, lengthOf(s.Numbers.Unit)
	last, tail := s.reserved(s.Numbers.Token)
	until := func(windows int64) time.Duration {
		return micros(s.A + min(windows, exact/2/length)*length - l.instantOf(s, now))
	}
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case s.B+c.Cost <= n:
		s.B += c.Cost
		r.Receipt = Receipt{Instant: s.A, Mark: c.Cost, Cost: c.Cost}
	case last > 1 && s.Numbers.Token+c.Cost <= n: // in the next one, which is full by its numbers
		r.OK, r.RetryAfter = false, until(1)
	case last > 0 && tail+c.Cost <= n:
		r.OK, r.RetryAfter = false, until(last)
	default:
		r.OK, r.RetryAfter = false, until(last+1)
	}
	r.Remaining = max(0, n-s.B)
	r.ResetAfter = until(last + 1)
}

// reserved returns in how many later windows of n units something is reserved, and how
// much in the last of them.
func (s *state) reserved(n int64) (last, tail int64) {
	if s.C == 0 {
		return 0, 0
	}
	last = ceilDiv(s.C, n)
	return last, s.C - (last-1)*n
}

// The receipt says which window a charge is in. Its Mark is how much of the charge that
// window holds, and so how much can be refunded there.
func (l *Limit) amendFixed(now *Now, c *Charge, s *state) Receipt {
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
		n, passed := l.spec.Units, int64(0)
		if s.Numbers.Unit == l.numbers.Unit {
			passed = l.passed(s.A, receipt.Instant)
		} else {
			n, passed = s.Numbers.Token, (receipt.Instant-s.A)/lengthOf(s.Numbers.Unit)
		}
		last, tail := s.reserved(n)
		if last == 0 || passed != last {
			return receipt
		}
		refund = min(refund, tail)
		if s.C -= refund; s.C == 0 {
			s.Numbers.Token = 0
		}
	}
	receipt.Mark -= refund
	if s.B == 0 && s.C == 0 {
		// Nothing counts any more, so no window is open: ResetAfter is 0, and a store
		// may or may not have dropped the state.
		*s = state{}
	}
	return receipt
}
