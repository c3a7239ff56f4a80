package store

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// WarmUp is Guava's SmoothWarmingUp (cold factor 3) in integers. Let T be the interval
// of the full rate, W the warm-up, and S, in [0, W], how cold the limit is. A permit
// costs T up to the threshold W/2; above it the cost rises linearly, to 3T at W. Taking
// permits worth time t lowers S by t. Their price is t plus the area under the rising
// part, F(S) - F(S-t), where F(S) = (2S - W)² / 2W above the threshold and 0 below.
// Rounding F rather than the differences keeps the error below one unit over any number
// of permits.
//
// State.A is the instant at which the next charge may go, and State.B is S at that
// instant. A key never seen is cold. State.C is how far A was ahead of the present when
// it was last written: if A is further ahead, the clock has been set back since, and
// the wait is no longer than it was then.
//
// Receipt.Mark is State.A after the charge, and Receipt.Instant is S before it: S stops
// at 0, so the old value can't be computed from the new one. Instant is -1 once the
// charge has been settled and its price is no longer that of its cost.
//
// With a wide scale, A is as Scale.Join makes it, with State.Low; B and C are in ticks,
// and D holds the units of B beyond them. F is rounded to a tick, because the square of
// W in units would be twice as long as any other number.

func (l *Limit) workOutWarmUp(bad wrong) {
	s := &l.spec
	w := s.WarmUp.Microseconds()
	if float64(w) > horizon/10 {
		bad("WarmUp", fmt.Sprintf("warm-up %v", s.WarmUp), "write at most two years")
		return
	}
	l.scale, l.token = fit(l.period, s.Units, 1, func(c scale) bool {
		// The curve squares W; the square has to be exact too.
		return w%c.Tick() == 0 && w/c.Tick() <= (1<<26)/c.PerTick
	})
	l.full = l.scale.within(s.WarmUp)
	if l.warm = w; !l.scale.Wide {
		l.warm = l.full.int()
	}
	l.numbers = engine.Numbers{Token: l.warm, Unit: l.scale.Code()}
	l.most = l.scale.within(longest)
	l.largest = l.affordable()
}

// slow is F.
func (l *Limit) slow(cold units) units {
	if !l.scale.Wide {
		return whole(l.slowOne(cold.int()))
	}
	ticks, beyond := cold.plus(cold).over(l.scale.PerTick)
	x := ticks.int() - l.warm
	if x < 0 {
		return units{}
	}
	// (x + b)² is x² + 2xb, since b is less than a tick.
	square, rest := product(x, x).over(2 * l.warm)
	part, _ := product(x, beyond).over(l.scale.PerTick)
	return l.scale.length(square.int() + (rest+2*part.int())/(2*l.warm))
}

// slowOne is slow, of units in one word.
func (l *Limit) slowOne(cold int64) int64 {
	x := max(2*cold-l.warm, 0)
	return x * x / (2 * l.warm)
}

// price returns what a charge of so many units costs a limit that is as cold as cold,
// and how cold the limit is afterwards.
func (l *Limit) price(cost int64, cold units) (price, warmer units) {
	t := product(cost, l.token)
	warmer = greater(cold.minus(t), units{})
	return t.plus(l.slow(cold)).minus(l.slow(warmer)), warmer
}

// warmth returns when the next charge may go, and how cold the limit is then.
func warmth(s *state) (next, cold units) {
	from := scaleOf(s.Numbers.Unit)
	if next = from.read(s.A, s.Low); from.Wide {
		return next, from.length(s.B).plus(whole(s.D))
	}
	return next, whole(s.B)
}

// warms writes what warmth reads.
func (l *Limit) warms(now *Now, s *state, next, cold units) {
	ahead := greater(next.minus(l.scale.instant(now.Steady)), units{})
	*s = state{Live: true, Numbers: l.numbers, B: cold.int(), C: ahead.int()}
	s.A, s.Low = l.scale.write(next)
	if l.scale.Wide {
		ticks, beyond := cold.over(l.scale.PerTick)
		s.B, s.D, s.C = ticks.int(), beyond, ahead.upOver(l.scale.PerTick)
	}
}

