package store_test

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// bucketModel holds tokens in use, which drain at rate. More than the capacity are in use
// while charges wait for their turns, or while a debt is paid.
type bucketModel struct {
	rate     *big.Rat // tokens a microsecond
	capacity int64
	queue    int64 // tokens that may wait; none: -1
	debt     bool
	largest  int64
	tick     int64

	used  *big.Rat
	last  int64
	waits bool // the last charge waits for its turn

	lows lows
	till int64 // lows are forgotten then
}

// lows are how little has been in use, in tokens, since when. They are kept from the first
// refund that isn't of the last charge.
type lows []low

type low struct {
	at   int64
	used *big.Rat
}

// charged returns lows with a charge more. Of nine, two that differ least become one, but not the last.
func (v lows) charged(at int64, before, after *big.Rat, waits bool) lows {
	v = v.sunk(before)
	n := len(v)
	switch latest := v[n-1].at; {
	case waits && latest >= at-1: // it runs when less is in use than since a charge before it, perhaps of this instant
		return v
	case latest >= at:
		v[n-1].used = after
		return v
	}
	if n > 1 && v[n-1].used.Cmp(v[n-2].used) == 0 {
		v = v[:n-1]
	}
	if v = append(v, low{at, after}); len(v) > 8 {
		drop := 7
		for i := 6; i > 0; i-- {
			if minus(v[i].used, v[i-1].used).Cmp(minus(v[drop].used, v[drop-1].used)) < 0 {
				drop = i
			}
		}
		v = slices.Delete(v, drop, drop+1)
	}
	return v
}

// sunk returns lows of which none is above used. The instant of the last one stays.
func (v lows) sunk(used *big.Rat) lows {
	latest := v[len(v)-1].at
	v = slices.Clone(v)
	for i := range v {
		v[i].used = least(v[i].used, used)
	}
	v = slices.CompactFunc(v, func(a, b low) bool { return a.used.Cmp(b.used) == 0 })
	if last := v[len(v)-1]; last.at != latest {
		v = append(v, low{latest, last.used})
	}
	return v
}

// since returns how little has been in use since a charge at at, and from when on that is
// known.
func (v lows) since(at int64) (used *big.Rat, from int64) {
	used = v[0].used
	for _, l := range v {
		if l.at <= at {
			used = l.used
		}
	}
	return used, max(at, v[0].at+1) // the first is of the instant before the first refund
}

// refunded returns lows after a refund for a charge at at.
func (v lows) refunded(at int64, back *big.Rat) lows {
	v = slices.Clone(v)
	first := 0
	for i, l := range v {
		if l.at <= at {
			first = i
		}
	}
	for i := first; i < len(v); i++ {
		v[i].used = most(rat(0), minus(v[i].used, back))
	}
	for i := len(v) - 2; i >= 0; i-- { // what was low later is low since earlier
		v[i].used = least(v[i].used, v[i+1].used)
	}
	return v.sunk(v[len(v)-1].used)
}

// yearsWorth bounds what can be prepaid at once.
func yearsWorth(rate *big.Rat, tick int64) int64 {
	n := floor(times(rate, rat(floorTo(365*24*3600*1_000_000, tick))))
	return min(max(n, 1), store.MaxCost)
}

func newBucketModel(l *store.Limit) *bucketModel {
	s := l.Spec()
	m := &bucketModel{capacity: max(s.Burst, 0), queue: s.Queue, debt: s.Debt, used: rat(0), last: math.MinInt64}
	if s.Algorithm == store.LeakyBucket {
		m.capacity++
	}
	if m.queue == 0 {
		m.queue = store.None
	}
	room := m.capacity + max(m.queue, 0)
	m.rate, m.tick = rateOf(l, pick(m.debt, 2*room, room), nil)
	m.largest = room
	if m.debt {
		m.largest = max(room, yearsWorth(m.rate, m.tick))
	}
	return m
}

// flow lets time pass. Time does not run back.
func (m *bucketModel) flow(now store.Now) {
	at := max(floorTo(now.Steady, m.tick), m.last)
	if m.till <= now.Steady {
		m.lows = nil
	}
	if m.used.Sign() > 0 {
		m.used = most(rat(0), minus(m.used, times(m.rate, rat(at-m.last))))
	}
	m.waits = m.waits && m.used.Cmp(rat(m.capacity)) > 0
	m.last = at
}

// until is the time in which that many tokens drain, up to the next tick.
func (m *bucketModel) until(tokens *big.Rat) time.Duration {
	if tokens.Sign() <= 0 {
		return 0
	}
	return micros(ceilTo(over(tokens, m.rate), m.tick))
}

// own is how many tokens of its own a charge needs to go.
func (m *bucketModel) own(cost int64) *big.Rat { return rat(pick(m.debt, 0, cost)) }

