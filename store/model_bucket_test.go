package store_test

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// bucketModel holds tokens that flow in at rate. Tokens below zero are owed to
// charges that have been promised a turn.
type bucketModel struct {
	rate     *big.Rat // tokens a microsecond
	capacity int64
	queue    int64 // tokens that may be owed; none: -1
	debt     bool
	largest  int64
	tick     int64
	wide     bool

	tokens *big.Rat
	last   int64
	floor  *big.Rat // no refund of others brings full() below, if not nil

	// From the first refund until the latest mark that a ticket may have has passed: since
	// when how little has been in use, in microseconds.
	lows []low
	high *big.Rat
	turn *big.Rat // the latest that has been told meanwhile
}

type low struct {
	at   int64
	used *big.Rat
}

// yearsWorth bounds what can be prepaid at once.
func yearsWorth(rate *big.Rat) int64 {
	n := floor(times(rate, rat(365*24*3600*1_000_000)))
	return min(max(n, 1), store.MaxCost)
}

func newBucketModel(s store.Spec) *bucketModel {
	m := &bucketModel{
		rate:     big.NewRat(s.Units, s.Period.Microseconds()),
		capacity: max(s.Burst, 0),
		queue:    s.Queue,
		debt:     s.Debt,
	}
	if s.Algorithm == store.LeakyBucket {
		m.capacity++
	}
	if m.queue == 0 {
		m.queue = store.None
	}
	room := m.capacity + max(m.queue, 0)
	m.tick, m.wide = tickOf(s.Period, s.Units, pick(m.debt, 2*room, room), nil)
	m.largest = room
	if m.debt {
		m.largest = max(room, yearsWorth(m.rate))
	}
	m.tokens, m.last = rat(m.capacity), math.MinInt64
	return m
}

// flow lets time pass. Time does not run back.
func (m *bucketModel) flow(now store.Now) {
	at := max(floorTo(now.Steady, m.tick), m.last)
	if m.floor != nil && m.floor.Cmp(rat(at)) <= 0 {
		m.floor = nil
	}
	if m.high != nil && m.high.Cmp(rat(now.Steady)) <= 0 {
		m.high, m.lows, m.turn = nil, nil, nil
	}
	if m.tokens.Cmp(rat(m.capacity)) >= 0 { // full: nothing flows, and nothing remembers when
		m.last = at
		return
	}
	m.tokens = least(rat(m.capacity), plus(m.tokens, times(m.rate, rat(at-m.last))))
	m.last = at
}

// until is the time in which that many tokens flow in, up to the next tick.
func (m *bucketModel) until(tokens *big.Rat) time.Duration {
	if tokens.Sign() <= 0 {
		return 0
	}
	return micros(ceilTo(over(tokens, m.rate), m.tick))
}

