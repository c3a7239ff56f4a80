package store

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// TokenBucket and LeakyBucket share one step. State.A is the theoretical arrival time
// (tat): the instant at which the bucket is full again or, seen as a queue, at which it
// has run dry. A charge moves it by its cost. It may run ahead of the present by the
// capacity at once, and further by the queue or the maximum wait if the charge waits
// for the difference. For most states that is all, and the other words are 0.
//
// State.B is how far the tat was ahead of the capacity when it was last written:
// reserved turns and debts. A tat further ahead than capacity + B wasn't written under
// these numbers (the limit was lowered, or the server's clock was set back) and is
// clamped, or a key would be refused for as long as the difference. State.D is what has
// been clamped (see changeBucket). State.C is the capacity that B and D go with.
// State.E is a tat in the future below which no refund may go (see refundBucket); it is
// 0 once it has passed.
//
// The rules are written in units of 128 bits, which hold any rate. For scales that
// aren't wide the step is written a second time in one word (stepBucket), since it is
// most of what most programs decide. With a wide scale, A is as Scale.Join makes it,
// with State.Low; B, D and E are in ticks, rounded up, and C in tokens. What the
// rounding has added to D and E, if anything, is in State.Log: one entry, with D's part
// in At and E's in Units.

// workOutBucket computes the numbers of both. A LeakyBucket is a TokenBucket that
// passes at once its Burst and the charge whose turn it is, and queues by default.
func (l *Limit) workOutBucket(bad wrong) {
	s := &l.spec
	queue := max(s.Queue, 0)
	if l.burst = max(s.Burst, 0); s.Algorithm == LeakyBucket {
		l.burst++
	}
	l.room = l.burst + queue
	room := l.room
	if s.Debt {
		room *= 2 // a full bucket owed, and a charge as large on top of it
	}
	if float64(room)*float64(l.period)/float64(s.Units) > far/2 {
		bad("Units", fmt.Sprintf("burst %d and queue %d take more than 100 years at %d per %v", l.burst, queue, s.Units, s.Period),
			"write a smaller burst, a smaller queue or more units")
		return
	}
	l.scale, l.token = fit(l.period, s.Units, room, nil)
	l.numbers, l.tokens = Numbers{Token: l.token, Unit: l.scale.Code()}, divisorOf(l.token)
	l.most = l.scale.within(longest)
	l.full = product(l.burst, l.token)
	if l.capacity, l.queue = l.burst, queue; !l.scale.Wide {
		l.capacity, l.queue = l.burst*l.token, queue*l.token
	}
	l.largest = l.room
	if s.Debt {
		l.largest = max(l.affordable(), l.largest)
	}
}

// affordable returns the largest cost that can be prepaid: a year's worth, at least 1.
func (l *Limit) affordable() int64 {
	n, _ := l.most.over(l.token)
	return min(MaxCost, max(1, n.int()))
}

// owed returns how many tokens of a debt are added to a limit that is taken until the
// instant until. The token that reaches top is the last. Tokens are whole, so refunding
// them leaves no trace. A queue may be longer than a debt can get.
func (l *Limit) owed(debt int64, until, top units) int64 {
	if !until.less(top) {
		return 0
	}
	return min(debt, top.minus(until).upOver(l.token))
}

// worth returns the units of so many tokens, at most most: a refund never looks at more
// than there is.
func (l *Limit) worth(tokens int64, most units) units {
	return lesser(product(tokens, l.token), most)
}

// endless returns more than any limit can hold.
func (l *Limit) endless() units {
	if l.scale.Wide {
		return l.scale.length(exact)
	}
	return whole(exact)
}

// fillBucket: without a Burst a bucket has room for its Units, with debt for a second's.
// A LeakyBucket has no burst, and a queue for its Units.
func (l *Limit) fillBucket() {
	s := &l.spec
	switch {
	case s.Algorithm == LeakyBucket:
		s.Burst = cmp.Or(s.Burst, None)
		s.Queue = cmp.Or(s.Queue, s.Units)
	case s.Debt:
		s.Burst = cmp.Or(s.Burst, oneSecond(s.Units, s.Period))
	default:
		s.Burst = cmp.Or(s.Burst, s.Units)
	}
}

// oneSecond returns the number of whole units a rate gives in a second, or None.
func oneSecond(units int64, period time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(units), uint64(time.Second))
	if hi >= uint64(period) {
		return MaxCost
	}
	if n, _ := bits.Div64(hi, lo, uint64(period)); n > 0 {
		return int64(min(n, MaxCost))
	}
	return None
}

