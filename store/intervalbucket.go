package store

import (
	"cmp"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// IntervalBucket. State.A is the start of the current interval in microseconds. State.B
// is the number of tokens used and not yet given back; reserved turns and debts may
// take it beyond the capacity. State.C is the capacity the state was written under. No
// refund takes State.B below State.E, which intervals reduce as well (see giveBackInterval).
// Few states have a State.Log beside that, which lasts State.D longer (see
// intervalviews.go).
//
// Counting what is used rather than what is left makes a full bucket the zero state:
// the next interval then starts at the next charge, as it would for a key never seen.

func (l *Limit) fillInterval() { l.spec.Burst = cmp.Or(l.spec.Burst, l.spec.Units) }

func (l *Limit) workOutInterval() {
	l.capacity, l.largest = l.spec.Burst, l.spec.Burst
	l.numbers = engine.Numbers{Token: l.spec.Units, Unit: l.interval()}
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

// bounds are those of the calendar window that a limit has opened last. Nearly all that it
// decides is in that window, and the calendar takes as long to work them out as the
// decision: longer where clocks change.
type bounds struct{ start, end int64 }

// steps returns the number of intervals that bring n tokens.
func (l *Limit) steps(n int64) int64 { return (n + l.spec.Units - 1) / l.spec.Units }

// intervalLength returns the length of intervals with this Numbers.Unit, or 0 if their
// lengths vary.
func intervalLength(unit int64) int64 {
	if unit < 0 {
		return everyOf(unit)
	}
	return unit
}

func (l *Limit) stepInterval(now *Now, c *Charge, s *state, r *Result) {
	if !l.plainInterval(s) {
		l.stepIntervals(now, c, s, r)
		return
	}
	at := l.instant(now)
	start, used, floor := l.begun(s.A, at), s.B, s.E
	if k := l.passed(start, at); s.Live && k > 0 {
		tokens := tokensOf(k, l.spec.Units, used)
		used, floor = used-tokens, max(floor-tokens, 0)
		start = l.moved(start, k, at)
	}
	if used == 0 {
		start, floor = l.opened(at), 0
	}
	moved := s.Live && s.A > at
	if used = l.answerInterval(at, start, used, c, r); c.Cost > 0 && (r.OK || moved) {
		s.Live, s.Numbers, s.A, s.B, s.C, s.E = true, l.numbers, start, used, l.capacity, floor
	}
}

// answerInterval answers a charge by an interval that began at start, with used in use,
// and returns what is in use then.
func (l *Limit) answerInterval(at, start, used int64, c *Charge, r *Result) int64 {
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
		r.Receipt = Receipt{Instant: start, Mark: used, Cost: c.Cost}
	}
	r.Remaining = max(0, l.capacity-used)
	if used > 0 {
		r.ResetAfter = micros(l.boundary(start, l.steps(used)) - at)
	}
	return used
}

// moreInterval returns when the next interval that brings a spare token ends. Calendar
// windows differ in length, so for them it is the end of the last one.
func (l *Limit) moreInterval(r *Result) time.Duration {
	later := (l.spec.Burst - r.Remaining - 1) / l.spec.Units
	return r.ResetAfter - time.Duration(max(later, 0))*l.spec.Period
}

func (l *Limit) amendInterval(now *Now, c *Charge, s *state) Receipt {
	b := l.intervalsOf(now, s)
	receipt := c.Receipt
	receipt.Cost = c.Cost
	diff := c.Cost - c.Receipt.Cost
	switch {
	case diff > 0:
		receipt = l.oweInterval(now, &b, c, diff)
	case b.n > 0:
		receipt = l.giveBackInterval(&b, c, -diff)
	}
	if diff != 0 {
		b.write(now, s)
	}
	return receipt
}

func (l *Limit) behindInInterval(a, b Receipt) bool {
	if a.Instant < b.Instant {
		return a.Mark > b.Mark+l.passed(a.Instant, b.Instant)*l.spec.Units
	}
	return a.Mark+l.passed(b.Instant, a.Instant)*l.spec.Units > b.Mark
}
