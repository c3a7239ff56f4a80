package algorithm

import (
	"fmt"
	"math/bits"
	"time"
)

// WarmUp is Guava's SmoothWarmingUp (cold factor 3) in integers. Let T be the interval
// of the full rate, W the warm-up, and S, in [0, W], how cold the limit is. A permit
// costs T up to the threshold W/2; above it the cost rises linearly, to 3T at W. Taking
// permits worth time t lowers S by t. Their price is t plus the area under the rising
// part, F(S) - F(S-t), where F(S) = (2S - W)² / 2W above the threshold and 0 below.
// Rounding F rather than the differences keeps the error below one unit over any number
// of permits.
//
// A key never seen is cold.
const (
	// Free is the instant at which the next charge may go.
	Free = 0
	// Cold is S at that instant.
	Cold = 1
	// FreeLead is how far Free was ahead of the present when it was last written: if Free is further
	// ahead, the clock has been set back since, and the wait is no longer than it was then.
	FreeLead = 2
)

// A limit with other numbers goes by the same Free, and by the same part of its own W, rounded
// towards cold. RefundsFrom is Free when the numbers last changed, while that is ahead: charges whose
// Mark isn't beyond it are not refunded.
//
// Receipt.Mark is Free after the charge, and Receipt.Instant is S before it: S stops
// at 0, so the old value can't be computed from the new one. Instant is -1 once the
// charge has been settled and its price is no longer that of its cost.

func (l *Limit) workOutWarmUp(bad wrong) {
	s := &l.spec
	w := s.WarmUp.Microseconds()
	if s.WarmUp > longestPeriod {
		bad("WarmUp", fmt.Sprintf("warm-up %v", s.WarmUp), "use at most two years")
		return
	}
	if !l.chooseScale(1, func(c Scale) bool {
		return w%c.Tick() == 0 && w/c.Tick() < mostWarm/c.PerTick
	}) {
		if l.chooseScale(1, nil) { // the rate alone can be counted
			bad("WarmUp", fmt.Sprintf("a warm-up of %v can't be counted precisely at a rate of %d per %v",
				s.WarmUp, s.Units, s.Period), "use at most 1000h, in whole hundredths of a second")
		} else {
			l.tooFast(bad)
		}
		return
	}
	l.warm = l.scale.within(w)
	l.numbers = Numbers{Token: l.warm, Unit: l.scale.Code()}
	l.year = l.scale.within(longest.Microseconds())
	l.largest = l.largestPrepaid()
}

// mostWarm bounds W, since the twin squares it four bits at a time.
const mostWarm = 1 << 46

// coldArea returns F.
func (l *Limit) coldArea(cold int64) int64 {
	x := max(2*cold-l.warm, 0)
	if x < 1<<31 {
		return x * x / (2 * l.warm)
	}
	hi, lo := bits.Mul64(uint64(x), uint64(x))
	q, _ := bits.Div64(hi, lo, uint64(2*l.warm))
	return int64(q)
}

// price returns what a charge of so many units costs a limit that is as cold as cold,
// and how cold the limit is afterwards.
func (l *Limit) price(cost, cold int64) (price, warmer int64) {
	t := cost * l.token
	warmer = max(cold-t, 0)
	return t + l.coldArea(cold) - l.coldArea(warmer), warmer
}

// present returns when the next charge may go, and how cold the limit is then. rebaseWarmUp has
// brought the state to the present.
func (l *Limit) present(now *Now, s *State) (next, cold int64) {
	at := l.scale.At(now.Steady)
	if !s.Live {
		return at, l.warm
	}
	stateScale := ScaleOf(s.Numbers.Unit)
	next, cold = s.W[Free], s.W[Cold]
	if s.Numbers != l.numbers {
		if cold = mulDiv(l.warm, cold, s.Numbers.Token); next <= stateScale.At(now.Steady) {
			return at, cold
		}
		next = max(l.scale.ofMicros(stateScale.micros(next)), at)
	}
	return next, cold
}

// rebaseWarmUp brings a state to the present, by its own numbers: it cools down, and one
// from before the clock was set back is clamped.
func (l *Limit) rebaseWarmUp(now *Now, s *State) {
	at := ScaleOf(s.Numbers.Unit).At(now.Steady)
	s.W[Free] = min(s.W[Free], at+s.W[FreeLead])
	if s.W[RefundsFrom] != 0 { // instants may be before the origin
		s.W[RefundsFrom] = min(s.W[RefundsFrom], s.W[Free])
	}
	if s.W[Free] < at {
		s.W[Free], s.W[Cold], s.W[FreeLead], s.W[RefundsFrom] = at, min(s.W[Cold]+at-s.W[Free], s.Numbers.Token), 0, 0
	}
	if s.W[Free] == at && s.W[Cold] == s.Numbers.Token {
		*s = State{}
	}
}

func (l *Limit) stepWarmUp(now *Now, c Charge, s *State, r *Result) {
	if s.Live {
		l.rebaseWarmUp(now, s)
	}
	at := l.scale.At(now.Steady)
	next, cold := l.present(now, s)
	free := l.scale.wait(next - at)
	if s.Live && s.Numbers != l.numbers { // which may have a finer tick
		stateScale := ScaleOf(s.Numbers.Unit)
		free = min(free, stateScale.wait(s.W[Free]-stateScale.At(now.Steady)))
	}
	*r = Result{OK: true}
	switch wait, within := next-at, l.scale.within(l.maxWait(c)); {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case wait > within:
		r.OK, r.RetryAfter = false, min(l.scale.wait(wait-within), free)
	default:
		r.Delay = l.scale.wait(wait)
		r.Receipt.Instant, r.Receipt.Cost = cold, c.Cost
		changedAt := s.W[RefundsFrom]
		if s.Live && s.Numbers != l.numbers {
			changedAt = next
		}
		var price int64
		price, cold = l.price(c.Cost, cold)
		next += price
		r.Receipt.Mark = next
		l.setWarmUp(at, s, next, cold, changedAt)
		free = l.scale.wait(next - at)
	}
	if r.MoreAfter = free; next <= at {
		r.Remaining = 1
		price, _ := l.price(1, cold)
		r.MoreAfter = l.scale.wait(price)
	}
	r.ResetAfter = l.scale.wait(next - at + l.warm - cold)
}

