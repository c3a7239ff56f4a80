package algorithm

import (
	"cmp"
)

// An IntervalBucket's state is the Start of the current interval and the tokens Used. State.Numbers are the
// limit's numbers at the last charge. Refunds are bounded as those of a TokenBucket (refunds.go), but by
// instants of the limit's own clock.
const (
	// Used is the number of tokens used and not yet given back. Reserved turns and debts may
	// take it beyond the capacity. It counts what is used rather than what is left, because a full
	// bucket is then the zero state: the next interval starts at the next charge, as it would for a key
	// never seen.
	Used = 1
	// Owed is 1 if what is used beyond the capacity is debts alone, for which no charge waits.
	Owed = 2
)

// # Other numbers
//
// A state is refilled by the numbers of its last charge. A charge of a limit with other
// numbers fits if what is used by then leaves room for it. Then the limit's own intervals
// begin: the next refill comes one Period later, or at the next boundary of its Window.
// The intervals of a Window in another time zone, or of another kind, aren't known: they count
// as the longest there are.

func (l *Limit) defaultInterval() { l.spec.Burst = cmp.Or(l.spec.Burst, l.spec.Units) }

func (l *Limit) workOutInterval() {
	l.capacity, l.largest = l.spec.Burst, l.spec.Burst
	l.numbers = Numbers{Token: l.spec.Units, Unit: l.interval(), Burst: l.spec.Burst}
}

// interval returns the Numbers.Unit of an IntervalBucket.
func (l *Limit) interval() int64 {
	if l.calendar() {
		return l.spec.Window.code()
	}
	return l.period
}

// refills are the intervals by which a state is refilled, and what is in use as of now.
type refills struct {
	limit *Limit // whose intervals they are; nil if only their length is known
	start int64  // of the current one
	now   int64  // the present
	units int64  // what each brings
	unit  int64  // Numbers.Unit
	used  int64
}

// refillsOf returns the refills of a state, or the limit's own if nothing is in use.
func (l *Limit) refillsOf(now *Now, s *State) refills {
	if s.Live && s.W[Used] > 0 {
		f := refills{start: s.W[Start], now: now.Steady, units: s.Numbers.Token, unit: s.Numbers.Unit}
		if f.unit < 0 {
			f.now = now.Wall
		}
		if f.unit == l.numbers.Unit {
			f.limit = l
		}
		if k := f.advance(); k < ceilDiv(s.W[Used], f.units) {
			f.used = s.W[Used] - k*f.units
			return f
		}
	}
	return l.newRefills(now)
}

// newRefills returns the limit's own refills, for a key never seen.
func (l *Limit) newRefills(now *Now) refills {
	at := l.instant(now)
	return refills{limit: l, start: l.startAt(at), now: at, units: l.spec.Units, unit: l.numbers.Unit}
}

// advance brings the intervals to the present, and returns how many have ended. If the current
// one says that it begins later, it was written before the clock was set back: it then
// begins now, or a key would be denied for as long as the difference.
func (f *refills) advance() (k int64) {
	switch {
	case f.limit != nil:
		f.start = f.limit.clampStart(f.start, f.now)
		if k = f.limit.boundariesIn(f.start, f.now); k > 0 {
			f.start = f.limit.startAfter(f.start, k, f.now)
		}
	case f.start > f.now:
		f.start = f.now
	default:
		length := intervalLength(f.unit)
		k = (f.now - f.start) / length
		f.start += k * length
	}
	return k
}

// until returns how long it is until n tokens have arrived, in microseconds: at the latest, if only
// the length of the intervals is known.
func (f *refills) until(n int64) int64 {
	if n <= 0 {
		return 0
	}
	if f.limit != nil {
		return f.limit.boundary(f.start, ceilDiv(n, f.units)) - f.now
	}
	return f.untilAtLatest(n)
}

// untilAtLatest is until for the longest intervals, where their lengths vary.
func (f *refills) untilAtLatest(n int64) int64 {
	length := intervalLength(f.unit)
	return f.start + min(ceilDiv(n, f.units), furthestBoundary/length)*length - f.now
}