func (l *Limit) stepBucket(now *Now, c *Charge, s *State, r *Result) {
	if l.scale.Wide {
		l.stepUnits(now, c, s, r)
		return
	}
	at := l.scale.at(now.Steady)
	tat := at
	if s.Live {
		if s.Numbers != l.numbers || s.A > at+l.capacity || s.B|s.D != 0 {
			l.rebaseBucket(now, s)
		}
		tat = max(tat, s.A)
	}
	after, _ := l.StepInstant(now.Steady, tat, c, r)
	if after == tat {
		return
	}
	// Written field by field: writing the whole State, with the Log that a bucket never
	// has here, would be most of the cost of a decision.
	s.Live, s.Numbers, s.A = true, l.numbers, after
	if ahead := after - at - l.capacity; ahead > 0 || s.B|s.C|s.E != 0 {
		l.mark(s, at, ahead)
	}
}

// Numbers returns the numbers that the limit's states are written under. Don't change
// what it points to.
func (l *Limit) Numbers() *Numbers { return &l.numbers }

// StepInstant is Step for a TokenBucket or LeakyBucket whose State is Live, was written
// under Numbers, and consists of A alone. Most do, so a store may keep them in one word.
// It returns the new A. If ok is false, the step needs or leaves more of a State than
// that, and r is meaningless.
//
// It is the whole rule, and one function, because most programs decide little else.
func (l *Limit) StepInstant(now, a int64, c *Charge, r *Result) (next int64, ok bool) {
	at := l.scale.at(now)
	tat := max(at, a)
	next = a
	*r = Result{}
	r.OK = true
	// With debt, a charge waits only for those before it; without, its own cost has to
	// be there as well.
	inc := c.Cost * l.token
	own := inc
	if l.spec.Debt {
		own = 0
	}
	short, allowed := tat+own-at-l.capacity, l.queue
	if short > 0 && c.MaxWait > 0 {
		within := l.maxWait(c) / l.scale.tick() * l.scale.PerTick
		if l.queue == 0 || within < allowed {
			allowed = within
		}
	}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest, short > allowed && own-l.capacity > allowed: // it could not pass even with nobody before it
		r.OK, r.RetryAfter = false, Never
	case short > allowed:
		r.OK, r.RetryAfter = false, l.scale.waitOne(short-allowed)
	default:
		if short > 0 {
			r.Delay = l.scale.waitOne(short)
		}
		tat += inc
		next = tat
		r.Receipt.Instant, r.Receipt.Mark, r.Receipt.Cost = at, tat, c.Cost
		if own > l.capacity { // see refundBucket
			r.Receipt.Instant = tat - l.capacity
		}
	}
	if room := at + l.capacity + l.queue - tat; room > 0 {
		r.Remaining = l.tokens.of(room)
	}
	r.ResetAfter = l.scale.waitOne(tat - at)
	return next, max(a, next) <= at+l.capacity && !l.scale.Wide
}

// stepUnits is stepBucket in units of 128 bits. Wide scales need it; for all others a
// test holds the two to the same answers.
func (l *Limit) stepUnits(now *Now, c *Charge, s *State, r *Result) {
	if s.Live {
		l.rebaseBucket(now, s)
	}
	used, own := l.used(now, s), product(c.Cost, l.token)
	after := used.plus(own)
	if l.spec.Debt {
		own = units{}
	}
	queue := product(l.room-l.burst, l.token)
	short, allowed := used.plus(own).minus(l.full), queue
	if c.MaxWait > 0 {
		within := l.scale.length(l.maxWait(c) / l.scale.tick())
		if queue == (units{}) || within.less(allowed) {
			allowed = within
		}
	}
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest, allowed.less(short) && allowed.less(own.minus(l.full)):
		r.OK, r.RetryAfter = false, Never
	case allowed.less(short):
		r.OK, r.RetryAfter = false, l.scale.wait(short.minus(allowed))
	default:
		r.Delay = l.scale.wait(short)
		used = after
		l.put(now, s, used)
		at := l.scale.instant(now.Steady)
		if l.full.less(own) { // see refundBucket
			at = at.plus(used).minus(l.full)
		}
		r.Receipt = Receipt{Instant: l.told(at), Mark: s.A, Low: s.Low, Cost: c.Cost}
	}
	left, _ := l.full.plus(queue).minus(used).over(l.token)
	r.Remaining = max(0, left.int())
	r.ResetAfter = l.scale.wait(used)
}

