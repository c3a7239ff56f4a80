package store_test

import (
	"math/big"
	"time"

	"github.com/stint-go/stint/store"
)

// counterModel counts windows by their number since the clock began, and looks for an instant at
// which a charge passes by trying.
type counterModel struct {
	n, length int64
	counts    map[int64]int64
}

func newCounterModel(s store.Spec) *counterModel {
	return &counterModel{s.Units, s.Period.Microseconds(), map[int64]int64{}}
}

func (m *counterModel) window(at int64) int64 {
	return floor(big.NewRat(at, m.length))
}

func (m *counterModel) start(window int64) int64 { return window * m.length }

// fits says whether cost fits at an instant: what is covered of the window before, rounded to the nearest
// unit, is prev*(T-e)/T.
func (m *counterModel) fits(at, cost int64) bool {
	w := m.window(at)
	covered := new(big.Rat).Mul(rat(m.counts[w-1]), big.NewRat(m.start(w+1)-at, m.length))
	estimate := floor(covered.Add(covered, big.NewRat(1, 2)))
	return estimate+m.counts[w]+cost <= m.n
}

// turn is the first instant at which cost fits, behind all that is reserved.
func (m *counterModel) turn(at, cost int64) int64 {
	first := m.window(at)
	if m.counts[first+1] > 0 {
		first++
	}
	for w := first; ; w++ {
		from := max(at, m.start(w))
		span := m.start(w+1) - from
		if e := firstThat(span, func(e int64) bool { return m.fits(from+e, cost) }); e < span {
			return from + e
		}
	}
}

func (m *counterModel) look(now store.Now, cost int64, maxWait time.Duration) verdict {
	at, wait := now.Steady, maxWait.Microseconds()
	switch {
	case cost == 0:
		return verdict{ok: true}
	case cost > m.n:
		return verdict{retry: store.Never}
	}
	turn := m.turn(at, cost)
	if wait = min(wait, m.length); turn-at > wait { // no call waits for longer than a window
		return verdict{retry: micros(turn - at - wait)}
	}
	return verdict{ok: true, delay: micros(turn - at)}
}

func (m *counterModel) charge(now store.Now, cost int64, delay time.Duration) ticket {
	w := m.window(now.Steady + delay.Microseconds())
	m.counts[w] += cost
	return ticket{cost: cost, at: w, holds: cost}
}

func (m *counterModel) settle(now store.Now, t ticket, cost int64) ticket {
	w := m.window(now.Steady)
	counts := t.at >= w-1
	if cost > t.cost { // as if it had from the start, while that counts
		if !counts || t.cost == 0 {
			t.at, t.holds = w, 0
		}
		debt := min(cost-t.cost, store.MaxCost-m.counts[t.at])
		m.counts[t.at] += debt
		return ticket{cost: t.cost + debt, at: t.at, holds: t.holds + debt}
	}
	if counts {
		back := min(t.cost-cost, t.holds)
		m.counts[t.at] -= back
		t.holds -= back
	}
	return ticket{cost: cost, at: t.at, holds: t.holds}
}

func (m *counterModel) left(now store.Now, _ time.Duration) (int64, time.Duration, time.Duration) {
	at := now.Steady
	w := m.window(at)
	remaining := int64(0)
	if m.counts[w+1] == 0 && m.fits(at, 0) {
		remaining = firstThat(m.n, func(c int64) bool { return !m.fits(at, c+1) })
	}
	var more time.Duration
	if remaining < m.n {
		more = micros(m.turn(at, remaining+1) - at)
	}
	for last := w + 1; last >= w-1; last-- {
		if m.counts[last] > 0 {
			return remaining, more, micros(m.start(last+2) - at)
		}
	}
	return remaining, more, 0
}

// firstThat is the first number below n for which is holds, as for all after it; n if there
// is none. It is sort.Search, whose int may have 32 bits.
func firstThat(n int64, is func(int64) bool) int64 {
	low := int64(0)
	for low < n {
		if mid := low + (n-low)/2; is(mid) {
			n = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
