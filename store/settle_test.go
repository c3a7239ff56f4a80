package store_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// meter drives one limit on one key by hand.
type meter struct {
	t     *testing.T
	limit *store.Limit
	state store.State
	now   store.Now
}

func newMeter(t *testing.T, s store.Spec) *meter {
	t.Helper()
	s.Name = "limit"
	l, err := store.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return &meter{t: t, limit: l}
}

func (m *meter) sleep(d time.Duration) {
	m.now.Steady += d.Microseconds()
	m.now.Wall += d.Microseconds()
}

func (m *meter) take(cost int64, maxWait time.Duration) store.Result {
	m.now.Lease = store.Lease(uint64(m.now.Steady) + 1)
	states, results := []store.State{m.state}, make([]store.Result, 1)
	store.Decide(m.now, []store.Charge{{Key: "k", Limit: m.limit, Cost: cost, MaxWait: maxWait}}, states, results)
	m.state = states[0]
	return results[0]
}

// must takes what has to pass.
func (m *meter) must(cost int64) store.Receipt {
	m.t.Helper()
	r := m.take(cost, 0)
	if !r.OK {
		m.t.Fatalf("%v at %d: cost %d denied: %+v", m.limit.Algorithm(), m.now.Steady, cost, r)
	}
	return r.Receipt
}

func (m *meter) settle(r store.Receipt, cost int64) store.Receipt {
	var result store.Result
	store.Amend(m.now, &store.Charge{Key: "k", Limit: m.limit, Cost: cost, Receipt: r}, &m.state, &result)
	return result.Receipt
}

func (m *meter) left(want int64) {
	m.t.Helper()
	if r := m.take(0, 0); r.Remaining != want {
		m.t.Fatalf("%v at %d: %d remain, want %d", m.limit.Algorithm(), m.now.Steady, r.Remaining, want)
	}
}

// A charge that was raised and then cancelled gives back its debt and what still stands
// of itself, never what others have been charged since.
func TestSettleUpAndBackFreesNothingOfOthers(t *testing.T) {
	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 1, Period: time.Second, Burst: 10},
		{Algorithm: store.LeakyBucket, Units: 1, Period: time.Second, Burst: 9, Queue: store.None},
		{Algorithm: store.IntervalBucket, Units: 5, Period: 5 * time.Second, Burst: 10},
		{Algorithm: store.FixedWindow, Units: 10, Period: 5 * time.Second},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Every(5 * time.Second)},
		{Algorithm: store.SlidingWindow, Units: 10, Period: 5 * time.Second},
		{Algorithm: store.SlidingLog, Units: 10, Period: 5 * time.Second},
	} {
		m := newMeter(t, s)
		mine := m.must(5)
		m.sleep(5 * time.Second) // time has given it back
		m.must(4)
		m.left(6)
		mine = m.settle(mine, 7)
		m.left(4)
		m.settle(mine, 0)
		m.left(6)
	}
}

// For a prepaid rate or a warm one, the next turn is where the others have left it.
func TestSettleUpAndBackKeepsTheTurnsOfOthers(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.WarmUp, Units: 1, Period: time.Second, WarmUp: 4 * time.Second})
	mine := m.must(1)
	m.take(1, time.Hour)
	next := m.take(1, 0).RetryAfter
	m.settle(m.settle(mine, 3), 0)
	if got := m.take(1, 0).RetryAfter; got < next {
		t.Fatalf("next turn in %v, was in %v", got, next)
	}
}

// A cancelled charge leaves no window open: the next charge opens its own, and a store
// that has dropped the key answers the same.
func TestCancelledChargeOpensNoWindow(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.FixedWindow, Units: 2, Period: 10 * time.Second})
	m.settle(m.must(2), 0)
	if r := m.take(0, 0); r.Remaining != 2 || r.ResetAfter != 0 {
		t.Fatalf("after a cancelled charge: %+v", r)
	}
	m.sleep(9 * time.Second)
	m.must(2)
	m.sleep(time.Second)
	if r := m.take(1, 0); r.OK || r.RetryAfter != 9*time.Second {
		t.Fatalf("a second in the window: %+v", r)
	}
}

