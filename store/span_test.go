package store_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// The one property that all the others serve: over no span does more pass than
// the rule allows, whatever is reserved, cancelled, refunded or turns out
// dearer. All pairs of charges are looked at, by what they truly cost.

// spent is an admitted charge, and when it runs. What a charge turned out to
// cost more is spent of its own, when it becomes known.
type spent struct {
	op    int
	run   int64 // microseconds
	cost  int64
	extra bool
	late  bool // its turn was rounded up to a tick
}

// allowed is how much a rule lets pass in [from, to], both included.
func allowed(r rule, tick, from, to int64) int64 {
	s := r.limit.Spec()
	burst := max(s.Burst, 0)
	switch s.Algorithm {
	case store.LeakyBucket:
		burst++
		fallthrough
	case store.TokenBucket:
		span := floorTo(to, tick) - floorTo(from, tick)
		return burst + floor(times(big.NewRat(s.Units, s.Period.Microseconds()), rat(span)))
	case store.IntervalBucket, store.FixedWindow:
		// As many ends of periods as fit in, wherever the first one is.
		ends := int64(0)
		if r.bounds == nil {
			ends = (to-from)/s.Period.Microseconds() + 1
		} else {
			for _, end := r.bounds(from); end <= to; _, end = r.bounds(end) {
				if ends++; ends > 1000 {
					return 1 << 62
				}
			}
		}
		if s.Algorithm == store.FixedWindow {
			burst = s.Units
		}
		if times(rat(ends), rat(s.Units)).Cmp(rat(1<<61)) > 0 {
			return 1 << 62
		}
		return burst + ends*s.Units
	case store.WarmUp:
		span := floorTo(to, tick) - floorTo(from, tick)
		return floor(times(big.NewRat(s.Units, s.Period.Microseconds()), rat(span)))
	case store.SlidingCounter: // half as much again in half a window, behind a burst
		share := times(rat(to-from), big.NewRat(s.Units, s.Period.Microseconds()))
		return s.Units + floor(share.Add(share, big.NewRat(1, 2)))
	case store.SlidingLog:
		if to-from < s.Period.Microseconds() {
			return s.Units
		}
	case store.SlidingWindow:
		if bucketOf(s, to)-bucketOf(s, from) < s.Buckets {
			return s.Units
		}
	default:
		panic("no bound of " + s.Algorithm.String())
	}
	return 1 << 62
}

// bucketOf is the number of a SlidingWindow's bucket.
func bucketOf(s store.Spec, at int64) int64 {
	return floor(times(rat(floorTo(at, bucketTick(s))), big.NewRat(s.Buckets, s.Period.Microseconds())))
}

// lands is where a debt counts that becomes known at now, of a charge that ran at run: now,
// or with the charge if a sliding window or log still holds that.
func lands(r rule, run, now int64) int64 {
	s := r.limit.Spec()
	if s.Algorithm == store.SlidingLog && run+s.Period.Microseconds() > now ||
		s.Algorithm == store.SlidingWindow && bucketOf(s, now)-bucketOf(s, run) < s.Buckets {
		return run
	}
	return now
}

// over reports a span that contains at and has more in it than is allowed.
// prepaid limits admit a charge before it is paid for: the last one of a span
// does not count.
func overspent(r rule, tick int64, all []spent, at int) error {
	prepaid := r.limit.Spec().Debt || r.limit.Algorithm() == store.WarmUp
	// A debt is gone with its window, or with the one after.
	gone := r.limit.Algorithm() == store.FixedWindow || r.limit.Algorithm() == store.SlidingCounter
	for i := range all {
		if all[i].run > all[at].run {
			continue
		}
		for j := range all {
			to := all[j]
			if to.run < all[at].run || to.extra || to.cost == 0 {
				continue
			}
			var sum, slack int64
			for k, s := range all {
				if s.run < all[i].run || s.run > to.run || s.run == to.run && k > j {
					continue
				}
				if prepaid && k == j || s.extra && (gone || promised(all, s, to.run)) {
					continue
				}
				sum += s.cost
				if s.late {
					slack = tick // by less than which it came too late
				}
			}
			if most := allowed(r, tick, all[i].run, to.run+slack); sum > most {
				return fmt.Errorf("%d pass in [%d, %d], where %d may", sum, all[i].run, to.run, most)
			}
		}
	}
	return nil
}

