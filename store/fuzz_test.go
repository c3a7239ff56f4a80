package store_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// The fuzzers read limits and traces from bytes, a few for each call, and run
// them against the models (or, where no model says it to the integer, against
// the rule of spans). A failure prints the trace, cut down.

func FuzzTokenBucket(f *testing.F) {
	fuzz(f, store.TokenBucket, store.LeakyBucket)
}

func FuzzWindows(f *testing.F) {
	fuzz(f, store.FixedWindow, store.SlidingWindow, store.SlidingCounter, store.SlidingLog, store.IntervalBucket)
}

func FuzzWarmUp(f *testing.F) {
	fuzz(f, store.WarmUp)
}

func FuzzSeveralLimits(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &bytesDice{b}
		rules := make([]rule, 2+d.roll(3))
		for i := range rules {
			r, ok := readRule(d, algorithms)
			if !ok {
				return
			}
			rules[i] = r
		}
		runBytes(t, d, rules)
	})
}

// FuzzSettle reserves, refunds and goes into debt, and checks every span.
func FuzzSettle(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 500 {
			return // what it does grows with the cube of the charges
		}
		d := &bytesDice{b}
		debts := d.roll(2) == 0
		r, ok := readRule(d, rates) // slots have spans of their own
		if !ok || !spendable(r, debts) {
			return
		}
		checked := 0
		if err := spendAll(d, r, debts, &checked, readOp); err != nil {
			t.Fatalf("%v, debts %v: %v", r, debts, err)
		}
	})
}

func fuzz(f *testing.F, as ...store.Algorithm) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &bytesDice{b}
		if r, ok := readRule(d, as); ok {
			runBytes(t, d, []rule{r})
		}
	})
}

// seeds are starting points: every algorithm and kind of call in a few bytes.
func seeds(f *testing.F) {
	for n := range uint64(8) {
		d := seed(n)
		b := make([]byte, 40+30*n)
		for i := range b {
			b[i] = byte(d.roll(256))
		}
		f.Add(b)
	}
	f.Add([]byte("0000000000000000000000000000"))
	f.Add([]byte{})
}

func runBytes(t *testing.T, d *bytesDice, rules []rule) {
	start := d.roll(1 << 16)
	b := newBench(rules, start, 0)
	var ops []op
	for id := 0; id < 100 && !d.done() && b.now.Steady < 15*years; id++ {
		o := readOp(d, b, id)
		ops = append(ops, o)
		if err := b.run(o); err != nil {
			report(t, rules, start, 0, ops, err)
		}
	}
}

// readRule reads a limit in six bytes or so.
func readRule(d dice, as []store.Algorithm) (rule, bool) {
	size := func() int64 { return oneOf[int64](d, 1, 2, 3, 5, 7, 10, 60, 100, 365, 999, 7000, 1_000_000) }
	s := store.Spec{Name: "limit", Algorithm: as[d.roll(int64(len(as)))], Units: size()}
	s.Period = oneOf(d, time.Second, time.Minute, time.Hour, 24*time.Hour, 365*24*time.Hour, 100*time.Millisecond,
		7*time.Second, time.Microsecond, 13*time.Microsecond, 999*time.Millisecond, 1_000_003*time.Microsecond)
	flags := d.roll(256)
	burst, queue := oneOf(d, 0, store.None, size(), s.Units+1), oneOf(d, 0, store.None, size())
	r := rule{}
	switch s.Algorithm {
	case store.TokenBucket:
		s.Burst, s.Queue, s.Debt = burst, queue, flags&3 == 0
	case store.LeakyBucket:
		s.Burst, s.Queue = burst, queue
	case store.IntervalBucket, store.FixedWindow:
		if s.Algorithm == store.IntervalBucket {
			if s.Burst = burst; burst/s.Units > 50*years/s.Period.Microseconds() {
				return r, false
			}
		}
		if flags&1 == 1 {
			s.Window, r.window, r.bounds = store.Every(s.Period), "every "+s.Period.String(), every(s.Period)
			s.Period = 0
		}
	case store.SlidingWindow:
		s.Buckets = 1 + flags%100
	case store.WarmUp:
		s.WarmUp = s.Period / 8 * time.Duration(1+flags)
		s.WarmUp = s.WarmUp.Truncate(time.Microsecond)
	case store.Concurrency:
		s.Period = 0
	case store.SlidingCounter, store.SlidingLog:
	default:
		panic("no numbers of " + s.Algorithm.String())
	}
	var err error
	r.limit, err = store.NewLimit(s)
	return r, err == nil
}

// readOp reads a call in three to six bytes, most of them the name of an
// instant or a number at which something changes.
func readOp(d dice, b *bench, id int) op {
	i := int(d.roll(int64(len(b.rules))))
	last, s := b.last[i], b.rules[i].limit.Spec()
	if last.RetryAfter == store.Never {
		last.RetryAfter = 0
	}
	period, tick := max(s.Period.Microseconds(), 1), b.tick(i)
	if b.rules[i].bounds != nil {
		start, end := b.rules[i].bounds(b.now.Wall)
		period = end - start
	}
	unit := max(1, period/s.Units)
	steps := []int64{
		0, 0, 0, 0, 1, tick, unit, unit - 1, unit + 1, period, period - tick, period + tick, 3 * period,
		last.RetryAfter.Microseconds(), last.RetryAfter.Microseconds() - tick,
		last.ResetAfter.Microseconds(), last.ResetAfter.Microseconds() - tick,
		last.Delay.Microseconds(), last.Delay.Microseconds() + tick, last.Delay.Microseconds() - 1, -1,
	}
	step := steps[d.roll(int64(len(steps)))]
	if step < 0 {
		step = d.roll(period)
	}
	flags := d.roll(256)
	o := op{id: id, step: min(step, 2*years), forget: flags&1 == 0}
	if made := b.open(i); flags&14 == 0 && settles(s.Algorithm) && len(made) > 0 {
		key := made[d.roll(int64(len(made)))]
		o.settle = &opSettle{key[0], key[1], 0}
		if s.Algorithm != store.Concurrency {
			o.settle.cost = d.roll(b.made[key].cost + 3)
		}
		return o
	}
	o.charges = []opCharge{readCharge(d, b, i, period, tick, flags)}
	for j := range b.rules {
		if j != i && flags>>(4+j%4)&1 == 0 {
			o.charges = append(o.charges, readCharge(d, b, j, period, tick, flags))
		}
	}
	return o
}

func readCharge(d dice, b *bench, i int, period, tick, flags int64) opCharge {
	last, s := b.last[i], b.rules[i].limit.Spec()
	if last.RetryAfter == store.Never {
		last.RetryAfter = 0
	}
	burst := max(s.Burst, 1)
	all := max(s.Burst, 0) + max(s.Queue, 0)
	costs := []int64{0, 1, 1, 1, 2, 3, last.Remaining, last.Remaining + 1, burst, burst + 1, all, all + 1, s.Units, s.Units + 1, all/2 + 1}
	c := opCharge{limit: i, cost: costs[d.roll(int64(len(costs)))], dry: flags&0x1e == 0x1e}
	if flags&8 == 0 {
		waits := []time.Duration{1, time.Microsecond, micros(tick), micros(tick - 1), last.RetryAfter, last.RetryAfter - 1, last.RetryAfter - micros(tick), micros(period), micros(3 * period)}
		c.maxWait = min(max(0, waits[d.roll(int64(len(waits)))]), 365*24*time.Hour)
	}
	return c
}
