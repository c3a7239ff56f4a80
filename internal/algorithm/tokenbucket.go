package algorithm

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"
)

// TokenBucket and LeakyBucket share one step. A state is one instant, Tat. A charge moves it by its cost.
// It may be ahead of the present by the capacity at once, and by more, up to the queue or the maximum
// wait, if the charge waits for the difference. State.Numbers are those of the last charge. In most
// states, all words but Tat are 0.
const (
	// Tat is the theoretical arrival time: the instant at which the bucket is full again or, seen as a
	// queue, at which it has run dry. What it is ahead of the present is in use.
	Tat = 0
	// Ahead is by how much more than the capacity Tat was ahead of the present when it was last written, or 0. It is
	// positive if the last charge waits for its turn, and negative if it is a debt, for which no charge waits. A
	// Tat further ahead than that can only come from a clock that has since been set back. It is clamped,
	// or the key would be denied for as long as the clock was set back.
	Ahead = 1
)

// # Other numbers
//
// The tokens in use drain at the rate of the last charge, whichever version of the limit made
// it. A charge of a limit with other numbers fits if those tokens, converted into its own
// units and rounded up to thousandths, leave room for it. Then the state is converted. A
// denial and a look convert nothing: they would have to write. So a lowered burst clamps no state; what
// is in use beyond it drains.
//
// # Refunds
//
// A refund gives back no more than the lowest number of tokens in use since the charge (refunds.go). As
// long as nothing was refunded, the receipt's Mark bounds that: it is Tat after the charge, and what
// it is ahead of the present has been in use all the time. Refunding a charge that isn't the last
// makes the Marks of later charges too high, because Tat moves back. From then on the state has levels.
// While charges wait for their turns, only the last one can be canceled and nothing else is given back,
// or a newcomer would go beside those that wait. A receipt must be settled with the limit that made the
// charge: Marks are in its units.

// workOutBucket computes the numbers of a TokenBucket or LeakyBucket. A LeakyBucket is a TokenBucket that
// passes at once its Burst and the charge whose turn it is, and queues by default.
func (l *Limit) workOutBucket(bad wrong) {
	s := &l.spec
	queue := max(s.Queue, 0)
	burst := max(s.Burst, 0)
	if s.Algorithm == LeakyBucket {
		burst++
	}
	room, years := burst+queue, 100
	if s.Debt {
		room, years = 2*room, 50 // a full bucket owed, and a charge as large on top of it
	}
	if float64(room)*float64(l.period)/float64(s.Units) > far/2 {
		problem := "burst %d and queue %d would take more than %d years to refill at %d per %v"
		bad("Units", fmt.Sprintf(problem, burst, queue, years, s.Units, s.Period),
			"use a smaller burst or queue, or a higher rate")
		return
	}
	if !l.chooseScale(room, nil) {
		l.tooFast(bad)
		return
	}
	l.numbers = Numbers{Token: l.token, Unit: l.scale.Code(), Burst: burst}
	l.tokens = divisorOf(l.token)
	l.year = l.scale.within(longest.Microseconds())
	l.capacity, l.queue = burst*l.token, queue*l.token
	if l.largest = burst + queue; s.Debt {
		l.largest = max(l.largestPrepaid(), l.largest)
	}
}