// A debt never takes anything back, neither on a limit with less than one unit a year
// nor behind a queue of more than a year.
func TestDebtOfSlowLimits(t *testing.T) {
	const year = 365 * 24 * time.Hour
	m := newMeter(t, store.Spec{Algorithm: store.TokenBucket, Units: 1, Period: 2 * year, Burst: 3})
	m.settle(m.must(1), 3)
	m.left(0)

	m = newMeter(t, store.Spec{Algorithm: store.LeakyBucket, Units: 10, Period: 2 * year, Queue: 10})
	first := m.must(1)
	for range 10 {
		m.must(1)
	}
	m.left(0)
	m.settle(first, 2)
	m.left(0)

	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 1, Period: 2 * year, Burst: 3, Debt: true},
		{Algorithm: store.WarmUp, Units: 1, Period: 2 * year, WarmUp: time.Minute},
	} {
		m = newMeter(t, s)
		m.must(1)
	}
	newMeter(t, store.Spec{Algorithm: store.TokenBucket, Units: 1, Period: 2 * year, Burst: 3, Debt: true}).must(3)
}

// More than a time.Duration can hold is rejected at construction.
func TestCapacityOfCenturies(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, s := range []store.Spec{
		{Name: "x", Units: 1, Period: year, Burst: 300},
		{Name: "x", Units: 10, Period: 2 * year, Burst: 10, Queue: 2000},
	} {
		if l, err := store.NewLimit(s); err == nil {
			states, results := make([]store.State, 1), make([]store.Result, 1)
			store.Decide(store.Now{}, []store.Charge{{Limit: l, Cost: s.Burst}}, states, results)
			t.Errorf("burst %d of 1 a year: no error; %+v", s.Burst, results[0])
		}
	}
}

// A refund before a turn doesn't find the bucket full when that turn's interval ends, and
// take what the turn costs along.
func TestRefundBeforeATurnOfAnInterval(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.IntervalBucket, Units: 4, Period: time.Hour})
	first := m.must(4)
	if r := m.take(1, time.Hour); !r.OK || r.Delay != time.Hour {
		t.Fatal(show(r))
	}
	m.settle(first, 0)
	m.sleep(time.Hour)
	m.left(3)
}

// A charge of another version may have cost more than this one ever lets pass: cancelling
// it leaves the key as never used, not in an overflow.
func TestCancelAnotherVersionsCharge(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.WarmUp, Units: 5, Period: time.Minute, WarmUp: 328237385235 * time.Microsecond}) // wide
	mine := m.must(100_000)
	mine.Cost, mine.Instant = 28937507505, 60_000_000
	m.settle(mine, 0)
	if r := m.take(0, 0); r.ResetAfter != 0 || inside.State(&m.state).Live {
		t.Errorf("after a cancelled charge: %s, %+v", show(r), m.state)
	}
}

// However often a charge is settled, it costs in the end what it was settled to last.
func TestSettledOftenIsSettledOnce(t *testing.T) {
	for _, s := range []store.Spec{
		{Units: 1, Period: time.Hour, Burst: 20},
		{Units: 1, Period: time.Hour, Burst: 20, Debt: true},
		{Algorithm: store.LeakyBucket, Units: 1, Period: time.Hour, Burst: 19, Queue: store.None},
		{Algorithm: store.IntervalBucket, Units: 1, Period: time.Hour, Burst: 20},
		{Algorithm: store.IntervalBucket, Units: 1, Window: store.Daily, Burst: 20},
		{Algorithm: store.FixedWindow, Units: 20, Period: time.Hour},
		{Algorithm: store.FixedWindow, Units: 20, Window: store.Daily},
		{Algorithm: store.SlidingWindow, Units: 20, Period: time.Hour},
		{Algorithm: store.SlidingLog, Units: 20, Period: time.Hour},
		{Algorithm: store.SlidingCounter, Units: 20, Period: time.Hour},
		{Algorithm: store.WarmUp, Units: 1, Period: time.Second, WarmUp: time.Minute},
		{Algorithm: store.Concurrency, Units: 20},
	} {
		rate := s.Burst > 0 || s.Algorithm == store.WarmUp // what has drained isn't given back
		for seed := range uint64(200) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			costs := []int64{4, 6, 3}
			if seed > 0 {
				costs = costs[:0]
				for range 1 + rnd.IntN(6) {
					costs = append(costs, 1+rnd.Int64N(8))
				}
				if s.Algorithm != store.WarmUp && s.Algorithm != store.Concurrency && rnd.IntN(3) == 0 {
					costs = append(costs, 0)
				}
			}
			others := rnd.Int64N(3)
			play := func(costs ...int64) store.Result {
				m := newMeter(t, s)
				m.sleep(72 * time.Hour)
				mine := m.must(2)
				if !rate {
					m.sleep(10 * time.Minute)
				}
				m.take(others, 0)
				for _, cost := range costs {
					mine = m.settle(mine, cost)
				}
				return m.take(0, 0)
			}
			often, once := play(costs...), play(costs[len(costs)-1])
			if often != once {
				t.Fatalf("%v %v, settled to %v: %s; at once: %s", s.Algorithm, s.Window, costs, show(often), show(once))
			}
			if want := 17 - others; seed == 0 && s.Algorithm != store.WarmUp && often.Remaining != want {
				t.Errorf("%v %v, settled to %v: %d left, want %d", s.Algorithm, s.Window, costs, often.Remaining, want)
			}
		}
	}
}

