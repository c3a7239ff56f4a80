package store_test

import (
	"math/big"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// warmUpModel is the curve of a rate that is a third of itself when cold:
// permits are stored while no call comes, and a stored permit takes the longer
// the more of them there are.
type warmUpModel struct {
	interval  *big.Rat // microseconds a permit takes at the full rate
	threshold *big.Rat // permits below which there is no surcharge
	capacity  *big.Rat
	slope     *big.Rat // microseconds more for each permit above threshold
	tick      int64
	perTick   int64 // the units of a tick, by one of which a step may round
	largest   int64

	permits *big.Rat
	free    *big.Rat // the instant at which the next charge can pass
	seen    bool
	off     int64 // units by which a step may be off by now
}

func newWarmUpModel(l *store.Limit) *warmUpModel {
	s := l.Spec()
	warm := s.WarmUp.Microseconds()
	rate, tick := rateOf(l, 1, func(tick, perTick int64) bool {
		return warm%tick == 0 && big.NewRat(warm/tick, 1).Cmp(big.NewRat(1<<46, perTick)) < 0
	})
	m := &warmUpModel{interval: new(big.Rat).Inv(rate), tick: tick, perTick: inside.Terms(l).Scale.PerTick}
	m.threshold = over(rat(warm), times(rat(2), m.interval))
	m.capacity = plus(m.threshold, over(rat(2*warm), times(rat(4), m.interval)))
	m.slope = over(times(rat(2), m.interval), minus(m.capacity, m.threshold))
	m.largest = yearsWorth(rate, tick)
	m.permits, m.free, m.off = m.capacity, new(big.Rat), 1
	return m
}

// cool stores permits for the time in which no call came: a whole warm-up from
// none to all.
func (m *warmUpModel) cool(now store.Now) *big.Rat {
	at := rat(floorTo(now.Steady, m.tick))
	if !m.seen {
		m.free = at
	}
	if at.Cmp(m.free) > 0 {
		idle := over(minus(at, m.free), m.interval)
		m.permits = least(m.capacity, plus(m.permits, idle))
		// A step rounds the end of a series of charges, and with it the length
		// of the pause behind it, by a unit; the price of what is stored in the
		// pause is off by up to three times that, and a unit of its own.
		m.off = 4
		if m.permits.Cmp(m.capacity) == 0 {
			m.off = 1
		}
		m.free = at
	}
	return at
}

// takes is the time that cost permits take.
func (m *warmUpModel) takes(cost int64) (us, stored *big.Rat) {
	stored = least(rat(cost), m.permits)
	fresh := minus(rat(cost), stored)
	above := most(rat(0), minus(m.permits, m.threshold))
	dear := least(above, stored)
	// The mean of the price of the first permit taken and that of the last.
	first := plus(m.interval, times(above, m.slope))
	last := plus(m.interval, times(minus(above, dear), m.slope))
	us = over(times(dear, plus(first, last)), rat(2))
	us = plus(us, times(m.interval, minus(stored, dear)))
	return plus(us, times(m.interval, fresh)), stored
}

// follow takes over where a step stands after a pause. Every pause triples a
// difference, so that without this the two would drift apart however close
// they are in a series of charges.
func (m *warmUpModel) follow(s store.State) {
	if is := inside.State(&s); m.off > 1 && is.Live {
		us := func(units int64) *big.Rat { return times(rat(m.tick), big.NewRat(units, m.perTick)) }
		m.free, m.permits, m.off = us(is.W[algorithm.Free]), over(us(is.W[algorithm.Cold]), m.interval), 1
	}
}

// unit is n of the units in which a step may round, in microseconds.
func (m *warmUpModel) unit(n int64) *big.Rat { return big.NewRat(n*m.tick, m.perTick) }

func (m *warmUpModel) span(us *big.Rat) time.Duration {
	if us.Sign() <= 0 {
		return 0
	}
	return micros(ceilTo(us, m.tick))
}

func (m *warmUpModel) look(now store.Now, cost int64, maxWait time.Duration) verdict {
	at := m.cool(now)
	if cost == 0 {
		return verdict{ok: true}
	}
	if cost > m.largest {
		return verdict{retry: store.Never}
	}
	wait := rat(floorTo(maxWait.Microseconds(), m.tick))
	beyond := minus(minus(m.free, at), wait)
	near := new(big.Rat).Abs(beyond).Cmp(m.unit(m.off)) <= 0
	if beyond.Sign() > 0 {
		return verdict{retry: m.span(beyond), near: near}
	}
	return verdict{ok: true, delay: m.span(minus(m.free, at)), near: near}
}

func (m *warmUpModel) charge(now store.Now, cost int64, _ time.Duration) ticket {
	m.cool(now)
	m.seen = true
	us, stored := m.takes(cost)
	m.permits = minus(m.permits, stored)
	m.free = plus(m.free, us)
	// Squares double the digits at every turn from cold to hot; a picosecond is
	// far below any unit.
	ps := times(m.free, rat(1_000_000))
	m.free.SetFrac(new(big.Int).Div(ps.Num(), ps.Denom()), big.NewInt(1_000_000))
	return ticket{cost: cost}
}

func (m *warmUpModel) settle(store.Now, ticket, int64) ticket { panic("see the properties") }

func (m *warmUpModel) left(now store.Now, _ time.Duration) (int64, time.Duration, time.Duration) {
	at := m.cool(now)
	cold := times(minus(m.capacity, m.permits), m.interval)
	reset := m.span(plus(minus(m.free, at), cold))
	if m.free.Cmp(at) > 0 {
		return 0, m.span(minus(m.free, at)), reset
	}
	one, _ := m.takes(1)
	return 1, m.span(one), reset
}

// leaseModel is a set of leases.
type leaseModel struct {
	n    int64
	held map[store.LeaseID]int64
}

func (m *leaseModel) sum() (sum int64) {
	for _, c := range m.held {
		sum += c
	}
	return sum
}

func (m *leaseModel) look(_ store.Now, cost int64, _ time.Duration) verdict {
	switch {
	case cost == 0:
		return verdict{ok: true}
	case cost > m.n:
		return verdict{retry: store.Never}
	}
	return verdict{ok: m.sum()+cost <= m.n}
}

func (m *leaseModel) charge(now store.Now, cost int64, _ time.Duration) ticket {
	m.held[now.Lease] = cost
	return ticket{cost: cost, lease: now.Lease}
}

func (m *leaseModel) settle(_ store.Now, t ticket, cost int64) ticket {
	if _, ok := m.held[t.lease]; ok && cost == 0 {
		delete(m.held, t.lease)
	}
	return ticket{cost: cost, lease: t.lease}
}

func (m *leaseModel) left(store.Now, time.Duration) (int64, time.Duration, time.Duration) {
	return max(0, m.n-m.sum()), 0, 0
}