func (l *Limit) rebaseWarmUp(now *Now, s *state) {
	from, at := scaleOf(s.Numbers.Unit), l.scale.instant(now.Steady)
	was, cold := warmth(s)
	ahead := whole(s.C)
	if from.Wide {
		ahead = from.length(s.C)
	}
	next := lesser(was, from.instant(now.Steady).plus(ahead))
	if s.Numbers != l.numbers {
		next, cold = l.changeWarmUp(now, s, next, cold)
	}
	if next.less(at) {
		next, cold = at, cold.plus(at).minus(next)
	}
	switch {
	case !at.less(next) && !cold.less(l.full):
		*s = state{}
	case next != was || s.Numbers != l.numbers:
		l.warms(now, s, next, cold)
	}
}

// changeWarmUp carries over a state that was written under other numbers. The wait
// stays as long as it was announced, and the limit as cold.
func (l *Limit) changeWarmUp(now *Now, s *state, next, cold units) (units, units) {
	from, warm := scaleOf(s.Numbers.Unit), s.Numbers.Token
	if !from.Wide {
		warm = warm / from.PerTick * from.Tick()
	}
	wait := next.minus(from.exactly(now.Steady))
	if next = l.scale.exactly(now.Steady).plus(from.convert(wait, l.scale)); !wait.positive() {
		next, cold = l.scale.instant(now.Steady), cold.minus(wait)
	}
	w := l.spec.WarmUp.Microseconds()
	part := share(whole(min(from.micros(cold), warm)), w, warm, whole(w))
	return next, l.scale.ofMicros(part.int())
}

func (l *Limit) stepWarmUp(now *Now, c *Charge, s *state, r *Result) {
	if l.scale.Wide || s.Live && s.Numbers != l.numbers {
		l.stepWarmUpUnits(now, c, s, r)
		return
	}
	at := l.scale.At(now.Steady)
	next, cold := at, l.warm
	if s.Live {
		if s.A = min(s.A, at+s.C); s.A < at {
			s.A, s.B, s.C = at, s.B+at-s.A, 0
		}
		if next, cold = s.A, s.B; next <= at && cold >= l.warm {
			*s, cold = state{}, l.warm
		}
	}
	*r = Result{OK: true}
	switch wait, within := next-at, l.maxWait(c)/l.scale.Tick()*l.scale.PerTick; {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case wait > within:
		r.OK, r.RetryAfter = false, l.scale.waitOne(wait-within)
	default:
		r.Delay = l.scale.waitOne(wait)
		r.Receipt.Instant, r.Receipt.Cost = cold, c.Cost
		t := c.Cost * l.token
		warmer := max(0, cold-t)
		next, cold = next+t+l.slowOne(cold)-l.slowOne(warmer), warmer
		r.Receipt.Mark = next
		s.Live, s.Numbers, s.A, s.B, s.C = true, l.numbers, next, cold, next-at
	}
	if next <= at {
		r.Remaining = 1
	}
	r.ResetAfter = l.scale.waitOne(next - at + l.warm - cold)
}

// stepWarmUpUnits is stepWarmUp in units of 128 bits. Wide scales need it; for all
// others a test holds the two to the same answers.
func (l *Limit) stepWarmUpUnits(now *Now, c *Charge, s *state, r *Result) {
	l.rebase(now, s)
	at := l.scale.instant(now.Steady)
	next, cold := at, l.full
	if s.Live {
		next, cold = warmth(s)
	}
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	default:
		if wait, within := next.minus(at), l.scale.within(micros(l.maxWait(c))); within.less(wait) {
			r.OK, r.RetryAfter = false, l.scale.wait(wait.minus(within))
			break
		}
		r.Delay = l.scale.wait(next.minus(at))
		r.Receipt = Receipt{Instant: l.told(cold), Cost: c.Cost}
		price, warmer := l.price(c.Cost, cold)
		next, cold = next.plus(price), warmer
		l.warms(now, s, next, cold)
		r.Receipt.Mark, r.Receipt.Low = s.A, s.Low
	}
	if !at.less(next) {
		r.Remaining = 1
	}
	r.ResetAfter = l.scale.wait(next.minus(at).plus(l.full).minus(cold))
}