// promised tells whether a turn in (debt.run, to] was told before the debt was known:
// it is kept all the same.
func promised(all []spent, debt spent, to int64) bool {
	return slices.ContainsFunc(all, func(s spent) bool {
		return s.late && s.op < debt.op && s.run > debt.run && s.run <= to
	})
}

// TestNoSpanAdmitsMore draws, charges, reserves and settles at random. Debts
// (settling up) are drawn in traces in which no call waits: a turn that has been
// promised is kept, whatever the others turn out to cost.
func TestNoSpanAdmitsMore(t *testing.T) {
	t.Parallel()
	checked := 0
	for s := range traces(t, 3000) {
		d := seed(s)
		r := drawRule(d, oneOf(d, rates...))
		debts := d.roll(2) == 0
		if !spendable(r, debts) {
			continue
		}
		if err := spendAll(d, r, debts, &checked, drawOp); err != nil {
			t.Fatalf("seed %d: %v, debts %v: %v", s, r, debts, err)
		}
	}
	enough(t, checked)
}

// spendable tells whether a limit can be drawn for the traces with or without
// debts: nothing is owed for longer than a year.
func spendable(r rule, debts bool) bool {
	s := r.limit.Spec()
	return !debts || s.Queue <= 0 && !s.Debt && s.Period/time.Duration(s.Units) <= 24*time.Hour
}

func spendAll(d dice, r rule, debts bool, checked *int, draw func(dice, *bench, int) op) error {
	b := newBench([]rule{r}, d.roll(years), d.roll(20*years))
	tick := b.tick(0)
	m := b.attempts(0)
	shift := m.now.Wall - m.now.Steady
	var all []spent
	receipts := map[int]store.Receipt{}
	var open []int
	trail := ""
	for id := range int(5 + d.roll(25)) {
		o := draw(d, b, id)
		if m.now.Steady+o.step > 15*years || o.settle != nil {
			continue
		}
		m.sleep(micros(o.step))
		m.now.Wall = m.now.Steady + shift
		b.now = m.now
		b.states[0] = m.state
		if len(open) > 0 && d.roll(3) == 0 {
			op := oneOf(d, open...)
			cost := oneOf(d, 0, 0, d.roll(receipts[op].Cost+1))
			if debts && d.roll(2) == 0 {
				cost = receipts[op].Cost + 1 + d.roll(5)
			}
			for _, s := range all {
				if s.op == op && s.run > m.instant(r) {
					cost = 0 // one that waits can only give up
				}
			}
			trail += fmt.Sprintf("\n  at %d settle #%d (%+v) to %d", m.now.Steady, op, receipts[op], cost)
			all = settleSpent(r, all, op, cost, m.instant(r))
			receipts[op] = m.settle(receipts[op], cost)
			continue
		}
		c := o.charges[0]
		if debts {
			c.maxWait = 0
			if r.limit.Algorithm() == store.WarmUp {
				c.cost = min(c.cost, 100) // what is prepaid is owed as well
			}
		}
		if sp := r.limit.Spec(); sp.Queue > 0 {
			// More than passes at once has its turn when the last of it may go.
			c.cost = min(c.cost, max(sp.Burst, 0)+map[bool]int64{true: 1}[sp.Algorithm == store.LeakyBucket])
		}
		res := m.take(c.cost, c.maxWait)
		b.last[0] = res
		if !res.OK || c.cost == 0 {
			continue
		}
		trail += fmt.Sprintf("\n  at %d #%d cost %d delay %v", m.now.Steady, id, c.cost, res.Delay)
		run := m.instant(r)
		if res.Delay > 0 { // from the beginning of a tick
			run = floorTo(run, tick) + res.Delay.Microseconds()
		}
		all = append(all, spent{op: id, run: run, cost: c.cost, late: res.Delay > 0})
		receipts[id] = res.Receipt
		open = append(open, id)
		*checked++
		if err := overspent(r, tick, all, len(all)-1); err != nil {
			return fmt.Errorf("%w%s", err, trail)
		}
	}
	return nil
}