// rebaseInterval clamps a state from before the clock was set back, and drops what is over. It
// returns the refills of the state.
func (l *Limit) rebaseInterval(now *Now, s *State) refills {
	f := l.refillsOf(now, s)
	if !s.Live {
		return f
	}
	setBack := f.used > 0 && s.W[Start] > f.start
	if setBack {
		s.W[Start] = f.start
	}
	switch same := s.Numbers.Unit == l.numbers.Unit; {
	case s.W[KeptUntil] != 0 && s.W[KeptUntil] <= now.Steady && !(setBack && same):
		s.dropNotes()
	case same && (setBack || s.W[KeptUntil] != 0 && s.lastNoted() > l.instant(now)):
		s.writeInterval(f.start, f.used, s.W[Owed] != 0)
		s.refuseRefunds(l.instant(now), now.Steady+max(f.untilAtLatest(f.used), 1))
	}
	if f.used == 0 && s.W[KeptUntil] == 0 {
		*s = State{}
	}
	return f
}

// writeInterval writes what is in use at the start of an interval. owed says whether what is beyond the
// capacity is debts alone.
func (s *State) writeInterval(start, used int64, owed bool) {
	s.W[Start], s.W[Used], s.W[Owed] = start, used, 0
	if owed && used > s.Numbers.Burst {
		s.W[Owed] = 1
	}
}

func (l *Limit) stepInterval(now *Now, c Charge, s *State, r *Result) {
	f := l.rebaseInterval(now, s)
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	default:
		f = l.chargeInterval(now, c, f, s, r)
	}
	r.Remaining = max(0, l.capacity-f.used)
	r.ResetAfter = micros(f.until(f.used))
	if r.Remaining < l.capacity {
		r.MoreAfter = micros(f.until(f.used + r.Remaining + 1 - l.capacity))
	}
}

// chargeInterval makes a charge, or denies it if it would wait for too long. It returns the refills of the
// state afterwards.
func (l *Limit) chargeInterval(now *Now, c Charge, f refills, s *State, r *Result) refills {
	at, mine, within := l.instant(now), f, l.maxWait(c)
	other := f.unit != l.numbers.Unit || f.units != l.spec.Units
	if other {
		mine = l.newRefills(now)
		if l.calendar() || within >= longest.Microseconds() {
			within = 0 // a turn depends on the window in which it is reserved; see stepGeneral
		}
	}
	short := f.used + c.Cost - l.capacity
	switch wait := mine.until(short); {
	case wait <= within:
		r.Delay = micros(wait)
	case other: // what the intervals within the wait would bring need not have arrived
		r.OK, r.RetryAfter = false, micros(f.until(short-within/max(l.period, 1)*l.spec.Units))
		return f
	default:
		r.OK, r.RetryAfter = false, micros(wait-within)
		return f
	}
	mine.used = f.used
	if short > 0 {
		// The turn comes with the tokens of some intervals, but the bucket can hold no
		// more than its capacity: the excess must not be there for the next charge.
		mine.used = max(f.used, l.intervalsFor(short)*l.spec.Units)
	}
	mine.used += c.Cost
	if s.Live && s.Numbers != l.numbers {
		s.noteNumbers(at, now.Steady+f.untilAtLatest(f.used))
	} else {
		s.noteCharge(at, min(f.used, l.capacity-c.Cost), mine.used, short > 0)
	}
	s.Live, s.Numbers = true, l.numbers
	s.writeInterval(mine.start, mine.used, false)
	r.Receipt = Receipt{Instant: at, Mark: mine.used, Cost: c.Cost}
	return mine
}

