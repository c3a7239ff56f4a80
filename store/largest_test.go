package store_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

const year = 365 * 24 * time.Hour

// largest are limits whose numbers are the largest that NewLimit takes, or make
// the largest products with others: units, token, span, capacity, queue.
var largest = []store.Spec{
	{Units: 1, Period: time.Minute},
	{Units: 1, Period: 2 * year},
	{Units: 1, Period: 2 * year, Debt: true},
	{Units: 1, Period: time.Microsecond, Debt: true},
	{Units: 14, Period: time.Microsecond, Burst: 1 << 35},
	{Units: 1, Period: time.Hour, Burst: 10, Queue: 500_000},
	{Units: 1 << 20, Period: time.Second, Burst: store.MaxCost},
	{Algorithm: store.LeakyBucket, Units: 1, Period: time.Minute, Queue: 1 << 20},
	{Algorithm: store.IntervalBucket, Units: 1, Period: time.Minute},
	{Algorithm: store.IntervalBucket, Units: 1, Period: time.Microsecond, Burst: store.MaxCost},
	{Algorithm: store.IntervalBucket, Units: store.MaxCost, Period: time.Microsecond, Burst: store.MaxCost},
	{Algorithm: store.IntervalBucket, Units: store.MaxCost, Window: store.Every(2 * year)},
	{Algorithm: store.IntervalBucket, Units: store.MaxCost, Window: store.Monthly},
	{Algorithm: store.FixedWindow, Units: store.MaxCost, Period: time.Microsecond},
	{Algorithm: store.FixedWindow, Units: store.MaxCost, Period: 2 * year},
	{Algorithm: store.FixedWindow, Units: store.MaxCost, Window: store.Hourly},
	{Algorithm: store.SlidingLog, Units: store.MaxCost, Period: time.Microsecond},
	{Algorithm: store.SlidingCounter, Units: store.MaxCost, Period: time.Microsecond},
	{Algorithm: store.SlidingLog, Units: store.MaxCost, Period: 2 * year},
	{Algorithm: store.SlidingCounter, Units: store.MaxCost, Period: 2 * year},
	{Algorithm: store.SlidingWindow, Units: store.MaxCost, Period: 10 * time.Microsecond},
	{Algorithm: store.SlidingWindow, Units: store.MaxCost, Period: 2 * year, Buckets: 1000},
	{Algorithm: store.WarmUp, Units: 1, Period: time.Minute, WarmUp: time.Minute},
	{Algorithm: store.WarmUp, Units: 1, Period: 2 * year, WarmUp: time.Second},
	{Algorithm: store.Concurrency, Units: store.MaxCost},
	{Units: store.MaxCost, Period: 86_400 * time.Second},
	{Units: store.MaxCost - 1, Period: 2 * year},
	{Units: store.MaxCost - 1, Period: 2*year - time.Microsecond, Debt: true},
	{Units: 3, Period: 2*year - time.Microsecond, Burst: 5, Queue: 20, Debt: true},
	{Algorithm: store.LeakyBucket, Units: store.MaxCost - 1, Period: 2 * year, Burst: store.MaxCost, Queue: store.MaxCost},
	{Algorithm: store.WarmUp, Units: store.MaxCost - 1, Period: 2 * year, WarmUp: 2 * year},
	{Algorithm: store.WarmUp, Units: 29, Period: 2*year - time.Microsecond, WarmUp: 2*year - time.Microsecond},
}

// sound says what is wrong with an answer, or with the state behind it: every
// word is exact in a double, and no time is below zero or longer than can be.
func (m *meter) sound(r store.Result) error {
	is := inside.State(&m.state)
	words := []int64{max(is.W[1], -is.W[1]), is.W[2], is.Numbers.Token, is.Numbers.Burst, r.Remaining, r.Receipt.Cost, // never negative
		is.W[0], is.W[3], is.W[4], is.Numbers.Unit, r.Receipt.Instant, r.Receipt.Mark}
	for _, e := range is.Log {
		words = append(words, e.At, e.Units)
	}
	for i, w := range words {
		if w <= -1<<53 || w >= 1<<53 || w < 0 && i < 6 {
			return fmt.Errorf("word %d is %d: %s, %+v", i, w, show(r), m.state)
		}
	}
	life := m.limit.Lifetime(m.now, &m.state, &r)
	if min(r.Delay, r.RetryAfter, r.ResetAfter, r.MoreAfter, life) < 0 || r.OK && m.limit.Spec().Queue == 0 && r.Delay > year {
		return fmt.Errorf("lives for %v: %s, %+v", life, show(r), m.state)
	}
	return nil
}

// A charge raised to the largest cost, and then back to its own or to 0, leaves the
// state as it was. An IntervalBucket gives back nothing while more than its capacity is in use.
func TestUpToTheLargestAndBack(t *testing.T) {
	for _, s := range largest {
		if s.Algorithm == store.IntervalBucket {
			continue
		}
		for _, first := range []int64{1, 2} {
			m := newMeter(t, s)
			m.sleep(time.Hour)
			fresh := m.take(0, 0)
			r := m.take(min(first, max(s.Burst, s.Units)), 0)
			if !r.OK {
				continue // two of one
			}
			charged := m.take(0, 0)
			for _, to := range []struct {
				cost int64
				want store.Result
			}{{r.Receipt.Cost, charged}, {0, fresh}} {
				if to.cost == 0 && s.Algorithm == store.WarmUp {
					continue // its first price is known until it is settled
				}
				receipt := r.Receipt
				for range 3 {
					receipt = m.settle(receipt, store.MaxCost)
					if err := m.sound(m.take(0, 0)); err != nil {
						t.Fatalf("%+v at the most: %v", s, err)
					}
					receipt = m.settle(receipt, to.cost)
				}
				if got := m.take(0, 0); got != to.want {
					t.Errorf("%+v: up and back to %d leaves %s, was %s", s, to.cost, show(got), show(to.want))
				}
				r.Receipt = receipt
			}
		}
	}
}