func (m *bucketModel) look(now store.Now, cost int64, maxWait time.Duration) verdict {
	m.flow(now)
	if cost == 0 {
		return verdict{ok: true}
	}
	if cost > m.largest {
		return verdict{retry: store.Never}
	}
	// beyond is how long one with that many tokens missing has to come later.
	beyond := func(missing *big.Rat) (retry time.Duration) {
		if m.queue >= 0 {
			retry = m.until(minus(missing, rat(m.queue)))
		}
		if maxWait > 0 {
			return max(retry, m.until(missing)-micros(floorTo(maxWait.Microseconds(), m.tick)))
		}
		return pick(m.queue >= 0, retry, m.until(missing))
	}
	alone := minus(m.own(cost), rat(m.capacity))
	missing := plus(m.used, alone)
	if retry := beyond(missing); retry > 0 {
		return verdict{retry: retry}
	}
	return verdict{ok: true, delay: m.until(missing)}
}

func (m *bucketModel) charge(now store.Now, cost int64, delay time.Duration) ticket {
	m.flow(now)
	m.waits = delay > 0
	// When it goes, no more is in use than there is room for beside it.
	before := least(m.used, most(minus(rat(m.capacity), m.own(cost)), rat(0)))
	m.used = plus(m.used, rat(cost))
	if m.lows != nil {
		m.lows = m.lows.charged(now.Steady, before, m.used, m.waits)
	}
	return ticket{cost: cost, at: now.Steady, mark: m.full()}
}

// full is the instant at which nothing is in use if no other call comes.
func (m *bucketModel) full() *big.Rat { return plus(rat(m.last), over(m.used, m.rate)) }

// standing is how much of a charge and of those before it has been in use since it was
// made, at its lowest, as far as that is known.
func (m *bucketModel) standing(t ticket) *big.Rat {
	stood := func(at int64) *big.Rat { return most(rat(0), times(minus(t.mark, rat(at)), m.rate)) }
	if m.lows == nil {
		return least(stood(m.last), m.used)
	}
	used, from := m.lows.since(t.at)
	return least(least(used, m.used), stood(floorTo(from, m.tick)))
}

func (m *bucketModel) settle(now store.Now, t ticket, cost int64) ticket {
	m.flow(now)
	standing, before := m.standing(t), m.used
	switch {
	case cost > t.cost:
		// The last token that is owed is the one with which it is a year's worth
		// beyond the capacity.
		owed, year := int64(0), plus(rat(m.capacity), times(m.rate, rat(floorTo(365*24*3600*1_000_000, m.tick))))
		for owed < cost-t.cost && m.used.Cmp(year) < 0 {
			m.used = plus(m.used, rat(1))
			owed++
		}
		if owed == 0 {
			return t
		}
		if m.lows != nil {
			m.lows = m.lows.charged(now.Steady, before, m.used, m.waits)
		}
		return ticket{cost: t.cost + owed, at: now.Steady, mark: plus(rat(m.last), over(plus(standing, rat(owed)), m.rate))}
	case cost == t.cost:
		return t
	}
	settled := ticket{cost: cost, at: t.at, mark: t.mark}
	last := t.mark.Cmp(m.full()) == 0
	if m.waits && !(last && cost == 0) {
		return settled // others wait for their turns
	}
	back := least(rat(t.cost-cost), standing)
	if back.Sign() == 0 {
		return settled
	}
	if !last || m.lows != nil {
		if m.lows == nil {
			m.lows, m.till = lows{{now.Steady - 1, m.used}}, math.MinInt64
		}
		m.till = max(m.till, now.Steady+1, ceilTo(m.full(), m.tick))
		m.lows = m.lows.sunk(m.used).refunded(t.at, back)
	}
	m.used = minus(m.used, back)
	// If nothing of it stands any more, all of the refund is off its mark.
	settled.mark = minus(t.mark, over(pick(back.Cmp(standing) == 0, rat(t.cost-cost), back), m.rate))
	return settled
}

func (m *bucketModel) left(now store.Now, maxWait time.Duration) (int64, time.Duration, time.Duration) {
	m.flow(now)
	queue := rat(max(m.queue, 0))
	if maxWait > 0 {
		queue = least(queue, times(m.rate, rat(floorTo(maxWait.Microseconds(), m.tick))))
	}
	all := plus(rat(m.capacity), queue)
	left := max(0, floor(minus(all, m.used)))
	missing := minus(rat(left+1), minus(all, m.used))
	if rat(left+1).Cmp(all) > 0 { // more can't be
		missing = plus(m.used, rat(1))
	}
	return left, m.until(missing), m.until(m.used)
}

// intervalModel holds tokens of which n arrive at each end of a period.
type intervalModel struct {
	n, capacity int64
	windows

	tokens int64
	since  int64 // start of the period under way, unless full
	waits  bool  // the last charge waits for its turn

	lows lows
	till int64 // lows are forgotten then, on the clock of windows
}

func (m *intervalModel) flow(now store.Now) {
	for m.tokens < m.capacity && m.end(m.since) <= m.at(now) {
		m.since = m.end(m.since)
		m.tokens = min(m.capacity, m.tokens+m.n)
	}
	if m.till <= m.at(now) {
		m.lows = nil
	}
	m.waits = m.waits && m.tokens < 0
	if m.tokens == m.capacity { // the next charge begins an interval
		m.since = m.start(m.at(now))
	}
}

