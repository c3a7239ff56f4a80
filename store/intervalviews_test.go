package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// TestIntervalsOfEqualRates: of 10 a second and 600 a minute, whoever looks last before
// the other's interval ends gets no tokens of its own for that.
func TestIntervalsOfEqualRates(t *testing.T) {
	second := newMeter(t, store.Spec{Algorithm: store.IntervalBucket, Units: 10, Period: time.Second}).limit
	minute := newMeter(t, store.Spec{Algorithm: store.IntervalBucket, Units: 600, Period: time.Minute}).limit
	m, passed := &meter{}, int64(0)
	all := func(l *store.Limit) {
		m.limit = l
		for _, cost := range []int64{600, 10, 1} {
			for {
				r := m.take(cost, 0)
				if passed += r.Receipt.Cost; !r.OK {
					break
				}
			}
		}
	}
	for m.now.Steady < 120_000_000 {
		all(minute)
		all(second)
		m.sleep(time.Second - micros(1))
		m.limit = minute
		m.take(0, 0)
		m.sleep(micros(60))
	}
	// 3 and 121 times what each has at once, by themselves
	if passed > 3*600+121*10 || passed < 1200 {
		t.Errorf("%d pass in two minutes, by themselves 1800 and 1210", passed)
	}
}

// TestALateRefundOfAnInterval settles a charge whose tokens have been lost to a full
// bucket meanwhile, behind one that has been settled before.
func TestALateRefundOfAnInterval(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.IntervalBucket, Units: 500, Period: 30 * time.Second, Burst: 1000})
	first, second := m.must(500), m.must(500)
	m.settle(first, 10)
	m.sleep(30 * time.Second) // 510 less 500
	m.must(990)
	m.settle(second, 10)
	if r := m.take(11, 0); r.OK {
		t.Errorf("11 pass at once beside 990, of 1000: 10 were in use at the least since the charge: %s", show(r))
	}
	m.must(10)
}

// TestAnotherPeriodStarvesNobody replaces 1000 a day, all used, by 10 a second: a request
// every three seconds is denied once.
func TestAnotherPeriodStarvesNobody(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.IntervalBucket, Units: 1000, Period: 24 * time.Hour})
	m.must(1000)
	m.limit = newMeter(t, store.Spec{Algorithm: store.IntervalBucket, Units: 10, Period: time.Second}).limit
	passed := int64(0)
	for range 100 {
		passed += m.take(1, 0).Receipt.Cost
		m.sleep(3 * time.Second)
	}
	if passed != 99 {
		t.Errorf("%d of 100 pass", passed)
	}
}

// intervals is how much passes in a span: by burst and units at each end of a period,
// wherever the first one is.
func intervals(burst, units, period, span int64) int64 { return burst + (span/period+1)*units }

// judgedIntervals plays a trace of versions of an IntervalBucket, and reports the first
// pass that is too much: for its own version, over what that has let pass, and for those
// of its period, over what they have together.
func judgedIntervals(d dice, specs []store.Spec, turns, refunds bool) error {
	m := &meter{now: store.Now{Steady: d.roll(years), Wall: d.roll(years)}}
	limits := make([]*store.Limit, len(specs))
	shortest := specs[0].Period.Microseconds()
	for i, s := range specs {
		l, err := store.NewLimit(s)
		if err != nil {
			return err
		}
		limits[i], shortest = l, min(shortest, s.Period.Microseconds())
	}
	var all []passed
	trail := ""
	over := func(at passed) error {
		own := specs[at.by]
		p := own.Period.Microseconds()
		burst, units := int64(0), int64(0)
		for _, s := range specs {
			if s.Period == own.Period {
				burst, units = max(burst, s.Burst), max(units, s.Units)
			}
		}
		for _, from := range all {
			if from.run > at.run {
				continue
			}
			var alone, together int64
			for _, a := range all {
				if a.run < from.run || a.run > at.run {
					continue
				}
				if a.by == at.by {
					alone += a.cost
				}
				if specs[a.by].Period == own.Period {
					together += a.cost
				}
			}
			span := at.run - from.run
			if most := intervals(own.Burst, own.Units, p, span); alone > most {
				return fmt.Errorf("%d pass by version %d in [%d, %d], %d may:%s", alone, at.by, from.run, at.run, most, trail)
			}
			if most := intervals(burst, units, p, span); !turns && together > most {
				return fmt.Errorf("%d pass by versions of %v in [%d, %d], %d may:%s", together, own.Period, from.run, at.run, most, trail)
			}
		}
		return nil
	}
	for range 60 + d.roll(100) {
		v := int(d.roll(int64(len(specs))))
		s := specs[v]
		p := s.Period.Microseconds()
		m.sleep(micros(oneOf(d, 0, 1, d.roll(shortest), d.roll(shortest/8+1), d.roll(p/s.Units+1), p, p-1, shortest, d.roll(p))))
		if refunds && len(all) > 0 && d.roll(4) == 0 {
			a := &all[d.roll(int64(len(all)))]
			if d.roll(2) == 0 {
				a = &all[len(all)-1-int(d.roll(min(int64(len(all)), 4)))]
			}
			m.limit = limits[a.by]
			cost := d.roll(a.cost + 1)
			a.receipt = m.settle(a.receipt, cost)
			trail += fmt.Sprintf("\n  at %d version %d settles %d of what ran at %d to %d", m.now.Steady, a.by, a.cost, a.run, cost)
			a.cost = cost
			continue
		}
		m.limit = limits[v]
		cost := oneOf(d, 0, 1, 1, 1, 2, 1+d.roll(s.Burst))
		wait := time.Duration(0)
		if turns && d.roll(3) == 0 {
			wait = micros(d.roll(2 * p))
		}
		at := m.now.Steady
		r := m.take(cost, wait)
		trail += fmt.Sprintf("\n  at %d version %d takes %d, waits %v: %s", at, v, cost, wait, show(r))
		if cost > 0 && r.OK {
			all = append(all, passed{by: v, made: at, run: at + r.Delay.Microseconds(), cost: cost, receipt: r.Receipt})
			if err := over(all[len(all)-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestVersionsOfIntervals draws versions of one limit with very different periods, which
// charge, look, reserve turns and refund at irregular instants.
func TestVersionsOfIntervals(t *testing.T) {
	t.Parallel()
	for seedOf := range traces(t, 1000) {
		d := seed(seedOf)
		specs := make([]store.Spec, 1+d.roll(3))
		period := oneOf(d, time.Second, time.Minute)
		for i := range specs {
			specs[i] = store.Spec{Name: "limit", Algorithm: store.IntervalBucket, Units: oneOf[int64](d, 1, 2, 3, 5, 10, 100),
				Burst: oneOf[int64](d, 1, 2, 3, 5, 10, 100), Period: oneOf(d, period, period, 20*time.Second, 1100*ms, 7*ms, time.Hour)}
		}
		// With turns, refunds go by another rule (TestNoSpanAdmitsMoreWhateverIsRefunded).
		turns := d.roll(3) == 0
		if err := judgedIntervals(d, specs, turns, !turns); err != nil {
			t.Fatalf("seed %d: %+v: %v", seedOf, specs, err)
		}
	}
}
