package algorithm

import (
	"math/bits"
)

// SlidingCounter estimates a sliding window from two fixed ones. It assumes that the
// charges of the previous window were spread evenly, and counts the part of them that
// the sliding window still covers, rounded to the nearest unit. If windows have length T, prev and cur were
// charged in the previous and in the present window, and e of the present one has elapsed, then
// a charge of c passes if
//
//	2*prev*(T-e) < (2*(Units-cur-c)+1)*T
//
// This is Cloudflare's estimate
// (https://blog.cloudflare.com/counting-things-a-lot-of-different-things/), in
// integers. Because it is rounded to the nearest, a caller that always asks gets exactly Units in each
// window. Rounded up, it would get one less, and one of two windows if Units is 1; rounded down, a span
// could have a whole unit more. Windows are aligned to the origin of Now.Steady.
//
// Its state is the Start of the present window, in microseconds since that origin, and three counts.
const (
	// Previous is what was charged in the window before the present one, of which Count is kept.
	Previous = 2
	// Next is what has been reserved in the window after.
	Next = 3
)

// A charge that waits for an instant of the present window counts in it from now on.
// No later charge passes before it, since there would have been room for it too.
// While something is reserved in the next window, no charge passes in this one: they would
// count in the window before it, and take room from charges that have reserved their turns.
// Nothing is reserved further ahead than the length of a window, because the turn would
// depend on what is charged in between.
//
// The period is part of StateName: a limit with another one counts by itself, and one with
// other Units goes on with the counts.

func (l *Limit) workOutCounter() {
	l.largest = l.spec.Units
	l.patience = min(l.patience, l.period)
}

// counterStart returns the start of the window that contains at.
func (l *Limit) counterStart(at int64) int64 { return at - floorMod(at, l.period) }

// rebaseCounter moves a state on to the present window. Each window that has ended shifts the three
// counts by one, so after three none is left. If the clock was set back to an earlier window, what was charged
// in the present one and in the one before counts in that window: as a previous window's it would hardly count
// near the end of that.
func (l *Limit) rebaseCounter(now *Now, s *State) {
	present := l.counterStart(now.Steady)
	switch start := s.W[Start]; {
	case start > present:
		s.W[Previous], s.W[Count] = 0, min(s.W[Previous]+s.W[Count], MaxCost)
	case start < present:
		for ended := min((present-start)/l.period, 3); ended > 0; ended-- {
			s.W[Previous], s.W[Count], s.W[Next] = s.W[Count], s.W[Next], 0
		}
	}
	if s.W[Start] = present; s.W[Count]|s.W[Previous]|s.W[Next] == 0 {
		*s = State{}
	}
}

// estimate returns how many units of a state count.
func (l *Limit) estimate(at int64, s *State) int64 {
	if s.W[Previous] == 0 {
		return s.W[Count] + s.W[Next]
	}
	return s.W[Count] + s.W[Next] + nearest(s.W[Previous], s.W[Start]+l.period-at, l.period)
}

// nearest returns n * part / whole, rounded to the nearest, and a half up. part is at most whole.
func nearest(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	lo, carry := bits.Add64(lo, uint64(whole)/2, 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(whole))
	return int64(q)
}

func (l *Limit) stepCounter(now *Now, c Charge, s *State, r *Result) {
	if s.Live {
		l.rebaseCounter(now, s)
	}
	at := now.Steady
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	default:
		window, free := l.firstFit(at, s, c.Cost)
		wait, within := free-at, l.maxWait(c)
		if wait > within {
			r.OK, r.RetryAfter = false, micros(wait-within)
			break
		}
		r.Delay = micros(wait)
		s.Live, s.W[Start] = true, l.counterStart(at)
		r.Receipt = Receipt{Instant: s.W[Start] + window*l.period, Mark: c.Cost, Cost: c.Cost}
		if window == 0 {
			s.W[Count] += c.Cost
		} else {
			s.W[Next] += c.Cost
		}
	}
	if s.W[Next] == 0 {
		r.Remaining = max(0, l.spec.Units-l.estimate(at, s))
	}
	if !s.Live {
		return
	}
	end := s.W[Start] + l.period // of what counts
	switch {
	case s.W[Next] > 0:
		end += 2 * l.period
	case s.W[Count] > 0:
		end += l.period
	}
	r.ResetAfter = micros(end - at)
	if r.Remaining < l.spec.Units {
		_, free := l.firstFit(at, s, r.Remaining+1)
		r.MoreAfter = micros(free - at)
	}
}

// firstFit returns the first instant at which a cost of at most the limit passes if no other
// charge comes, and how many windows after the present one that is.
func (l *Limit) firstFit(at int64, s *State, cost int64) (window, free int64) {
	start, counts := l.counterStart(at), [...]int64{s.W[Previous], s.W[Count], s.W[Next], 0}
	for ; window < 3; window++ {
		prev, room := counts[window], l.spec.Units-cost-counts[window+1]
		if room < 0 || window == 0 && s.W[Next] > 0 {
			continue
		}
		gone := int64(0) // elapsed part of the window at which prev's share leaves enough room
		if prev > room {
			hi, lo := bits.Mul64(uint64(room), uint64(l.period))
			lo, carry := bits.Add64(lo, uint64(l.period-1)/2, 0)
			covered, _ := bits.Div64(hi+carry, lo, uint64(prev))
			gone = l.period - int64(covered)
		}
		if gone < l.period {
			return window, max(at, start+window*l.period+gone)
		}
	}
	return window, start + window*l.period
}

// The receipt says which window a charge is in, and its Mark how much of the charge
// that window holds. The new cost counts there as if it had from the start. If that
// window no longer counts, a debt counts in the present one.
func (l *Limit) amendCounter(now *Now, c *Settlement, s *State) Receipt {
	receipt, diff := c.Receipt, c.Cost-c.Receipt.Cost
	receipt.Cost = c.Cost
	if !s.Live {
		if diff <= 0 {
			return receipt
		}
		*s = State{Live: true, W: Words{Start: l.counterStart(now.Steady)}}
	}
	count := l.countAt(s, receipt.Instant)
	if diff <= 0 {
		if count != nil {
			refund := min(-diff, receipt.Mark, *count)
			receipt.Mark -= refund
			*count -= refund
		}
	} else {
		if count == nil || c.Receipt.Cost == 0 {
			count, receipt.Instant, receipt.Mark = &s.W[Count], s.W[Start], 0
		}
		debt := min(diff, max(0, MaxCost-*count))
		*count += debt
		receipt.Mark += debt
		receipt.Cost -= diff - debt
	}
	if s.W[Count]|s.W[Previous]|s.W[Next] == 0 {
		*s = State{}
	}
	return receipt
}

// countAt returns the count of the window that begins at start, or nil if none is kept.
func (l *Limit) countAt(s *State, start int64) *int64 {
	switch start - s.W[Start] {
	case -l.period:
		return &s.W[Previous]
	case 0:
		return &s.W[Count]
	case l.period:
		return &s.W[Next]
	}
	return nil
}

// validCounter reports whether a SlidingCounter can have written the state.
func (s *State) validCounter() bool {
	return s.Numbers == Numbers{} && s.hasOnly(Start, Count, Previous, Next) && absBelow(s.W[Start], remote) &&
		isCount(s.W[Count]) && isCount(s.W[Previous]) && isCount(s.W[Next]) && len(s.Log) == 0
}