func (m *bucketModel) look(now store.Now, cost int64, maxWait time.Duration) verdict {
	m.flow(now)
	if cost == 0 {
		return verdict{ok: true}
	}
	if cost > m.largest {
		return verdict{retry: store.Never}
	}
	need := rat(cost)
	if m.debt {
		need = rat(0)
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
	if beyond(minus(need, rat(m.capacity))) > 0 { // not even when full
		return verdict{retry: store.Never}
	}
	missing := minus(need, m.tokens)
	if retry := beyond(missing); retry > 0 {
		return verdict{retry: retry}
	}
	return verdict{ok: true, delay: m.until(missing)}
}

func (m *bucketModel) charge(now store.Now, cost int64, _ time.Duration) ticket {
	m.flow(now)
	needs := rat(cost)
	if m.debt {
		needs = rat(0)
	}
	// When it goes, no more is in use than there is room for beside it.
	before := least(m.used(), most(over(minus(rat(m.capacity), needs), m.rate), rat(0)))
	m.tokens = minus(m.tokens, rat(cost))
	m.lowered(now, before)
	return ticket{cost: cost, at: now.Steady, mark: m.full()}
}

// used is how long it takes until the bucket is full.
func (m *bucketModel) used() *big.Rat { return minus(m.full(), rat(m.last)) }

// tell notes the latest turn.
func (m *bucketModel) tell() {
	if turn := minus(m.full(), over(rat(m.capacity), m.rate)); m.tokens.Sign() < 0 && (m.turn == nil || m.turn.Cmp(turn) < 0) {
		m.turn = turn
	}
}

// lowered notes how little has been in use when a charge is made.
func (m *bucketModel) lowered(now store.Now, before *big.Rat) {
	if m.lows == nil {
		return
	}
	m.tell()
	m.sunk(before)
	if n := len(m.lows); m.lows[n-1].at >= now.Steady {
		m.lows[n-1].used = m.used()
		return
	}
	m.lows = append(m.lows, low{now.Steady, m.used()})
	if len(m.lows) > 8 { // the two that differ least become one
		drop := 8
		for i := 7; i > 0; i-- {
			if minus(m.lows[i].used, m.lows[i-1].used).Cmp(minus(m.lows[drop].used, m.lows[drop-1].used)) < 0 {
				drop = i
			}
		}
		m.lows = append(m.lows[:drop:drop], m.lows[drop+1:]...)
	}
}

func (m *bucketModel) sunk(used *big.Rat) {
	for i := range m.lows {
		m.lows[i].used = least(m.lows[i].used, used)
	}
	m.lows = slices.CompactFunc(m.lows, func(a, b low) bool { return a.used.Cmp(b.used) == 0 })
}

// stood is how much of a charge has been in use at its lowest since it was made.
func (m *bucketModel) stood(t ticket) *big.Rat {
	if m.lows == nil {
		return most(rat(0), minus(least(t.mark, m.full()), rat(m.last)))
	}
	from, used := m.lows[0].at, m.lows[0].used
	for _, l := range m.lows {
		if l.at <= t.at {
			from, used = t.at, l.used
		}
	}
	stood := rat(floorTo(from, m.tick))
	if m.turn != nil {
		stood = most(stood, least(m.turn, rat(m.last)))
	}
	return least(used, most(rat(0), minus(t.mark, stood)))
}

// gave notes a refund, by which the bucket is full earlier.
func (m *bucketModel) gave(now store.Now, t ticket, high, back *big.Rat, waiting bool) {
	if m.high == nil || m.high.Cmp(high) < 0 {
		m.high = rat(ceil(high))
	}
	if back.Sign() == 0 {
		return
	}
	if m.lows == nil {
		m.lows = []low{{now.Steady, minus(high, rat(m.last))}}
		if turn := minus(high, over(rat(m.capacity), m.rate)); waiting {
			m.turn = turn
		}
	}
	first := 0
	for i, l := range m.lows {
		if l.at <= t.at {
			first = i
		}
	}
	for i := len(m.lows) - 1; i >= 0; i-- {
		if i >= first {
			m.lows[i].used = most(rat(0), minus(m.lows[i].used, back))
		} else {
			m.lows[i].used = least(m.lows[i].used, m.lows[first].used)
		}
	}
	m.sunk(m.lows[len(m.lows)-1].used)
}

// raise moves the floor up to mark.
func (m *bucketModel) raise(mark *big.Rat) {
	if m.floor == nil || m.floor.Cmp(mark) < 0 {
		m.floor = mark
	}
}

// full is the instant at which the bucket is full if no other call comes.
func (m *bucketModel) full() *big.Rat {
	return plus(rat(m.last), over(minus(rat(m.capacity), m.tokens), m.rate))
}

func (m *bucketModel) settle(now store.Now, t ticket, cost int64) ticket {
	m.flow(now)
	if cost == t.cost {
		return t
	}
	if cost > t.cost {
		mark, before := least(t.mark, m.full()), m.used()
		own := m.floor != nil && m.floor.Cmp(mark) == 0 && m.full().Cmp(mark) == 0
		// The last token that is owed is the one with which it is a year's worth
		// beyond the capacity, whatever is said to have been used.
		owed := int64(0)
		for limit := times(m.rate, rat(-365*24*3600*1_000_000)); owed < cost-t.cost && m.tokens.Cmp(limit) > 0; owed++ {
			m.tokens = minus(m.tokens, rat(1))
		}
		if owed == 0 {
			return t
		}
		m.lowered(now, before)
		mark = plus(most(mark, rat(m.last)), over(rat(owed), m.rate))
		if own {
			m.floor = mark
		}
		return ticket{cost: t.cost + owed, at: now.Steady, mark: mark, raised: t.raised || t.cost <= m.capacity}
	}
	// What has flowed in since is not given back a second time.
	m.sunk(m.used())
	stood := times(m.stood(t), m.rate)
	mark := least(t.mark, m.full()) // refunds to others have moved it up
	back := least(rat(t.cost-cost), stood)
	behind := times(minus(m.full(), mark), m.rate)
	room := over(rat(m.capacity), m.rate)
	waiting := m.tokens.Sign() < 0
	if waiting && behind.Sign() > 0 {
		// Others have been promised turns behind it.
		back = minus(least(back, rat(m.capacity)), behind)
		if m.debt {
			back = rat(0) // nor does anybody go before them
		}
	}
	if m.queue > 0 && !m.debt && t.cost > m.capacity && !t.raised {
		// All of what is left runs at once, when the last of it was to.
		turn := minus(t.mark, room)
		if behind.Sign() > 0 && turn.Cmp(rat(m.last)) > 0 {
			back = rat(0)
		} else if cost > 0 {
			back = least(back, minus(times(minus(mark, turn), m.rate), rat(min(cost, m.capacity))))
		}
	}
	own := m.floor != nil && m.floor.Cmp(mark) == 0 && behind.Sign() == 0
	if m.floor != nil && !own {
		back = least(back, times(minus(m.full(), m.floor), m.rate))
	}
	back = most(back, rat(0))
	full, floored := m.full(), m.floor
	m.tokens = least(plus(m.tokens, back), rat(m.capacity))
	mark = minus(mark, over(back, m.rate))
	if own {
		m.floor = mark // its own moves down with it
	}
	if waiting && cost > 0 {
		m.raise(mark)
	}
	if waiting && behind.Sign() > 0 && back.Sign() > 0 {
		m.raise(plus(minus(full, room), over(behind, m.rate)))
	}
	same := m.floor == nil && floored == nil || m.floor != nil && floored != nil && m.floor.Cmp(floored) == 0
	if same && t.mark.Cmp(full) == 0 && m.lows == nil && m.high == nil && !t.raised {
		// The last charge: no receipt knows of it.
	} else if back.Sign() > 0 || m.floor != nil && (floored == nil || m.floor.Cmp(floored) != 0) {
		m.gave(now, t, full, over(back, m.rate), waiting)
	}
	told := t.mark
	if back.Sign() > 0 {
		told = minus(t.mark, over(back, m.rate))
		if back.Cmp(stood) >= 0 {
			told = least(told, minus(t.mark, over(rat(t.cost-cost), m.rate)))
		}
	}
	return ticket{cost: cost, at: t.at, mark: told, raised: t.raised}
}

func (m *bucketModel) left(now store.Now) (int64, time.Duration) {
	m.flow(now)
	free := plus(m.tokens, rat(max(m.queue, 0)))
	return max(0, floor(free)), m.until(minus(rat(m.capacity), m.tokens))
}

// intervalModel holds tokens of which n arrive at each end of a period.
type intervalModel struct {
	n, capacity int64
	windows

	tokens int64
	since  int64 // start of the period under way, unless full
	floor  int64 // what no refund of others takes the tokens used below

	// From the first refund until no ticket from before it can stand for anything: since
	// when how few tokens have been in use.
	lows  []intervalLow
	stand int64 // the most that such a ticket stands for
}

type intervalLow struct{ at, used int64 }

func (m *intervalModel) flow(now store.Now) {
	for (m.tokens < m.capacity || m.stand > 0) && m.end(m.since) <= m.at(now) {
		m.since = m.end(m.since)
		m.tokens = min(m.capacity, m.tokens+m.n)
		m.floor, m.stand = max(0, m.floor-m.n), max(0, m.stand-m.n)
	}
	if m.stand == 0 {
		m.lows = nil
	}
}

// restart begins an interval with the next charge if all is there.
func (m *intervalModel) restart(now store.Now) {
	if m.tokens == m.capacity {
		m.since = m.start(m.at(now))
	}
}

func (m *intervalModel) used() int64 { return m.capacity - m.tokens }

// lowered notes that so few were in use when a charge of the present interval was made.
func (m *intervalModel) lowered(before int64) {
	if m.lows == nil {
		return
	}
	m.sunk(before)
	if n := len(m.lows); m.lows[n-1].at >= m.since {
		m.lows[n-1].used = m.used()
		return
	}
	m.lows = append(m.lows, intervalLow{m.since, m.used()})
	if len(m.lows) > 8 { // the two that differ least become one
		drop := 8
		for i := 7; i > 0; i-- {
			if m.lows[i].used-m.lows[i-1].used < m.lows[drop].used-m.lows[drop-1].used {
				drop = i
			}
		}
		m.lows = append(m.lows[:drop:drop], m.lows[drop+1:]...)
	}
}

func (m *intervalModel) sunk(used int64) {
	for i := range m.lows {
		m.lows[i].used = min(m.lows[i].used, used)
	}
	m.lows = slices.CompactFunc(m.lows, func(a, b intervalLow) bool { return a.used == b.used })
}

// least is how few tokens have been in use since the charge, at their fewest.
func (m *intervalModel) least(t ticket) int64 {
	if m.lows == nil {
		return math.MaxInt64
	}
	used, known := m.lows[0].used, false
	for _, l := range m.lows {
		if l.at <= t.at {
			used, known = l.used, true
		}
	}
	if !known { // of what was before the first refund, the ticket knows it
		used = min(used, floor(m.standing(t, m.lows[0].at+1)))
	}
	return used
}

// gave notes a refund, before which so many were in use.
func (m *intervalModel) gave(t ticket, used, back int64) {
	if m.lows == nil {
		m.lows = []intervalLow{{m.since - 1, used}}
	}
	m.stand = max(m.stand, used)
	first := 0
	for i, l := range m.lows {
		if l.at <= t.at {
			first = i
		}
	}
	for i := first; i < len(m.lows); i++ {
		m.lows[i].used = max(0, m.lows[i].used-back)
	}
	for i := len(m.lows) - 2; i >= 0; i-- {
		m.lows[i].used = min(m.lows[i].used, m.lows[i+1].used)
	}
	m.sunk(m.lows[len(m.lows)-1].used)
}

// until is the time at whose end there are tokens.
func (m *intervalModel) until(now store.Now, tokens int64) time.Duration {
	if tokens <= m.tokens {
		return 0
	}
	at := m.since
	for have := m.tokens; have < tokens; have += m.n {
		at = m.end(at)
	}
	return micros(at - m.at(now))
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
	m.restart(now)
	before := m.used()
	if delay > 0 { // when it goes, no more is in use than there is room for beside it
		before = min(before, m.capacity-cost)
	}
	// What it finds when its turn comes, and leaves behind, up to the capacity;
	// from there back to the present.
	arrive := int64(0)
	for at := m.since; at < m.at(now)+delay.Microseconds() && delay > 0; at = m.end(at) {
		arrive += m.n
	}
	m.tokens = min(m.capacity, m.tokens+arrive) - cost - arrive
	m.lowered(before)
	return ticket{cost: cost, at: m.since, mark: rat(m.capacity - m.tokens)}
}

// stands returns what is left of a charge, less what the intervals since then have
// brought.
func (m *intervalModel) stands(t ticket) *big.Rat {
	return least(m.standing(t, m.since), rat(m.capacity-m.tokens))
}

// standing is stands, as of the end of an interval, if nothing has been given back.
func (m *intervalModel) standing(t ticket, at int64) *big.Rat {
	stands := t.mark
	if m.calendar {
		for end := m.end(t.at); end <= at && stands.Sign() > 0; end = m.end(end) {
			stands = minus(stands, rat(m.n))
		}
		return most(rat(0), stands)
	}
	for period := m.end(0); at > t.at && stands.Sign() > 0; at -= period {
		stands = minus(stands, rat(m.n))
	}
	return most(rat(0), stands)
}

func (m *intervalModel) settle(now store.Now, t ticket, cost int64) ticket {
	m.flow(now)
	if m.stand > 0 {
		m.restart(now)
	}
	used := m.capacity - m.tokens
	stands := m.stands(t)
	own := m.floor > 0 && stands.Cmp(rat(m.floor)) == 0 && stands.Cmp(rat(used)) == 0
	if cost >= t.cost {
		m.restart(now)
		m.tokens = min(m.tokens, max(m.tokens-(cost-t.cost), -store.MaxCost))
		m.lowered(used)
		if own {
			m.floor = m.capacity - m.tokens
		}
		return ticket{cost: cost}
	}
	back := least(rat(t.cost-cost), stands)
	waiting, behind := m.tokens < 0, minus(rat(used), stands)
	if waiting && behind.Sign() > 0 { // others have been promised turns behind it
		back = minus(least(back, rat(m.capacity)), behind)
		coming := (-m.tokens + m.n - 1) / m.n * m.n // until the last of those turns
		back = least(back, minus(stands, rat(coming)))
	}
	back = least(back, rat(m.least(t)))
	if !own {
		back = least(back, rat(used-m.floor))
	}
	back = most(rat(0), back)
	m.tokens += floor(back)
	if back.Sign() > 0 && (m.lows != nil || behind.Sign() > 0) {
		m.gave(t, used, floor(back))
	}
	stands = minus(stands, back)
	if own {
		m.floor = floor(stands)
	}
	if waiting && cost > 0 {
		m.floor = max(m.floor, floor(stands))
	}
	if waiting && behind.Sign() > 0 && back.Sign() > 0 {
		m.floor = max(m.floor, used-m.capacity+floor(behind))
	}
	// It is still a charge of then.
	return ticket{cost: cost, at: t.at, mark: plus(stands, minus(t.mark, m.standing(t, m.since)))}
}

func (m *intervalModel) left(now store.Now) (int64, time.Duration) {
	m.flow(now)
	return max(0, m.tokens), m.until(now, m.capacity)
}