// defaultBucket sets the default Burst and Queue. A TokenBucket has room for its Units, or for a
// second's worth with debt. A LeakyBucket has no burst, and a queue for its Units.
func (l *Limit) defaultBucket() {
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

// Alone returns how long a charge of a bucket waits for its own cost, if nothing else is in use: with a shorter MaxWait
// it never passes. It is 0 if the cost is within the capacity, with debt, for a cost that never passes, and for all
// other algorithms.
func (l *Limit) Alone(cost int64) time.Duration {
	if a := l.spec.Algorithm; a != TokenBucket && a != LeakyBucket || l.spec.Debt || cost > l.largest {
		return 0
	}
	return l.scale.wait(cost*l.token - l.capacity)
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

func (l *Limit) stepBucket(now *Now, c Charge, s *State, r *Result) {
	at := l.scale.At(now.Steady)
	tat := at
	if s.Live {
		if s.Numbers != l.numbers || s.W[KeptUntil] != 0 || s.W[Tat] > at+l.capacity+max(s.W[Ahead], -s.W[Ahead]) {
			l.stepGeneral(now, c, s, r)
			return
		}
		tat = max(tat, s.W[Tat])
	}
	after, _ := l.stepPlain(now.Steady, tat, c, r)
	if after == tat {
		return
	}
	// Written field by field: writing the whole State, with the Log that a bucket rarely
	// has, would be most of the cost of a decision.
	s.Live, s.Numbers, s.W[Tat], s.W[Ahead] = true, l.numbers, after, aheadBy(after-at-l.capacity, r.Delay > 0)
}

// aheadBy returns the Ahead of a tat that is n units ahead of the capacity.
func aheadBy(n int64, waits bool) int64 {
	switch {
	case n <= 0:
		return 0
	case waits:
		return n
	}
	return -n
}

// GrantPlain is StepPlain for a charge that passes at once, if nobody reads its result: with the charge, no more than
// the capacity is in use. Otherwise ok is false, and StepPlain decides. cost is at most Largest, so that
// nothing overflows.
func (l *Limit) GrantPlain(n *Numbers, now, tat, cost int64) (next int64, ok bool) {
	at := l.scale.At(now)
	next = max(at, tat) + cost*l.token
	return next, next <= at+l.capacity && *n == l.numbers
}

// StepPlain decides a charge alone, for a TokenBucket or LeakyBucket whose State is Live,
// was written under the numbers n, and consists of its Tat alone. Most do, so a store may
// keep them in one word. It returns the new Tat. If ok is false, the limit has other numbers, or the
// step needs or leaves more of a State than that, and r is meaningless.
func (l *Limit) StepPlain(n *Numbers, now, found int64, c Charge, r *Result) (next int64, ok bool) {
	if *n != l.numbers {
		return found, false
	}
	return l.stepPlain(now, found, c, r)
}

// stepPlain is stepBucket for a plain state: one that is no more than the Tat that was found. It is the whole rule
// in one function, because most programs decide little else.
func (l *Limit) stepPlain(now, found int64, c Charge, r *Result) (next int64, ok bool) {
	at := l.scale.At(now)
	tat := max(at, found)
	next = found
	*r = Result{}
	r.OK = true
	// With debt, a charge waits only for those before it; without, its own cost has to
	// be there as well.
	units := c.Cost * l.token
	needed := units
	if l.spec.Debt {
		needed = 0
	}
	short, allowed := tat+needed-at-l.capacity, l.queue
	if c.MaxWait > 0 && (short > 0 || l.queue > 0) {
		allowed = l.allowed(c)
	}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case short > allowed:
		r.OK, r.RetryAfter = false, l.scale.wait(short-allowed)
	default:
		r.Delay = l.scale.wait(short)
		tat += units
		next = tat
		r.Receipt.Instant, r.Receipt.Mark, r.Receipt.Cost = now, tat, c.Cost
	}
	most := l.capacity + min(l.queue, allowed)
	room := at + most - tat
	if room > 0 {
		r.Remaining = l.tokens.divide(room)
	}
	r.ResetAfter = l.scale.wait(tat - at)
	more := (r.Remaining + 1) * l.token
	if more > most { // nothing is in use, and a MaxWait may reach for a part of a token only
		more = most + l.token
	}
	r.MoreAfter = l.scale.wait(more - room)
	return next, max(found, next) <= at+l.capacity
}

// allowed returns by how much a charge may wait, in units.
func (l *Limit) allowed(c Charge) int64 {
	within := l.scale.within(l.maxWait(c))
	if c.MaxWait > 0 && (l.queue == 0 || within < l.queue) {
		return within
	}
	return l.queue
}

// bucketUse is the tokens in use of a bucket's state. They drain at the state's rate.
type bucketUse struct {
	scale   Scale // of the state
	token   int64 // of the state
	used    int64 // tokens in use, in the state's units
	inUse   int64 // tokens in use, in the limit's units
	foreign bool  // the limit has another scale or token
}

// bucketUse returns the tokens in use of a live state.
func (l *Limit) bucketUse(now *Now, s *State) bucketUse {
	u := bucketUse{scale: ScaleOf(s.Numbers.Unit), token: s.Numbers.Token}
	u.used = max(s.W[Tat]-u.scale.At(now.Steady), 0)
	u.inUse = u.used
	if u.foreign = u.token != l.token || s.Numbers.Unit != l.numbers.Unit; u.foreign {
		u.inUse = convert(u.used, u.token, l.token)
	}
	return u
}

// until returns the time until at most n of the limit's units are in use. Below 0, that is until none are, and
// the time of -n units more.
func (u *bucketUse) until(n int64, l *Limit) time.Duration {
	if u.foreign && n < 0 {
		return u.scale.wait(u.used) + l.scale.wait(-n)
	}
	if u.foreign {
		n = unconvert(n, u.token, l.token)
	}
	return u.scale.wait(u.used - n)
}

// convert returns n units of one rate's tokens in units of another's, by way of whole
// thousandths of a token, rounded up, or exact (more than any limit has room for).
func convert(n, from, to int64) int64 {
	tokens := n / from
	part := ceilDiv(n%from*1000, from)
	if tokens >= exact/to {
		return exact
	}
	return tokens*to + ceilDiv(part*to, 1000)
}

// unconvert returns the most units of one rate that convert to at most n, or exact.
func unconvert(n, from, to int64) int64 {
	tokens := n / to
	part := n % to * 1000 / to
	if tokens >= exact/from {
		return exact
	}
	return tokens*from + part*from/1000
}

// stepGeneral is stepBucket for any state: one of other numbers, one that has more than its tat,
// and one from before the clock was set back.
func (l *Limit) stepGeneral(now *Now, c Charge, s *State, r *Result) {
	if l.rebaseBucket(now, s); !s.Live {
		l.stepBucket(now, c, s, r)
		return
	}
	use := l.bucketUse(now, s)
	units := c.Cost * l.token
	needed := units
	if l.spec.Debt {
		needed = 0
	}
	allowed := l.allowed(c)
	if use.foreign && c.MaxWait >= longest {
		// The charge would convert the state, and what the other version has in use beyond this limit's capacity
		// would drain at this limit's rate, perhaps for days.
		allowed = min(allowed, l.queue)
	}
	*r = Result{OK: true}
	switch most := l.capacity + allowed - needed; {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case use.inUse > most:
		r.OK, r.RetryAfter = false, use.until(most, l)
	default:
		r.Delay = l.scale.wait(use.inUse + needed - l.capacity)
		// A charge that waits runs later, when no more is in use than there is room for beside it.
		before := min(use.inUse, max(l.capacity-needed, 0))
		l.chargeBucket(now, s, before, use.inUse, units, r.Delay > 0)
		r.Receipt = Receipt{Instant: now.Steady, Mark: s.W[Tat], Cost: c.Cost}
		use = l.bucketUse(now, s)
	}
	most := l.capacity + min(l.queue, allowed)
	r.Remaining = max(most-use.inUse, 0) / l.token
	r.ResetAfter = use.scale.wait(use.used)
	switch next := (r.Remaining + 1) * l.token; {
	case next <= most:
		r.MoreAfter = use.until(most-next, l)
	case use.foreign:
		r.MoreAfter = use.until(most, l) + l.scale.wait(l.token)
	default:
		r.MoreAfter = l.scale.wait(use.inUse + l.token)
	}
}

// chargeBucket adds units to the inUse of a state, which then has the limit's numbers. before is
// what is in use when the charge runs, which is later than now if it waits.
func (l *Limit) chargeBucket(now *Now, s *State, before, inUse, units int64, waits bool) {
	if s.Numbers != l.numbers {
		s.noteNumbers(now.Steady, ScaleOf(s.Numbers.Unit).micros(s.W[Tat]))
	} else {
		s.noteCharge(now.Steady, before, inUse+units, waits)
	}
	inUse += units
	s.Numbers, s.W[Tat], s.W[Ahead] = l.numbers, l.scale.At(now.Steady)+inUse, aheadBy(inUse-l.capacity, waits)
}

// rebaseBucket brings a state to the present: it drops what is over. A state from before the clock was set back is
// clamped, and no charge made before is refunded.
func (l *Limit) rebaseBucket(now *Now, s *State) {
	stateScale := ScaleOf(s.Numbers.Unit)
	at := stateScale.At(now.Steady)
	latest := at + s.Numbers.Burst*s.Numbers.Token + max(s.W[Ahead], -s.W[Ahead])
	setBack := s.W[Tat] > latest
	s.W[Tat] = min(s.W[Tat], latest)
	switch {
	case s.W[KeptUntil] == 0 && !setBack:
	case s.W[KeptUntil] <= now.Steady && !setBack:
		s.dropNotes()
	case setBack || s.lastNoted() > now.Steady: // the clock was set back: receipts' Instants say nothing any more
		s.refuseRefunds(now.Steady, max(stateScale.micros(s.W[Tat]), now.Steady+1))
	}
	if s.W[Tat] <= at && s.W[KeptUntil] == 0 {
		*s = State{}
	}
}

func (l *Limit) amendBucket(now *Now, c *Settlement, s *State) Receipt {
	r := c.Receipt
	r.Cost = c.Cost
	diff := c.Cost - c.Receipt.Cost
	switch {
	case diff > 0:
		if !s.Live {
			*s = State{Live: true, Numbers: l.numbers, W: Words{Tat: l.scale.At(now.Steady)}}
		}
		l.addDebtBucket(now, diff, s, &r)
	case diff < 0 && s.Live && s.Numbers == l.numbers && s.refunds(&r, now.Steady):
		l.refundBucket(now, -diff, c, s, &r)
	}
	return r
}

// addDebtBucket makes a charge cost more: tokens at the rate of the state, up to its capacity and a year's worth.
func (l *Limit) addDebtBucket(now *Now, tokens int64, s *State, r *Receipt) {
	stateScale, token, full := ScaleOf(s.Numbers.Unit), s.Numbers.Token, s.Numbers.Burst*s.Numbers.Token
	at := stateScale.At(now.Steady)
	used := max(s.W[Tat]-at, 0)
	// A debt is whole tokens, so it may pass the limit of a year by less than one. A long queue may
	// be beyond that limit already.
	debt := min(tokens, ceilDiv(max(full+stateScale.within(longest.Microseconds())-used, 0), token))
	r.Cost -= tokens - debt
	if debt == 0 {
		return
	}
	if s.Numbers == l.numbers {
		// It is as a charge made now, of the debt and what could be refunded until now.
		refundable := l.refundableBucket(now, used, s, r)
		r.Instant, r.Mark = now.Steady, at+refundable+debt*token
	}
	inUse, waits := used+debt*token, s.W[Ahead] > 0 && used > full
	s.noteCharge(now.Steady, used, inUse, waits)
	s.W[Tat], s.W[Ahead] = at+inUse, aheadBy(inUse-full, waits)
}

// refundableBucket returns the lowest number of units that have been in use since a charge, of
// that charge and those before it. A refund gives back no more.
func (l *Limit) refundableBucket(now *Now, used int64, s *State, r *Receipt) int64 {
	low, from := s.lowestUse(r, now.Steady, now.Steady, used)
	return max(min(low, r.Mark-l.scale.At(from)), 0)
}

// refundBucket gives back tokens of a charge: at most what refundableBucket returns, and nothing while others wait.
func (l *Limit) refundBucket(now *Now, tokens int64, c *Settlement, s *State, r *Receipt) {
	at := l.scale.At(now.Steady)
	used := max(s.W[Tat]-at, 0)
	last, waits := r.Mark == s.W[Tat], s.W[Ahead] > 0 && used > l.capacity
	if waits && !(last && c.Cost == 0) {
		return
	}
	refundable := l.refundableBucket(now, used, s, r)
	back := refundable
	if tokens < ceilDiv(refundable, l.token) {
		back = tokens * l.token
	}
	if back == 0 {
		return
	}
	if r.Mark -= back; back == refundable {
		// The part of the refund that wasn't given back has drained, or belongs to other charges: a later
		// settlement of this charge must not give it back.
		r.Mark = min(r.Mark, r.Mark+back-tokens*l.token)
	}
	s.noteRefund(now.Steady, used, c.Receipt.Instant, back, last, max(l.scale.micros(s.W[Tat]), now.Steady+1))
	s.W[Tat] = at + used - back
	s.W[Ahead] = aheadBy(used-back-l.capacity, waits)
	if s.W[Tat] <= at && s.W[KeptUntil] == 0 {
		*s = State{}
	}
}

// validBucket reports whether a token or leaky bucket can have written the state.
func (s *State) validBucket() bool {
	n, unit := s.Numbers, ScaleOf(s.Numbers.Unit)
	return n.Token > 0 && unit.possible() && n.Burst >= 0 &&
		unit.covers(float64(n.Burst)*float64(n.Token), far/2+horizon) &&
		s.hasOnly(Tat, Ahead, KeptUntil, RefundsFrom) && unit.covers(float64(s.W[Tat]), remote) &&
		unit.covers(float64(s.W[Ahead]), far/2+horizon) && s.validNotes()
}