// isBucket tells whether a charge on a limit is given back by time.
func isBucket(r rule) bool {
	switch r.limit.Algorithm() {
	case store.TokenBucket, store.LeakyBucket, store.IntervalBucket, store.WarmUp:
		return true
	}
	return false
}

func (m *meter) instant(r rule) int64 {
	if r.bounds != nil {
		return m.now.Wall
	}
	return m.now.Steady
}

// settleSpent makes a charge cost something else: what is less is taken off
// the debt first.
func settleSpent(r rule, all []spent, op int, cost, now int64) []spent {
	sum, run := int64(0), now
	for _, s := range all {
		if s.op == op {
			if sum += s.cost; s.cost > 0 {
				run = lands(r, s.run, now)
			}
		}
	}
	if cost > sum {
		return append(all, spent{op: op, run: run, cost: cost - sum, extra: true})
	}
	for i := len(all) - 1; i >= 0 && sum > cost; i-- {
		if all[i].op == op {
			less := min(all[i].cost, sum-cost)
			all[i].cost -= less
			sum -= less
		}
	}
	return all
}

// No more slots are held than there are, whoever releases what and how often.
func TestSlotsHeld(t *testing.T) {
	t.Parallel()
	for s := range traces(t, 500) {
		d := seed(s)
		n := 1 + d.roll(10)
		m := newMeter(t, store.Spec{Algorithm: store.Concurrency, Units: n})
		held := map[int]store.Receipt{}
		var spentReceipts []store.Receipt
		for id := range 100 {
			m.sleep(time.Microsecond)
			switch d.roll(3) {
			case 0:
				var sum int64
				for _, r := range held {
					sum += r.Cost
				}
				cost := 1 + d.roll(3)
				r := m.take(cost, 0)
				if r.OK != (sum+cost <= n) {
					t.Fatalf("seed %d: %d of %d held, %d more: %s", s, sum, n, cost, show(r))
				}
				if r.OK {
					held[id] = r.Receipt
				}
			case 1:
				for k, r := range held {
					m.settle(r, 0)
					spentReceipts = append(spentReceipts, r)
					delete(held, k)
					break
				}
			default:
				if len(spentReceipts) > 0 {
					m.settle(oneOf(d, spentReceipts...), 0)
				}
			}
		}
	}
}

// If the wall clock is set back, a calendar limit continues with its count in the
// window that is then: nothing is handed out again until a later window begins, and
// no call is denied for as long as the clock was set back.
func TestWallClockSetBack(t *testing.T) {
	t.Parallel()
	for s := range traces(t, 1000) {
		d := seed(s)
		var r rule
		for r.bounds == nil {
			r = drawRule(d, store.FixedWindow)
		}
		n := r.limit.Spec().Units
		m := &meter{t: t, limit: r.limit}
		m.now.Wall = d.roll(10 * years)
		newest := m.now.Wall
		var passed int64
		start, _ := r.bounds(newest)
		trail := ""
		for range 60 {
			_, end := r.bounds(newest)
			length := end - newest
			m.now.Steady++
			m.now.Wall = newest + oneOf(d, 0, -d.roll(length+1), -d.roll(10*length+1), d.roll(length+1), length, -1)
			newest = max(newest, m.now.Wall)
			cost := 1 + d.roll(min(n, 5))
			res := m.take(cost, 0)
			first, end := r.bounds(m.now.Wall)
			if first > start {
				passed = 0
			}
			start = first
			if res.OK {
				passed += cost
			}
			trail += fmt.Sprintf("\n  at %d (newest %d, window %d) cost %d: %s", m.now.Wall, newest, start, cost, show(res))
			if max(res.RetryAfter, res.ResetAfter) > micros(end-m.now.Wall) && res.RetryAfter != store.Never {
				t.Fatalf("seed %d: %v: longer than the window:%s", s, r, trail)
			}
			if passed > n {
				t.Fatalf("seed %d: %v: %d pass in a window%s", s, r, passed, trail)
			}
		}
	}
}