func (l *Limit) amendBucket(now *Now, c *Charge, s *State) Receipt {
	at := l.scale.instant(now.Steady)
	tat, made := at.plus(l.used(now, s)), l.scale.read(c.Receipt.Mark, c.Receipt.Low)
	var b bucket
	if s.Live {
		b = bucketOf(s)
	}
	mark, cost := lesser(made, tat), c.Cost
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff > 0:
		// The mark moves by the debt, not to the end of the queue: what time has given
		// back of the charge must not become reserved again.
		debt := l.owed(diff, tat, at.plus(l.full).plus(l.most))
		own := b.floor != (units{}) && b.floor == mark && mark == tat // see refundBucket
		mark = greater(mark, at).plus(product(debt, l.token))
		tat = tat.plus(product(debt, l.token))
		if own {
			b.floor = mark
		}
		cost -= diff - debt
	case diff < 0:
		back := l.refundBucket(at, tat, mark, c, &b)
		tat = tat.minus(back)
		mark = mark.minus(back)
		if back.positive() && !at.less(mark) { // nothing of the charge stands any more: see Standing
			mark = lesser(mark, made.minus(l.worth(-diff, l.endless())))
		}
	}
	if s.Live || at.less(tat) {
		l.keep(s, b.hidden, b.floor)
		l.put(now, s, tat.minus(at))
	}
	r := Receipt{Instant: c.Receipt.Instant, Cost: cost}
	r.Mark, r.Low = l.scale.write(mark)
	return r
}

// refundBucket returns how much of a refund is given back, and records in the floor
// what must not be.
//
// Whoever has been told a turn keeps that turn alone. If the turn is at t, the tat has
// to be t plus the cost of that charge and of all after it, or a newcomer would run
// beside them. Without refunds this holds by itself: the turn of a charge that waits is
// its own tat less the capacity. A refund moves the tat back and leaves the turns where
// they are. The floor protects them, also when the tat no longer shows that anybody
// waits.
func (l *Limit) refundBucket(at, tat, mark units, c *Charge, b *bucket) units {
	zero, stands := units{}, greater(mark.minus(at), units{})
	behind, waiting := tat.minus(mark), at.plus(l.full).less(tat)
	if l.spec.Debt && behind.positive() {
		// With debt, charges wait only for what is before them. If there were any room,
		// however small, a charge that comes now would go before those that wait.
		behind = l.endless()
	}
	back := refunded(l.worth(c.Receipt.Cost-c.Cost, stands), stands, behind, l.full, waiting)
	if l.queue > 0 && !l.spec.Debt && c.Receipt.Cost > l.burst {
		// A charge larger than what passes at once goes when the last part of it may;
		// what a refund leaves of it also goes then, not earlier as a smaller charge
		// would. The receipt of such a charge says when that is. For a charge that has
		// become so large only by debt, it is when the charge was made.
		turn := l.turnOf(c.Receipt)
		switch {
		case behind.positive() && at.less(turn):
			back = zero
		case c.Cost > 0:
			back = greater(lesser(back, mark.minus(turn).minus(l.worth(c.Cost, l.full))), zero)
		}
	}
	switch own := b.floor == mark && behind == zero; {
	case b.floor == zero:
	case own: // nobody else's turn comes after it
		b.floor = mark.minus(back)
	default:
		back = greater(lesser(back, tat.minus(b.floor)), zero)
	}
	floor := mark.minus(back) // the charge itself may be waiting
	if c.Cost == 0 {
		floor = at
	}
	if behind.positive() && back.positive() {
		floor = greater(floor, tat.minus(l.full).plus(behind))
	}
	if waiting && at.less(floor) && (b.floor == zero || b.floor.less(floor)) {
		b.floor = floor
	}
	return back
}

// told returns an instant or length of time as a receipt holds it: for a wide scale in
// ticks, rounded up.
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

// divisor divides by the same number many times. A multiplication and a correction take
// a third of the time of a division, which would be a tenth of a decision's.
type divisor struct{ by, inverse uint64 }

func divisorOf(by int64) divisor { return divisor{uint64(by), math.MaxUint64 / uint64(by)} }

// of returns n divided by the divisor, rounded down, for n >= 0. The inverse is too
// small by less than one part in 2^64/by, so the quotient is at most one too small
// before the correction.
func (d divisor) of(n int64) int64 {
	quotient, _ := bits.Mul64(uint64(n), d.inverse)
	if uint64(n)-quotient*d.by >= d.by {
		quotient++
	}
	return int64(quotient)
}

func (l *Limit) hiddenInBucket(s *State) time.Duration { return l.scale.wait(bucketOf(s).hidden) }

// moreInBucket: the bucket is full at ResetAfter. The tokens that come after the next
// one, rounded down, come before that. A period longer than a Duration holds belongs to
// tokens that no limit has room for.
func (l *Limit) moreInBucket(r *Result) time.Duration {
	after, later := r.ResetAfter, l.room-r.Remaining-1
	if later < 0 { // full: when the token would come that doesn't fit
		return after + l.spec.Period/time.Duration(l.spec.Units)
	}
	if hi, lo := bits.Mul64(uint64(later), uint64(l.spec.Period)); hi < uint64(l.spec.Units) {
		d, _ := bits.Div64(hi, lo, uint64(l.spec.Units))
		after -= time.Duration(d)
	}
	return after
}

func (l *Limit) backInBucket(was, is Receipt) int64 {
	return l.scale.read(was.Mark, was.Low).minus(l.scale.read(is.Mark, is.Low)).upOver(l.token)
}