// was returns how cold a limit was before a charge that has left it at cold.
func (l *Limit) was(r Receipt, cold units) units {
	if cold.positive() {
		return lesser(cold.plus(product(r.Cost, l.token)), l.full)
	}
	return lesser(l.turnOf(r), l.full) // S has stopped at 0
}

// moreWarmUp returns when the next charge may go. After a denial that is RetryAfter.
// After a charge it is ResetAfter less the time in which the limit then cools down.
// After a peek that time isn't known; a unit takes at most three times the interval of
// the full rate, and the limit cools down for at most the warm-up.
func (l *Limit) moreWarmUp(r *Result) time.Duration {
	switch {
	case r.RetryAfter > 0 && r.RetryAfter < Never:
		return r.RetryAfter
	case r.Receipt.Cost > 0 && r.Receipt.Instant >= 0:
		cold := greater(l.turnOf(r.Receipt).minus(product(r.Receipt.Cost, l.token)), units{})
		ticks, _ := l.full.minus(cold).over(l.scale.PerTick)
		return r.ResetAfter - micros(ticks.int()*l.scale.Tick())
	default:
		return max(r.ResetAfter-l.spec.WarmUp, 3*(l.spec.Period/time.Duration(l.spec.Units)))
	}
}

// told returns a length of time as a receipt holds it: for a wide scale in ticks, rounded
// up.
func (l *Limit) told(u units) int64 {
	if l.scale.Wide {
		return u.upOver(l.scale.PerTick)
	}
	return u.int()
}

// turnOf returns what told has put into a receipt.
func (l *Limit) turnOf(r Receipt) units {
	if l.scale.Wide {
		return l.scale.length(r.Instant)
	}
	return whole(r.Instant)
}

func (l *Limit) amendWarmUp(now *Now, c *Charge, s *state) Receipt {
	at := l.scale.instant(now.Steady)
	receipt := Receipt{Instant: -1, Mark: c.Receipt.Mark, Low: c.Receipt.Low, Cost: c.Cost}
	diff := c.Cost - c.Receipt.Cost
	if diff == 0 {
		receipt.Instant = c.Receipt.Instant
	}
	next, cold := at, l.full
	if s.Live {
		next, cold = warmth(s)
	} else if diff <= 0 {
		return receipt
	}
	made := l.scale.read(c.Receipt.Mark, c.Receipt.Low)
	mark := made
	switch {
	case diff > 0:
		debt := owed(diff, next, at.plus(l.most), l.token)
		mark = greater(lesser(mark, next), at).plus(product(debt, l.token))
		receipt.Cost -= diff - debt
		next = next.plus(product(debt, l.token))
	case diff < 0 && c.Cost == 0 && c.Receipt.Instant >= 0 && next == made && at.less(next):
		// Cancelled, and no charge came after it: the state returns to what it was before.
		// Of another version, it may have cost more than this one ever lets pass.
		was := c.Receipt
		was.Cost = min(was.Cost, l.largest)
		cold = l.was(was, cold)
		price, _ := l.price(was.Cost, cold)
		next = next.minus(price)
		mark = greater(at, next)
	case diff < 0 && !made.less(next):
		// Each charge that came after waits for exactly what is before it and goes at
		// the turn it was told, whatever is refunded here. If any came, nothing is
		// given back, or a newcomer could go beside them.
		next = next.minus(l.worth(-diff, next.minus(at)))
		mark = next
	}
	l.warms(now, s, next, cold)
	l.rebaseWarmUp(now, s)
	receipt.Mark, receipt.Low = l.scale.write(mark)
	return receipt
}

// backInWarmUp is all or nothing: what a charge was worth depends on those before it.
func (l *Limit) backInWarmUp(was, is Receipt) int64 {
	if was.Mark == is.Mark && was.Low == is.Low {
		return 0
	}
	return was.Cost
}