// Under pressure, at least nine tenths of what is settled down come back: of the most that
// could, in a bucket from which each of 40 streams takes more than it needs. That holds while
// a bucket is in debt, too.
func TestRefundsUnderPressure(t *testing.T) {
	for _, debt := range []bool{false, true} {
		for _, up := range []bool{false, true} {
			m := newMeter(t, store.Spec{Units: 1000, Period: time.Second, Burst: 2000, Debt: debt})
			rnd := rand.New(rand.NewPCG(3, 4))
			var open []store.Receipt
			var consumed int64
			for range 20_000 {
				m.sleep(time.Duration(rnd.Int64N(20)) * time.Millisecond)
				if len(open) < 40 && rnd.IntN(2) == 0 {
					if r := m.take(50+rnd.Int64N(250), 0); r.OK {
						open = append(open, r.Receipt)
					}
					continue
				}
				if len(open) == 0 {
					continue
				}
				i := rnd.IntN(len(open))
				cost := rnd.Int64N(open[i].Cost + 1)
				if up && rnd.IntN(5) == 0 {
					cost = open[i].Cost * (1 + rnd.Int64N(4))
				}
				m.settle(open[i], cost)
				consumed += cost
				open = slices.Delete(open, i, i+1)
			}
			// The rate is used up: refunds that are lost would be missing.
			if rate := float64(consumed) / (float64(m.now.Steady) / 1e6); rate < 980 || rate > 1020 {
				t.Errorf("debt %v, settled up %v: %.0f a second are consumed, want 1000", debt, up, rate)
			}
		}
	}
}

// What of a charge has drained before it was refunded isn't refunded by a later settlement, even if the clock was
// set back in between.
func TestDrainedUnitsStayDrained(t *testing.T) {
	l, err := store.NewLimit(store.Spec{Name: "a", Units: 1, Period: time.Millisecond, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	states, results := make([]store.State, 1), make([]store.Result, 1)
	settle := func(at int64, receipt store.Receipt, cost int64) store.Receipt {
		store.Amend(store.Now{Steady: at}, &store.Charge{Limit: l, Cost: cost, Receipt: receipt}, &states[0], &results[0])
		return results[0].Receipt
	}
	take := func(at, cost int64) store.Receipt {
		if !store.Decide(store.Now{Steady: at}, []store.Charge{{Limit: l, Cost: cost}}, states, results) {
			t.Fatalf("denied at %d", at)
		}
		return results[0].Receipt
	}
	first := settle(10_800, take(10_000, 1), 0) // 0.8 have drained
	take(10_500, 3)                             // by a clock that was set back
	settle(11_500, settle(10_500, first, 5), 0) // 1 of 8 has drained, and 4 are refunded
	if left := results[0].ResetAfter; left != 3*time.Millisecond {
		t.Errorf("the other charge has %v in use, not 3ms", left)
	}
}