func (l *Limit) amendInterval(now *Now, c *Settlement, s *State) Receipt {
	r := c.Receipt
	r.Cost = c.Cost
	f, diff := l.refillsOf(now, s), c.Cost-c.Receipt.Cost
	switch {
	case diff > 0:
		if !s.Live || f.used == 0 && s.Numbers != l.numbers {
			if *s = (State{Live: true, Numbers: l.numbers, W: Words{KeptUntil: s.W[KeptUntil]}}); s.W[KeptUntil] != 0 {
				s.W[RefundsFrom] = l.instant(now)
			}
		}
		l.addDebtInterval(now, diff, &f, s, &r)
	case diff < 0 && f.used > 0 && s.Numbers == l.numbers && s.refunds(&r, l.instant(now)):
		l.refundInterval(now, -diff, c, &f, s, &r)
	}
	return r
}

// addDebtInterval makes a charge cost more.
func (l *Limit) addDebtInterval(now *Now, tokens int64, f *refills, s *State, r *Receipt) {
	at := l.instant(now)
	debt := max(0, min(tokens, s.Numbers.Burst+MaxCost-f.used))
	r.Cost -= tokens - debt
	if debt == 0 {
		return
	}
	if s.Numbers == l.numbers { // it is as a charge made now
		r.Mark = max(l.refundableInterval(at, f, s, r), 0) + debt
		r.Instant = at
	}
	inUse := f.used + debt
	waits := s.W[Owed] == 0 && f.used > s.Numbers.Burst
	s.noteCharge(at, f.used, inUse, waits)
	s.writeInterval(f.start, inUse, !waits)
}

// useLeft returns how many tokens of a charge and those before it are in use at an instant, if
// none were refunded. An interval begins at start.
func (l *Limit) useLeft(r *Receipt, at, start int64) int64 {
	var ended int64
	if l.calendar() {
		ended = l.boundariesIn(r.Instant, at)
	} else if at > r.Instant {
		ended = floorDiv(at-start, l.period) - floorDiv(r.Instant-start, l.period)
	}
	return r.Mark - tokensIn(ended, l.spec.Units, r.Mark)
}

// refundableInterval is refundableBucket for an IntervalBucket, in tokens.
func (l *Limit) refundableInterval(at int64, f *refills, s *State, r *Receipt) int64 {
	low, from := s.lowestUse(r, at, f.start, f.used)
	return min(low, l.useLeft(r, from, f.start))
}

// refundInterval gives back tokens of a charge.
func (l *Limit) refundInterval(now *Now, tokens int64, c *Settlement, f *refills, s *State, r *Receipt) {
	last, waits := l.useLeft(r, f.start, f.start) == f.used, f.used > l.capacity && s.W[Owed] == 0
	if waits && !(last && c.Cost == 0) { // as on a TokenBucket
		return
	}
	back := min(tokens, l.refundableInterval(l.instant(now), f, s, r))
	if back <= 0 {
		return
	}
	r.Mark -= tokens // also what has been refilled, or is others': as on a TokenBucket
	keptUntil := now.Steady + max(f.untilAtLatest(f.used), 1)
	s.noteRefund(f.now, f.used, c.Receipt.Instant, back, last, keptUntil)
	if s.writeInterval(f.start, f.used-back, s.W[Owed] != 0); s.W[Used] == 0 && s.W[KeptUntil] == 0 {
		*s = State{}
	}
}

// validInterval reports whether an IntervalBucket can have written the state.
func (s *State) validInterval() bool {
	n := s.Numbers
	return 0 < n.Token && n.Token <= MaxCost && 0 < n.Burst && n.Burst <= MaxCost && validIntervalUnit(n.Unit) &&
		s.hasOnly(Start, Used, Owed, KeptUntil, RefundsFrom) && absBelow(s.W[Start], remote) && isCount(s.W[Used]) &&
		0 <= s.W[Owed] && s.W[Owed] <= 1 && s.validNotes()
}

// validIntervalUnit reports whether a limit can have such a Numbers.Unit.
func validIntervalUnit(unit int64) bool {
	if !absBelow(unit, exact) || unit == 0 {
		return false
	}
	kind, _ := decodeWindow(unit)
	return unit > 0 || noWindow < kind && 0 < intervalLength(unit) && intervalLength(unit) <= exact
}