func (m *intervalModel) used() int64 { return m.capacity - m.tokens }

// arrive is the time at whose end that many tokens have arrived.
func (m *intervalModel) arrive(now store.Now, tokens int64) time.Duration {
	if tokens <= 0 {
		return 0
	}
	at := m.since
	for have := int64(0); have < tokens; have += m.n {
		at = m.end(at)
	}
	return micros(at - m.at(now))
}

// until is the time at whose end there are tokens.
func (m *intervalModel) until(now store.Now, tokens int64) time.Duration {
	return m.arrive(now, tokens-m.tokens)
}

func (m *intervalModel) look(now store.Now, cost int64, maxWait time.Duration) verdict {
	m.flow(now)
	if cost == 0 {
		return verdict{ok: true}
	}
	if cost > m.capacity {
		return verdict{retry: store.Never}
	}
	delay := m.until(now, cost)
	if wait := maxWait.Truncate(time.Microsecond); delay > wait {
		return verdict{retry: delay - wait}
	}
	return verdict{ok: true, delay: delay}
}

func (m *intervalModel) charge(now store.Now, cost int64, delay time.Duration) ticket {
	m.flow(now)
	m.waits = delay > 0
	// When it goes, no more is in use than there is room for beside it.
	before := min(m.used(), m.capacity-cost)
	// What it finds when its turn comes, and leaves behind, up to the capacity;
	// from there back to the present.
	arrive := int64(0)
	for at := m.since; at < m.at(now)+delay.Microseconds() && delay > 0; at = m.end(at) {
		arrive += m.n
	}
	m.tokens = min(m.capacity, m.tokens+arrive) - cost - arrive
	if m.lows != nil {
		m.lows = m.lows.charged(m.at(now), rat(before), rat(m.used()), m.waits)
	}
	return ticket{cost: cost, at: m.at(now), mark: rat(m.used())}
}

// stood is how much of a charge and of those before it is in use at an instant, if nothing
// is given back, by the intervals of the present grid.
func (m *intervalModel) stood(t ticket, at int64) *big.Rat {
	if !m.calendar {
		period := m.end(0)
		ended := floor(big.NewRat(at-m.since, period)) - floor(big.NewRat(t.at-m.since, period))
		return most(rat(0), minus(t.mark, times(rat(max(0, ended)), rat(m.n))))
	}
	stands := t.mark
	for end := m.end(m.start(t.at)); end <= at && stands.Sign() > 0; end = m.end(end) {
		stands = minus(stands, rat(m.n))
	}
	return most(rat(0), stands)
}

func (m *intervalModel) standing(t ticket) *big.Rat {
	if m.lows == nil {
		return least(m.stood(t, m.since), rat(m.used()))
	}
	used, from := m.lows.since(t.at)
	return least(least(used, rat(m.used())), m.stood(t, from))
}

func (m *intervalModel) settle(now store.Now, t ticket, cost int64) ticket {
	m.flow(now)
	used := m.used()
	switch {
	case cost > t.cost:
		owed := max(0, min(cost-t.cost, m.tokens+store.MaxCost))
		if owed == 0 {
			return t
		}
		settled := ticket{cost: t.cost + owed, at: m.at(now), mark: plus(m.standing(t), rat(owed))}
		m.tokens -= owed
		if m.lows != nil {
			m.lows = m.lows.charged(m.at(now), rat(used), rat(m.used()), m.waits)
		}
		return settled
	case cost == t.cost || used == 0:
		return ticket{cost: cost, at: t.at, mark: t.mark}
	}
	settled := ticket{cost: cost, at: t.at, mark: t.mark}
	last := m.stood(t, m.since).Cmp(rat(used)) == 0
	if m.waits && !(last && cost == 0) {
		return settled // others wait for their turns
	}
	back := least(rat(t.cost-cost), m.standing(t))
	if back.Sign() <= 0 {
		return settled
	}
	if !last || m.lows != nil {
		if m.lows == nil {
			m.lows, m.till = lows{{m.at(now) - 1, rat(used)}}, math.MinInt64
		}
		intervals := (used + m.n - 1) / m.n // the scripts don't know how long those to come are
		m.till = max(m.till, m.at(now)+1, m.since+intervals*m.longest)
		m.lows = m.lows.sunk(rat(used)).refunded(t.at, back)
	}
	m.tokens += floor(back)
	settled.mark = minus(t.mark, rat(t.cost-cost)) // if nothing of it stands any more, all is off
	return settled
}

func (m *intervalModel) left(now store.Now, _ time.Duration) (int64, time.Duration, time.Duration) {
	m.flow(now)
	left := max(0, m.tokens)
	if left == m.capacity {
		return left, 0, 0
	}
	return left, m.until(now, left+1), m.until(now, m.capacity)
}