// As many of the largest charges as may wait, and debts of the largest size, are
// counted to the unit.
func TestReserveTheLargest(t *testing.T) {
	for _, s := range largest {
		m := newMeter(t, s)
		m.sleep(time.Hour)
		var turn time.Duration
		for i := range 20_000 {
			cost := max(inside.Terms(m.limit).Largest, 1)
			if i%100 == 99 {
				if r := m.take(1, math.MaxInt64); r.OK {
					m.settle(r.Receipt, store.MaxCost)
				}
			}
			r := m.take(cost, math.MaxInt64)
			if err := m.sound(r); err != nil {
				t.Fatalf("%+v, charge %d: %v", s, i, err)
			}
			if !r.OK {
				if r.RetryAfter == 0 && s.Algorithm != store.Concurrency {
					t.Fatalf("%+v, charge %d: %s", s, i, show(r))
				}
				break
			}
			if r.Delay < turn || r.Delay == turn && i > 0 && i%100 > 0 && turn > 0 {
				t.Fatalf("%+v, charge %d: its turn comes in %v, that of the one before in %v", s, i, r.Delay, turn)
			}
			turn = r.Delay
		}
	}
}

// FuzzLargest reads a limit and what happens to it as numbers of any size, of
// which the corpus has the largest. Nothing overflows, and settling up and down
// again gives no one anything.
func FuzzLargest(f *testing.F) {
	everything := make([]byte, 0, 128)
	for i := range byte(64) {
		everything = append(everything, i, i*37)
	}
	for _, s := range largest {
		period := s.Period.Microseconds()
		if length, _, ok := inside.Fixed(s.Window); ok {
			period = length
		}
		for _, cost := range []int64{1, 5, store.MaxCost} {
			f.Add(uint8(s.Algorithm), s.Units, period, s.Burst, s.Queue, s.WarmUp.Microseconds(), s.Debt, cost, int64(store.MaxCost), everything)
			f.Add(uint8(s.Algorithm), s.Units, period, s.Burst, s.Queue, s.WarmUp.Microseconds(), s.Debt, cost, int64(store.MaxCost-1), []byte("\x01\x01\x04\x05\x04\x00"))
		}
	}
	f.Fuzz(func(t *testing.T, algorithm uint8, units, period, burst, queue, warm int64, debt bool, cost, dear int64, ops []byte) {
		s := store.Spec{Name: "x", Algorithm: store.Algorithm(algorithm), Units: units, Period: micros(period % (1 << 50)),
			Burst: burst, Queue: queue, WarmUp: micros(warm % (1 << 50)), Debt: debt}
		if s.Algorithm == store.Concurrency {
			s.Period = 0
		}
		l, err := store.NewLimit(s)
		if err != nil || s.Algorithm == store.Ban {
			return
		}
		if err := playLargest(&meter{limit: l}, max(0, min(cost, store.MaxCost)), max(0, min(dear, store.MaxCost)), ops); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	})
}

// playLargest reads an operation in two bytes: what, and with which number.
func playLargest(m *meter, cost, dear int64, ops []byte) error {
	m.now.Steady = time.Hour.Microseconds()
	period := max(m.limit.Spec().Period, time.Microsecond)
	amounts := []int64{0, 1, cost, min(inside.Terms(m.limit).Largest, store.MaxCost), dear, store.MaxCost, store.MaxCost - 1}
	waits := []time.Duration{0, 1, time.Microsecond, period, year, math.MaxInt64}
	var made []store.Receipt
	for ; len(ops) >= 2; ops = ops[2:] {
		what, n := ops[0]%6, int(ops[1])
		amount, wait := amounts[n%len(amounts)], waits[n/len(amounts)%len(waits)]
		switch {
		case what < 3:
			m.now.Steady++ // leases are told apart by it
			r := m.take(amount, wait)
			if err := m.sound(r); err != nil {
				return fmt.Errorf("cost %d, wait %v: %w", amount, wait, err)
			}
			if r.Receipt.Cost > 0 {
				made = append(made, r.Receipt)
			}
		case what == 3 && m.now.Steady < 5*years:
			m.sleep([]time.Duration{1000, period, m.take(0, 0).ResetAfter / 2, m.take(0, 0).ResetAfter, year}[n%5].Truncate(time.Microsecond))
			m.now.Steady = min(m.now.Steady, 6*years)
		case len(made) > 0:
			receipt := &made[n%len(made)]
			before := m.take(0, 0)
			if what == 4 { // up, and down again
				back := receipt.Cost
				*receipt = m.settle(m.settle(*receipt, max(amount, back)), back)
			} else {
				*receipt = m.settle(*receipt, amount)
			}
			after := m.take(0, 0)
			if err := m.sound(after); err != nil {
				return fmt.Errorf("settled to %d: %w", amount, err)
			}
			if what == 4 && (after.Remaining > before.Remaining || after.ResetAfter < before.ResetAfter) {
				return fmt.Errorf("up to %d and back: %s, was %s", amount, show(after), show(before))
			}
		}
	}
	return nil
}
