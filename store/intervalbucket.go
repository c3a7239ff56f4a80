package store

import (
	"cmp"
	"time"
)

// IntervalBucket. State.A is the start of the current interval in microseconds. State.B
// is the number of tokens used and not yet given back; reserved turns and debts may
// take it beyond the capacity. State.C is the capacity the state was written under, and
// State.D what was clamped when the capacity was lowered (see changeBucket). No refund
// takes State.B below State.E, which intervals reduce as well (see refundBucket).
//
// Counting what is used rather than what is left makes a full bucket the zero state:
// the next interval then starts at the next charge, as it would for a key never seen.

func (l *Limit) fillInterval() { l.spec.Burst = cmp.Or(l.spec.Burst, l.spec.Units) }

func (l *Limit) workOutInterval() {
	l.capacity, l.largest = l.spec.Burst, l.spec.Burst
	l.numbers = Numbers{Token: l.spec.Units, Unit: l.interval()}
}

// interval returns the Numbers.Unit of a limit that counts in windows.
func (l *Limit) interval() int64 {
	if l.calendar() {
		return l.spec.Window.code()
	}
	return l.period
}

// begun returns the start of an interval or window as of at. If the state says it
// begins later, it was written before the clock was set back: the interval then begins
// now, or a key would be refused for as long as the difference.
func (l *Limit) begun(start, at int64) int64 {
	if start > at {
		return l.opened(at)
	}
	return start
}

// boundary returns the start of the n-th interval after the one starting at start.
func (l *Limit) boundary(start, n int64) int64 {
	if l.calendar() {
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
	if l.calendar() {
		start, _ := l.spec.Window.bounds(at)
		return start
	}
	return at
}

// steps returns the number of intervals that bring n tokens.
func (l *Limit) steps(n int64) int64 { return (n + l.spec.Units - 1) / l.spec.Units }

func (l *Limit) rebaseInterval(now *Now, s *State) {
	at := l.instant(now)
	if s.Numbers != l.numbers {
		l.changeInterval(now, s)
	}
	s.A = l.begun(s.A, at)
	if k := l.passed(s.A, at); k > 0 {
		s.refill(k, l.spec.Units)
		s.A = l.moved(s.A, k, at)
	}
	if s.B|s.D == 0 {
		*s = State{}
		return
	}
	if s.C != l.capacity {
		ahead := max(s.B-s.C, 0)
		used, hidden := resize(whole(s.B-ahead), whole(s.D), whole(s.C), whole(l.capacity))
		s.B, s.C, s.D = used.int()+ahead, l.capacity, hidden.int()
	}
}

// changeInterval carries over a state that was written under other numbers. What the
// old intervals have brought until now stays, and the same fraction of the new interval
// has elapsed as of the old. Calendar windows begin where the calendar says; of those
// of another zone or kind only the present one is known.
func (l *Limit) changeInterval(now *Now, s *State) {
	was, units, at := s.Numbers.Unit, s.Numbers.Token, l.instant(now)
	gone, length := max(l.instantOf(s, now)-s.A, 0), intervalLength(was)
	s.Numbers = l.numbers
	if was == l.numbers.Unit {
		if k := l.passed(s.A, at); k > 0 {
			s.refill(k, units)
			s.A = l.moved(s.A, k, at)
		}
		return
	}
	if length > 0 {
		s.refill(gone/length, units)
	}
	if was < 0 || l.calendar() {
		s.A = l.opened(at)
	} else {
		s.A = at - l.period + share(whole(was-gone%was), l.period, was, whole(l.period)).int()
	}
}

// intervalLength returns the length of intervals with this Numbers.Unit, or 0 if their
// lengths vary.
func intervalLength(unit int64) int64 {
	if unit < 0 {
		return everyOf(unit)
	}
	return unit
}

// refill gives back what k intervals have brought.
func (s *State) refill(k, units int64) {
	tokens := s.B + s.D
	if k < ceilDiv(tokens, units) {
		tokens = k * units
	}
	s.D -= max(tokens-s.B, 0)
	s.B = max(s.B-tokens, 0)
	s.E = max(s.E-tokens, 0)
}

func (l *Limit) stepInterval(now *Now, c *Charge, s *State, r *Result) {
	l.rebase(now, s)
	at, start := l.instant(now), s.A
	if !s.Live {
		start = l.opened(at)
	}
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
			if wait > l.maxWait(c) {
				r.OK, r.RetryAfter = false, micros(wait-l.maxWait(c))
				break
			}
			r.Delay = micros(wait)
			// The turn comes with the tokens of k intervals, but the bucket can hold no
			// more than its capacity: the excess must not be there for the next charge.
			used = max(used, k*l.spec.Units)
		}
		used += c.Cost
		s.Live, s.Numbers, s.A, s.B, s.C = true, l.numbers, start, used, l.capacity
		r.Receipt = Receipt{Instant: start, Mark: used, Cost: c.Cost}
	}
	r.Remaining = max(0, l.capacity-used)
	if used > 0 {
		r.ResetAfter = micros(l.boundary(start, l.steps(used)) - at)
	}
}

