package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// A turn that has been told is kept, whatever becomes of those before and behind
// it, and no call is let in beside it. So what is refunded while others wait is
// looked at here by what runs when: charges that wait are settled in any order, to
// any cost and more than once, and so are those that have run.

// tightRule has few units, so that every turn meets every other.
func tightRule(d dice) rule {
	n := 1 + d.roll(3)
	s := store.Spec{Name: "limit", Units: n, Period: time.Duration(n) * time.Second}
	s.Algorithm = oneOf(d, store.TokenBucket, store.TokenBucket, store.LeakyBucket, store.LeakyBucket,
		store.IntervalBucket, store.IntervalBucket, store.FixedWindow, store.SlidingWindow, store.SlidingCounter, store.SlidingLog, store.WarmUp)
	switch s.Algorithm {
	case store.TokenBucket:
		s.Burst = 1 + d.roll(6)
		s.Debt = d.roll(4) == 0
		s.Queue = oneOf[int64](d, 0, 20)
	case store.LeakyBucket:
		s.Burst, s.Queue = oneOf(d, store.None, store.None, 1+d.roll(5)), 20
	case store.IntervalBucket:
		s.Burst = 1 + d.roll(8)
	case store.FixedWindow, store.SlidingCounter, store.SlidingLog:
		s.Units = 1 + d.roll(6)
	case store.SlidingWindow:
		s.Buckets = oneOf[int64](d, 1, 2, 4)
		s.Units, s.Period = 1+d.roll(6), 4*time.Second
	case store.WarmUp:
		s.WarmUp = 4 * time.Second
	}
	l, err := store.NewLimit(s)
	if err != nil {
		panic(err)
	}
	return rule{limit: l}
}

// What a refund leaves of a charge larger than what passes at once goes when the whole
// charge was to go, and the next one behind it, not beside it.
func TestRestOfLargeChargeKeepsItsTurn(t *testing.T) {
	for _, s := range []store.Spec{
		{Algorithm: store.LeakyBucket, Units: 1, Period: time.Second, Queue: 9},
		{Algorithm: store.TokenBucket, Units: 1, Period: time.Second, Burst: 1, Queue: 9},
	} {
		for _, behind := range []time.Duration{0, 1} {
			m := newMeter(t, s)
			large := m.must(3) // goes at 2s
			if behind > 0 {
				m.must(1) // goes at 3s
			}
			m.settle(large, 1)
			if next, want := m.take(1, 0).Delay, (3+behind)*time.Second; next != want {
				t.Errorf("%v, %d behind: the next goes in %v, want %v", s.Algorithm, behind, next, want)
			}
		}
	}
}

// A charge that waits runs when the charges of its instant have been given back by time. So a refund of one of those
// gives back no more than was in use beside it when it ran.
func TestRefundBesideChargeOfOneInstant(t *testing.T) {
	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 1, Period: time.Second, Burst: 10},
		{Algorithm: store.LeakyBucket, Units: 1, Period: time.Second, Burst: 9, Queue: 20},
		{Algorithm: store.IntervalBucket, Units: 1, Period: time.Second, Burst: 10},
	} {
		for _, between := range []bool{false, true} { // a refund begins the levels between the two charges, or before
			m := newMeter(t, s)
			refunded := m.must(4)
			m.sleep(time.Microsecond)
			m.must(1)
			if !between {
				m.settle(refunded, 0) // it isn't the last
			}
			early := m.must(5)
			if between {
				m.settle(refunded, 0)
			}
			late := m.take(8, time.Minute) // runs when 2 are in use
			if want := 4 * time.Second; late.Delay.Round(time.Second) != want {
				t.Fatalf("%v: %s, want a delay of %v", s.Algorithm, show(late), want)
			}
			m.sleep(late.Delay)
			m.settle(early, 0)
			if passed := 8 + m.take(0, time.Nanosecond).Remaining; passed > 10 {
				t.Errorf("%v, %v: %d of a burst of 10 pass at one instant", s.Algorithm, between, passed)
			}
		}
	}
}

// Several charges of one instant wait, as calls that come to Redis together. When the first of them runs, a charge of
// that instant that didn't wait has been given back by time, and a refund of it gives back no more than is left.
func TestRefundBesideChargesThatWaitOfOneInstant(t *testing.T) {
	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 1, Period: time.Second, Burst: 7},
		{Algorithm: store.LeakyBucket, Units: 1, Period: time.Second, Burst: 6, Queue: 20},
		{Algorithm: store.IntervalBucket, Units: 1, Period: time.Second, Burst: 7},
	} {
		m := newMeter(t, s)
		refunded := m.must(4)
		m.sleep(time.Millisecond)
		m.must(3)
		m.sleep(time.Millisecond)
		m.settle(refunded, 0) // it isn't the last
		m.sleep(2*time.Second - 2*time.Millisecond)
		early := m.must(4)
		late := m.take(6, time.Minute) // runs when 1 is in use
		later := m.take(1, time.Minute)
		if !late.OK || !later.OK || late.Delay.Round(time.Second) != 4*time.Second {
			t.Fatalf("%v: %s, %s", s.Algorithm, show(late), show(later))
		}
		m.sleep(time.Second)
		m.settle(later.Receipt, 0)
		m.sleep(late.Delay - time.Second)
		m.settle(early, 0)
		if passed := 6 + m.take(0, time.Nanosecond).Remaining; passed > 7 {
			t.Errorf("%v: %d of a burst of 7 pass at one instant", s.Algorithm, passed)
		}
	}
}