// lifetimeWarmUp returns the time until a state is cold by its own numbers. Another version may
// cool down in less time.
func (s *State) lifetimeWarmUp(now *Now) time.Duration {
	stateScale := ScaleOf(s.Numbers.Unit)
	return stateScale.wait(s.W[Free] + s.Numbers.Token - s.W[Cold] - stateScale.At(now.Steady))
}

// setWarmUp writes a state in the limit's numbers. RefundsFrom is dropped once it is past,
// and the state of a key that is free and cold is that of a new key. at is the present.
func (l *Limit) setWarmUp(at int64, s *State, free, cold, refundsFrom int64) {
	if free <= at && cold >= l.warm {
		*s = State{}
		return
	}
	if refundsFrom <= at {
		refundsFrom = 0
	}
	*s = State{Live: true, Numbers: l.numbers} // and then the words: a literal of them would be copied
	s.W[Free], s.W[Cold], s.W[FreeLead], s.W[RefundsFrom] = free, cold, max(free-at, 0), refundsFrom
}

func (l *Limit) amendWarmUp(now *Now, c *Settlement, s *State) Receipt {
	r := Receipt{Instant: -1, Mark: c.Receipt.Mark, Cost: c.Cost}
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff == 0:
		r.Instant = c.Receipt.Instant
	case diff > 0:
		l.addDebtWarmUp(now, diff, s, &r)
	default:
		l.refundWarmUp(now, -diff, c, s, &r)
	}
	return r
}

// addDebtWarmUp makes a charge cost more permits, at the price of a warm limit. The price of a permit in
// the numbers of another version isn't known, so on its state the debt is a length of time.
func (l *Limit) addDebtWarmUp(now *Now, permits int64, s *State, r *Receipt) {
	if s.Live && s.Numbers != l.numbers {
		stateScale := ScaleOf(s.Numbers.Unit)
		at := stateScale.At(now.Steady)
		debt := l.cappedDebt(permits, stateScale.micros(s.W[Free]-at))
		s.W[Free] += stateScale.ofMicros(l.scale.micros(debt * l.token))
		s.W[FreeLead] = s.W[Free] - at
		r.Cost -= permits - debt
		return
	}
	at := l.scale.At(now.Steady)
	next, cold := l.present(now, s)
	debt := l.cappedDebt(permits, l.scale.micros(next-at))
	if r.Mark > next { // from the future, before the clock was set back
		r.Mark = at
	}
	r.Mark = max(r.Mark, at) + debt*l.token
	r.Cost -= permits - debt
	l.setWarmUp(at, s, next+debt*l.token, cold, s.W[RefundsFrom])
}

// refundWarmUp gives back permits of a charge, if no charge came after it.
func (l *Limit) refundWarmUp(now *Now, permits int64, c *Settlement, s *State, r *Receipt) {
	at := l.scale.At(now.Steady)
	next, cold := l.present(now, s)
	mark := c.Receipt.Mark
	if !s.Live || s.Numbers != l.numbers || s.W[RefundsFrom] != 0 && mark <= s.W[RefundsFrom] {
		return
	}
	switch {
	case c.Cost == 0 && c.Receipt.Instant >= 0 && next == mark && at < next:
		// Canceled: the state returns to what it was before.
		cost := min(c.Receipt.Cost, l.largest) // it may have been charged at a higher rate
		before := cold + cost*l.token
		if cold == 0 {
			before = c.Receipt.Instant // S has stopped at 0
		}
		cold = min(before, l.warm)
		price, _ := l.price(cost, cold)
		next -= price
		r.Mark = max(at, next)
		if next < at {
			next, cold = at, min(cold+at-next, l.warm)
		}
	case mark == next:
		// Each later charge waits for those before it and keeps the turn that was
		// announced, whatever is refunded here. If there is any, nothing is refunded, or a new
		// charge could go beside it. A Mark beyond next is from the future, before the clock was set back.
		next -= min(min(permits, l.largest)*l.token, next-at)
		r.Mark = next
	default:
		return
	}
	l.setWarmUp(at, s, next, cold, s.W[RefundsFrom])
}

// cappedDebt returns how many permits of a debt are added to a limit that is reserved for so many
// microseconds. The permit that reaches a year is the last.
func (l *Limit) cappedDebt(permits, reserved int64) int64 {
	return min(permits, ceilDiv(max(l.year-l.scale.ofMicros(reserved), 0), l.token))
}

// validWarmUp reports whether a WarmUp can have written the state.
func (s *State) validWarmUp() bool {
	n, unit := s.Numbers, ScaleOf(s.Numbers.Unit)
	return 0 < n.Token && n.Token <= mostWarm && n.Burst == 0 && unit.possible() &&
		unit.covers(float64(s.W[Free]), remote) &&
		s.hasOnly(Free, Cold, FreeLead, RefundsFrom) && 0 <= s.W[Cold] && s.W[Cold] <= n.Token &&
		isCount(s.W[FreeLead]) && unit.covers(float64(s.W[FreeLead]), far/2) &&
		unit.covers(float64(s.W[RefundsFrom]), remote) && len(s.Log) == 0
}
