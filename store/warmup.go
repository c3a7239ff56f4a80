package store

import (
	"fmt"
	"time"
)

// WarmUp: Guava's SmoothWarmingUp (cold factor 3) in integers. With T the
// interval of the full rate, W the warm-up and S, in [0, W], how cold the
// limit is, a permit taken at S costs T up to the threshold W/2 and rises
// linearly to 3T at W. Taking permits worth time t brings S down by t; their
// price is t plus the area under the rising part, F(S) - F(S-t) with
// F(S) = (2S - W)² / 2W above the threshold and 0 below. Rounding F, and not
// the differences, keeps the error below one unit over any number of permits.
//
// State.A is the instant at which the next charge may go, State.B is S at that
// instant. A key never seen is cold. State.C is by how much A was ahead of the
// present when it was last written: if it is further, the clock has been set back
// since, and the wait is no longer than it was then.
//
// Receipt.Mark is State.A after the charge, Receipt.Instant S before it: S stops
// at 0, so what it was can not be told from what it is. It is -1 once the charge
// has been settled, and its price is no longer that of its cost.

func (l *Limit) workOutWarmUp(bad wrong) {
	s := &l.spec
	w := s.WarmUp.Microseconds()
	var ok bool
	l.scale, l.token, ok = fit(l.period, s.Units, 1, func(c Scale) bool {
		// The curve squares W; the square has to be exact too.
		return w%c.tick() == 0 && w/c.tick() <= (1<<26)/c.PerTick
	})
	if !ok {
		bad("Units", fmt.Sprintf("%d per %v with a warm-up of %v can not be counted exactly", s.Units, s.Period, s.WarmUp),
			"write a shorter warm-up, or durations that are multiples of 100ms")
		return
	}
	l.warm = l.scale.within(s.WarmUp)
	l.numbers = Numbers{Token: l.warm, Unit: l.scale.Code()}
	l.largest = l.affordable()
}

// slow is F.
func (l *Limit) slow(s int64) int64 {
	x := 2*s - l.warm
	if x <= 0 {
		return 0
	}
	return x * x / (2 * l.warm)
}

func (l *Limit) rebaseWarmUp(now *Now, s *State) {
	at := l.scale.at(now.Steady)
	if s.Numbers != l.numbers {
		// The wait stays as long as it was told, and the limit as cold.
		from, warm := ScaleOf(s.Numbers.Unit), s.Numbers.Token
		wait, cold := min(s.A, from.at(now.Steady)+s.C)-from.exactly(now.Steady), s.B
		s.A = l.scale.exactly(now.Steady) + from.convert(wait, l.scale)
		if wait <= 0 {
			s.A, cold = at, min(cold-wait, warm)
		}
		s.B = share(cold, l.warm, warm, l.warm)
		s.Numbers, s.C = l.numbers, max(s.A-at, 0)
	}
	s.A = min(s.A, at+s.C)
	if at > s.A {
		s.B += at - s.A
		s.A, s.C = at, 0
	}
	if s.A <= at && s.B >= l.warm {
		*s = State{}
	}
}

func (l *Limit) stepWarmUp(now *Now, c *Charge, s *State, r *Result) {
	l.rebase(now, s)
	at := l.scale.at(now.Steady)
	next, cold := at, l.warm
	if s.Live {
		next, cold = s.A, s.B
	}
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	default:
		if wait, within := next-at, l.scale.within(micros(l.maxWait(c))); wait > within {
			r.OK, r.RetryAfter = false, l.scale.wait(wait-within)
			break
		}
		r.Delay = l.scale.wait(next - at)
		r.Receipt = Receipt{Instant: cold, Cost: c.Cost}
		warmer := max(0, cold-c.Cost*l.token)
		next += c.Cost*l.token + l.slow(cold) - l.slow(warmer)
		cold = warmer
		r.Receipt.Mark = next
		*s = State{Live: true, Numbers: l.numbers, A: next, B: cold, C: next - at}
	}
	if next <= at {
		r.Remaining = 1
	}
	r.ResetAfter = l.scale.wait(next - at + l.warm - cold)
}

// moreWarmUp is when the next charge may go. After a refusal that is RetryAfter. After
// a charge it is ResetAfter less the time in which the limit then cools down. After a
// peek that time isn't known; a unit takes at most three times the full rate's interval,
// and the limit cools down for at most the warm-up.
func (l *Limit) moreWarmUp(r *Result) time.Duration {
	switch {
	case r.RetryAfter > 0 && r.RetryAfter < Never:
		return r.RetryAfter
	case r.Receipt.Cost > 0 && r.Receipt.Instant >= 0:
		cold := max(0, r.Receipt.Instant-r.Receipt.Cost*l.token)
		return r.ResetAfter - micros((l.warm-cold)/l.scale.PerTick*l.scale.tick())
	default:
		return max(r.ResetAfter-l.spec.WarmUp, 3*(l.spec.Period/time.Duration(l.spec.Units)))
	}
}

func (l *Limit) amendWarmUp(now *Now, c *Charge, s *State) Receipt {
	at := l.scale.at(now.Steady)
	receipt := Receipt{Instant: -1, Mark: c.Receipt.Mark, Cost: c.Cost}
	diff := c.Cost - c.Receipt.Cost
	if diff == 0 {
		receipt.Instant = c.Receipt.Instant
	}
	if !s.Live {
		if diff <= 0 {
			return receipt
		}
		*s = State{Live: true, Numbers: l.numbers, A: at, B: l.warm}
	}
	switch {
	case diff > 0:
		debt := l.owed(diff, s.A, at+l.scale.within(longest))
		receipt.Mark = max(min(receipt.Mark, s.A), at) + debt*l.token
		receipt.Cost -= diff - debt
		s.A += debt * l.token
	case diff < 0 && c.Cost == 0 && c.Receipt.Instant >= 0 && s.A == c.Receipt.Mark && s.A > at:
		// Cancelled, and nobody came after it: as if it had not been.
		cold, t := min(c.Receipt.Instant, l.warm), l.worth(c.Receipt.Cost, l.largest*l.token)
		s.A -= t + l.slow(cold) - l.slow(max(0, cold-t))
		s.B = cold
		l.rebaseWarmUp(now, s)
		receipt.Mark = max(at, s.A)
	case diff < 0 && c.Receipt.Mark >= s.A:
		// One that came after it waits for exactly what is before it, and goes
		// when it was told whatever becomes of that: then nothing is given back,
		// or one that comes now could go with it.
		s.A -= l.worth(-diff, s.A-at)
		receipt.Mark = s.A
	}
	if s.Live {
		s.C = max(s.A-at, 0)
	}
	return receipt
}
