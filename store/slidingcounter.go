package store

import "math/bits"

// SlidingCounter estimates a sliding window from two fixed ones. It assumes that the
// charges of the previous window were spread evenly, and counts the part of them that
// the sliding window still covers. If windows have length T, prev and cur were charged
// in the previous and in the present window, and e of the present one has elapsed, then
// a charge of c passes if
//
//	prev*(T-e) + (cur+c)*T <= Units*T
//
// This is Cloudflare's rule
// (https://blog.cloudflare.com/counting-things-a-lot-of-different-things/), in
// integers. Windows are aligned to 1970.
//
// State.A is where the present window begins, in microseconds since Epoch. State.B is
// what was charged in it, State.C what was charged in the one before, and State.D what
// has been reserved in the one after.
//
// A charge that waits for an instant of the present window counts in it from now on.
// No later charge passes before it, since there would have been room for it too.
// While something is reserved in the next window, no charge passes in this one: they would
// count in the window before it, and take room from those who were told their turn.
// Nothing is reserved further ahead than the length of a window, because the turn would
// depend on what is charged in between.

func (l *Limit) workOutCounter() {
	l.largest = l.spec.Units
	l.numbers = Numbers{Unit: l.period}
	l.patience = min(l.patience, l.period)
}

// counterStart returns the start of the window of the given length that contains at.
func counterStart(at, length int64) int64 {
	return at - floorMod(at+Epoch*1_000_000, length)
}

// rebaseCounter: a state that was written under other numbers keeps its windows until
// the present one ends: charges until then count there, against the new numbers. What
// counts after that continues to count in the present window of the new length, from its
// beginning. Two versions that take turns carry a count over once a window, not at each
// look: it would never get less.
//
// No reservation is carried into a shorter window, which would be over before its turn:
// the state stays in the windows that it is in until the one with the turn is over.
func (l *Limit) rebaseCounter(now *Now, s *State) {
	was := s.Numbers.Unit
	start := counterStart(now.Wall, was)
	reserved := s.D > 0 && start == s.A+was && l.period < was
	if was != l.period && s.A != start && !reserved {
		if s.turn(now.Wall, was); !s.Live {
			return
		}
		s.B += s.D + weighed(s.C, s.A+was-now.Wall, was)
		s.A, s.C, s.D = counterStart(now.Wall, l.period), 0, 0
		s.Numbers = l.numbers
	}
	s.turn(now.Wall, s.Numbers.Unit)
}

// turn moves a state on to the window that contains at. If the clock has been set back,
// what was counted stays in that window.
func (s *State) turn(at, length int64) {
	start := counterStart(at, length)
	for n := min((start-s.A)/length, 3); n > 0; n-- {
		s.C, s.B, s.D = s.B, s.D, 0
	}
	if s.A = start; s.B|s.C|s.D == 0 {
		*s = State{}
	}
}

// weighed returns how much of a window's count still counts if covered of its length is
// covered. It rounds up, so that nothing passes that the rule refuses.
func weighed(count, covered, length int64) int64 {
	hi, lo := bits.Mul64(uint64(count), uint64(min(covered, length)))
	part, left := bits.Div64(hi, lo, uint64(length))
	if left > 0 {
		part++
	}
	return int64(part)
}

func (l *Limit) stepCounter(now *Now, c *Charge, s *State, r *Result) {
	l.rebase(now, s)
	if !s.Live {
		s.A, s.Numbers = counterStart(now.Wall, l.period), l.numbers
	}
	at, length, n := now.Wall, s.Numbers.Unit, l.spec.Units
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	default:
		window, free := l.freesCounter(s, at, c.Cost)
		wait, within := free-at, min(l.maxWait(c), length)
		if wait > within {
			r.OK, r.RetryAfter = false, micros(wait-within)
			break
		}
		r.Delay = micros(wait)
		r.Receipt = Receipt{Instant: s.A + window*length, Mark: c.Cost, Cost: c.Cost}
		if s.Live = true; window == 0 {
			s.B += c.Cost
		} else {
			s.D += c.Cost
		}
	}
	if s.D == 0 {
		r.Remaining = max(0, n-s.B-weighed(s.C, s.A+length-at, length))
	}
	switch {
	case s.D > 0:
		r.ResetAfter = micros(s.A + 3*length - at)
	case s.B > 0:
		r.ResetAfter = micros(s.A + 2*length - at)
	case s.C > 0:
		r.ResetAfter = micros(s.A + length - at)
	}
	if !s.Live {
		*s = State{}
	}
}

// freesCounter returns the first instant at which cost, at most the limit, passes if
// no other charge comes, and the number of that instant's window counted from the present
// one.
func (l *Limit) freesCounter(s *State, at, cost int64) (window, free int64) {
	counts, length := [...]int64{s.C, s.B, s.D, 0}, s.Numbers.Unit
	for ; window < 3; window++ {
		prev, room := counts[window], l.spec.Units-cost-counts[window+1]
		if room < 0 || window == 0 && s.D > 0 {
			continue
		}
		gone := int64(0) // elapsed part of the window at which prev's share leaves enough room
		if prev > room {
			hi, lo := bits.Mul64(uint64(room), uint64(length))
			covered, _ := bits.Div64(hi, lo, uint64(prev))
			gone = length - int64(covered)
		}
		if gone < length {
			return window, max(at, s.A+window*length+gone)
		}
	}
	return window, s.A + window*length
}

// The receipt says which window a charge is in, and its Mark how much of the charge
// that window holds. The new cost counts there as if it had from the start. If that
// window no longer counts, a debt counts in the present one.
func (l *Limit) amendCounter(now *Now, c *Charge, s *State) Receipt {
	receipt := c.Receipt
	diff := c.Cost - c.Receipt.Cost
	receipt.Cost = c.Cost
	length := l.period
	if s.Live {
		length = s.Numbers.Unit
	}
	start := counterStart(now.Wall, length)
	count := s.counted(receipt.Instant-start, length)
	if diff <= 0 {
		if count == nil || !s.Live {
			return receipt
		}
		refund := min(-diff, receipt.Mark, *count)
		receipt.Mark -= refund
		if *count -= refund; s.B|s.C|s.D == 0 {
			*s = State{}
		}
		return receipt
	}
	if count == nil || c.Receipt.Cost == 0 {
		count, receipt.Instant, receipt.Mark = &s.B, start, 0
	}
	debt := min(diff, max(0, MaxCost-*count))
	s.Live, s.Numbers.Unit, s.A = true, length, start
	*count += debt
	receipt.Mark += debt
	receipt.Cost -= diff - debt
	return receipt
}

// counted returns the count of the window that begins after the present one by after,
// or nil if none is kept.
func (s *State) counted(after, length int64) *int64 {
	switch after {
	case -length:
		return &s.C
	case 0:
		return &s.B
	case length:
		return &s.D
	}
	return nil
}
