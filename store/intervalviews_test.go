package store_test

import (
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