// moreInterval returns when the next interval that brings a spare token ends. Calendar
// windows differ in length, so for them it is the end of the last one.
func (l *Limit) moreInterval(r *Result) time.Duration {
	later := (l.spec.Burst - r.Remaining - 1) / l.spec.Units
	return r.ResetAfter - time.Duration(max(later, 0))*l.spec.Period
}

func (l *Limit) amendInterval(now *Now, c *Charge, s *State) Receipt {
	if !s.Live {
		*s = State{Live: c.Cost > c.Receipt.Cost, Numbers: l.numbers, A: l.opened(l.instant(now)), C: l.capacity}
	}
	// Where the charge stands now: its mark less what the intervals since have given
	// back.
	mark := c.Receipt.Mark
	if k := l.passed(c.Receipt.Instant, s.A); k >= l.steps(mark) {
		mark = 0
	} else {
		mark -= k * l.spec.Units
	}
	mark, cost := min(mark, s.B), c.Cost
	waiting := s.B > l.capacity
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff > 0:
		debt := max(0, min(diff, l.capacity+MaxCost-s.B))
		if s.E > 0 && mark == s.E && mark == s.B {
			s.E += debt
		}
		mark += debt
		s.B += debt
		cost -= diff - debt
	case diff < 0:
		behind := s.B - mark
		back := refunded(whole(-diff), whole(mark), whole(behind), whole(l.capacity), waiting).int()
		if waiting && behind > 0 {
			// Those behind take what comes until their turns. If more were given back,
			// it would find the bucket full then, and take their part along.
			back = max(min(back, mark-l.steps(s.B-l.capacity)*l.spec.Units), 0)
		}
		own := mark == s.E && behind == 0 // see refundBucket
		if own {
			s.E -= back
		} else {
			back = max(min(back, s.B-s.E), 0)
		}
		if waiting && c.Cost > 0 {
			s.E = max(s.E, mark-back)
		}
		if waiting && behind > 0 && back > 0 {
			s.E = max(s.E, s.B-l.capacity+behind)
		}
		s.B -= back
		mark -= back
	}
	if s.B|s.D == 0 {
		*s = State{}
	}
	return Receipt{Instant: s.A, Mark: mark, Cost: cost}
}

func (l *Limit) hiddenInInterval(s *State) time.Duration {
	return micros(l.boundary(s.A, l.steps(s.B+s.D)) - l.boundary(s.A, l.steps(s.B)))
}

func (l *Limit) behindInInterval(a, b Receipt) bool {
	if a.Instant < b.Instant {
		return a.Mark > b.Mark+l.passed(a.Instant, b.Instant)*l.spec.Units
	}
	return a.Mark+l.passed(b.Instant, a.Instant)*l.spec.Units > b.Mark
}