// So it is if a debt is made at the instant of a charge that waits.
func TestRefundBesideDebtOfOneInstant(t *testing.T) {
	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 1, Period: time.Second, Burst: 10},
		{Algorithm: store.IntervalBucket, Units: 1, Period: time.Second, Burst: 10},
	} {
		m := newMeter(t, s)
		refunded, owing, early := m.must(4), m.must(1), m.must(5)
		m.settle(refunded, 0)
		late := m.take(8, time.Minute)
		m.settle(owing, 2)
		m.sleep(late.Delay + time.Second) // so that the debt has been given back by time, and nothing waits
		m.settle(early, 0)
		// 2 were in use beside the late one when it ran.
		if passed := 8 + m.take(0, time.Nanosecond).Remaining; passed > 10 {
			t.Errorf("%v: %d of a burst of 10 pass within a second", s.Algorithm, passed)
		}
	}
}

// Charges that don't wait are told apart if they are a microsecond apart, in which a bucket gives back a part of a unit.
func TestDebtTakenBackAMicrosecondLater(t *testing.T) {
	m := newMeter(t, store.Spec{Units: 10, Period: time.Second})
	refunded := m.must(2)
	m.sleep(time.Microsecond)
	m.must(2)
	m.settle(refunded, 0) // it isn't the last
	m.sleep(time.Microsecond)
	receipt := m.must(2)
	m.sleep(time.Microsecond)
	before := m.take(0, 0)
	m.settle(m.settle(receipt, 30), 2)
	if after := m.take(0, 0); after != before {
		t.Errorf("raised to 30 and taken back: %s, was %s", show(after), show(before))
	}
}

// told is a charge that has been told its turn.
type told struct {
	op         int
	run        int64 // microseconds
	cost, base int64 // all of it; without its debts
	debts      []spent
	late       bool
	receipt    store.Receipt
}

func TestNoSpanAdmitsMoreWhateverIsRefunded(t *testing.T) {
	t.Parallel()
	refunds := 0
	for s := range traces(t, 4000) {
		d := seed(s)
		r := tightRule(d)
		m := &meter{t: t, limit: r.limit}
		if err := refundAll(d, r, m, &refunds); err != nil {
			t.Fatalf("seed %d: %v: %v", s, r, err)
		}
	}
	enough(t, refunds)
}

func refundAll(d dice, r rule, m *meter, refunds *int) error {
	spec := r.limit.Spec()
	debts := d.roll(3) == 0
	var all []*told
	trail := ""
	for id := range int(4 + d.roll(16)) {
		m.sleep(time.Duration(oneOf(d, 0, 0, 0, 1, 1, 2, d.roll(8))) * time.Second)
		now := m.now.Steady
		if len(all) > 0 && d.roll(5) < 2 {
			c := oneOf(d, all...)
			cost := oneOf(d, 0, 0, d.roll(c.cost+1))
			if debts && d.roll(3) == 0 {
				cost = c.cost + 1 + d.roll(4)
			} else if c.late && spec.Queue > 0 && c.cost > spec.Burst {
				// More than passes at once has waited for all of it: what is left of it ran
				// later than if it had cost that from the start.
				cost = 0
			}
			trail += fmt.Sprintf("\n  at %ds settle #%d to %d", now/1e6, c.op, cost)
			if back := c.settle(r, m, cost, id); back > 0 && isBucket(r) {
				*refunds++
			}
			trail += fmt.Sprintf(": tat %d, stands for %d", inside.State(&m.state).W[algorithm.Tat]/1e6, c.cost)
			continue
		}
		cost := 1 + d.roll(8)
		res := m.take(cost, time.Duration(oneOf(d, 0, 60, 60, d.roll(10)))*time.Second)
		if !res.OK {
			continue
		}
		trail += fmt.Sprintf("\n  at %ds #%d cost %d delay %v", now/1e6, id, cost, res.Delay)
		all = append(all, &told{op: id, run: now + res.Delay.Microseconds(), cost: cost, base: cost, late: res.Delay > 0, receipt: res.Receipt})
		spent, newest := spentBy(all, spec)
		if err := overspent(r, 1, spent, newest); err != nil {
			return fmt.Errorf("%w%s", err, trail)
		}
	}
	return nil
}

// settle makes c cost something else.
func (c *told) settle(r rule, m *meter, cost int64, op int) (back int64) {
	now, was := m.now.Steady, c.receipt
	c.receipt = m.settle(was, cost)
	if cost > c.cost {
		run := now
		if c.cost > 0 {
			run = lands(r, was.Instant, now) // behind the newest entry, it may be later than its run
		}
		c.debts = append(c.debts, spent{op: op, run: run, cost: cost - c.cost, extra: true})
		c.cost = cost
	}
	back, c.cost = c.cost-cost, cost
	for less := back; less > 0 && len(c.debts) > 0; { // the debts first
		last := &c.debts[len(c.debts)-1]
		off := min(last.cost, less)
		last.cost -= off
		less -= off
		if last.cost == 0 {
			c.debts = c.debts[:len(c.debts)-1]
		}
	}
	c.base = min(c.base, c.cost)
	return back
}

// spentBy returns how much runs when. More than the capacity has its turn when the last of it
// may go: what doesn't fit has come before, one by one.
func spentBy(all []*told, s store.Spec) (out []spent, newest int) {
	capacity := max(s.Burst, 0)
	if s.Algorithm == store.LeakyBucket {
		capacity++
	}
	for _, c := range all {
		newest = len(out)
		at := spent{op: c.op, run: c.run, cost: c.base, late: c.late}
		if s.Queue > 0 && !s.Debt {
			at.cost = min(at.cost, capacity)
		}
		out = append(out, at)
		for i := range c.base - at.cost {
			out = append(out, spent{op: c.op, run: c.run - (i+1)*1e6, cost: 1, late: c.late})
		}
		out = append(out, c.debts...)
	}
	return out, newest
}
