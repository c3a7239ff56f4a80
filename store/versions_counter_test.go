package store_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// counts plays a trace of versions of a SlidingCounter, and reports the first pass after
// which one version has let more pass than its rule, or all together more than theirs.
func counts(d dice, specs []store.Spec, looks, turns, refunds bool) error {
	m := &meter{now: store.Now{Steady: d.roll(years), Wall: d.roll(years)}}
	limits := make([]*store.Limit, len(specs))
	shortest := specs[0].Period.Microseconds()
	for i, s := range specs {
		l, err := store.NewLimit(s)
		if err != nil {
			return nil
		}
		limits[i], shortest = l, min(shortest, s.Period.Microseconds())
	}
	var all []passed
	trail := ""
	for range 60 + d.roll(200) {
		v := int(d.roll(int64(len(specs))))
		s := specs[v]
		p := s.Period.Microseconds()
		m.sleep(micros(oneOf(d, 0, 1, d.roll(shortest), d.roll(shortest/8+1), d.roll(p/s.Units+1), p/s.Units, shortest, d.roll(p), p)))
		at := m.now.Steady
		m.limit = limits[v]
		if refunds && len(all) > 0 && d.roll(4) == 0 {
			a := &all[d.roll(int64(len(all)))]
			m.limit = limits[a.by]
			cost := d.roll(a.cost + 1)
			a.receipt = m.settle(a.receipt, cost)
			a.cost = cost
			trail += fmt.Sprintf("\n  at %d version %d settles what ran at %d to %d", at, a.by, a.run, cost)
			continue
		}
		cost := oneOf(d, 0, 1, 1, 1, 2, 1+d.roll(s.Units), s.Units)
		if looks && v > 0 {
			cost = 0
		}
		wait := time.Duration(0)
		if turns && d.roll(3) == 0 {
			wait = micros(d.roll(2 * p))
		}
		r := m.take(cost, wait)
		trail += fmt.Sprintf("\n  at %d version %d takes %d, waits %v: %s", at, v, cost, wait, show(r))
		if cost == 0 || !r.OK {
			continue
		}
		all = append(all, passed{by: v, made: at, run: at + r.Delay.Microseconds(), cost: cost, receipt: r.Receipt})
		last := all[len(all)-1].run
		for _, from := range all {
			if from.run > last {
				continue
			}
			most := func(s store.Spec) int64 {
				return s.Units + floor(times(big.NewRat(s.Units, s.Period.Microseconds()), rat(last-from.run)))
			}
			own, together, sum := int64(0), int64(0), int64(0)
			charged := make([]bool, len(specs))
			for _, b := range all {
				if b.run < from.run || b.run > last {
					continue
				}
				if sum += b.cost; b.by == v {
					own += b.cost
				}
				charged[b.by] = true
			}
			for i, s := range specs {
				if charged[i] {
					together += most(s)
				}
			}
			if own > most(s) {
				return fmt.Errorf("version %d alone: %d pass from %d to %d, where %d may:%s", v, own, from.run, last, most(s), trail)
			}
			if sum > together {
				return fmt.Errorf("%d pass from %d to %d, where %d may:%s", sum, from.run, last, together, trail)
			}
		}
	}
	return nil
}

// TestVersionsOfACounter draws versions of one SlidingCounter with very different periods,
// which charge, look, reserve turns and refund at irregular instants.
func TestVersionsOfACounter(t *testing.T) {
	t.Parallel()
	for seedOf := range traces(t, 1000) {
		d := seed(seedOf)
		specs := make([]store.Spec, 2+d.roll(2))
		for i := range specs {
			specs[i] = store.Spec{Name: "limit", Algorithm: store.SlidingCounter, Units: oneOf[int64](d, 1, 2, 3, 5, 10, 100),
				Period: oneOf(d, time.Second, 20*time.Second, time.Minute, 1100*ms, 7*ms, time.Hour)}
		}
		if err := counts(d, specs, d.roll(3) == 0, d.roll(3) == 0, d.roll(2) == 0); err != nil {
			t.Fatalf("seed %d: %+v: %v", seedOf, specs, err)
		}
	}
}
