package store_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// A refund of an early charge spoils what the receipts of later ones say: of two halves of
// a bucket, settled late, the second had been given back by time, and was given back again.
func TestLateRefundGivesBackOnce(t *testing.T) {
	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 1000, Period: time.Minute},
		{Algorithm: store.TokenBucket, Units: 1000, Period: time.Minute, Debt: true, Burst: 1000},
		{Algorithm: store.TokenBucket, Units: 1000, Period: time.Minute, Queue: 10},
		{Algorithm: store.LeakyBucket, Units: 1000, Period: time.Minute, Burst: 999, Queue: 10},
		{Algorithm: store.TokenBucket, Units: 1000, Period: 60_000_003 * time.Microsecond}, // wide
	} {
		m := newMeter(t, s)
		first, second := m.must(500), m.must(500)
		m.sleep(time.Second)
		m.settle(first, 10)
		m.sleep(30*time.Second + time.Millisecond)
		m.must(1000)
		m.settle(second, 10)
		passed := int64(1000)
		for passed < 3000 {
			if r := m.take(1, 0); !r.OK || r.Delay > 0 {
				break
			}
			passed++
		}
		if passed > 1001 { // with debt, the last one is paid for by the next
			t.Errorf("%+v: %d pass at one instant", s, passed)
		}
	}
}

// A look by another version, at any numbers, changes nothing for the one that charges:
// turns and debts stay.
func TestLooksOfOtherVersionsChangeNothing(t *testing.T) {
	for _, a := range []store.Algorithm{store.TokenBucket, store.LeakyBucket} {
		spec := store.Spec{Algorithm: a, Units: 10, Period: time.Second, Queue: 500}
		if a == store.TokenBucket {
			spec.Burst = 1
		}
		for _, other := range []store.Spec{
			{Algorithm: a, Units: 10, Period: time.Second, Burst: 1000},
			{Algorithm: a, Units: 1, Period: time.Hour, Burst: 3},
			{Algorithm: a, Units: 100_000, Period: 7 * time.Second, Burst: 5},
		} {
			m := newMeter(t, spec)
			mine, looks := m.limit, newMeter(t, other).limit
			passed := 0
			for range 1000 {
				m.limit = looks
				m.take(0, time.Hour)
				m.limit = mine
				if m.take(1, time.Second).OK {
					passed++
				}
			}
			if passed != 11 {
				t.Errorf("%v beside looks of %+v: %d turns in a second, want 11", a, other, passed)
			}
			m = newMeter(t, spec)
			m.settle(m.must(1), 991)
			owed := m.take(0, 0).ResetAfter
			m.limit = looks
			m.take(0, 0)
			m.limit = mine
			if got := m.take(0, 0).ResetAfter; got != owed || owed < 99*time.Second {
				t.Errorf("%v: a debt of %v is %v after a look of %+v", a, owed, got, other)
			}
		}
	}
}

// A version that finds more consumed than it has room for is denied for a token's time,
// not for as long as the other version's traffic takes to flow off.
func TestALoweredLimitPassesSoon(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.TokenBucket, Units: 1, Period: time.Hour, Burst: 100})
	m.must(100)
	m.limit = newMeter(t, store.Spec{Algorithm: store.TokenBucket, Units: 10, Period: time.Second}).limit
	if r := m.take(1, 0); r.OK || r.RetryAfter != 100*time.Millisecond {
		t.Fatalf("beside an exhausted version: %s", show(r))
	}
	m.sleep(100 * time.Millisecond)
	m.must(1)
}

// Limits that are updated one after the other hold at once: each has its own view, though
// those before it haven't ended.
func TestEachUpdateHoldsAtOnce(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.TokenBucket, Units: 100, Period: time.Hour})
	for _, n := range []int64{200, 5, 1000} {
		m.must(1)
		m.limit = newMeter(t, store.Spec{Algorithm: store.TokenBucket, Units: n, Period: time.Hour}).limit
		if r := m.take(0, 0); r.Remaining > n || r.Remaining < n-3 {
			t.Errorf("%d an hour: %d remain", n, r.Remaining)
		}
	}
}

// TestASecondDenialChangesNothing: a store may answer equal charges of one instant as
// one, whatever versions have left in the state and wherever the clock has been.
func TestASecondDenialChangesNothing(t *testing.T) {
	t.Parallel()
	denials := 0
	for s := range traces(t, 6000) {
		d := seed(s)
		a := oneOf(d, store.TokenBucket, store.TokenBucket, store.TokenBucket, store.LeakyBucket, store.IntervalBucket, store.FixedWindow,
			store.SlidingWindow, store.SlidingCounter, store.SlidingLog, store.WarmUp)
		var limits []*store.Limit
		for len(limits) < 3 {
			spec := store.Spec{Name: "limit", Algorithm: a, Units: oneOf[int64](d, 1, 3, 10, 999),
				Period: oneOf(d, 100*time.Millisecond, time.Second, 7*time.Second, time.Minute, 10*time.Minute)}
			switch a {
			case store.TokenBucket:
				spec.Burst, spec.Debt = oneOf[int64](d, 1, 2, 10, 100), d.roll(3) == 0
			case store.LeakyBucket:
				spec.Burst, spec.Queue = oneOf[int64](d, 0, 10), oneOf[int64](d, 1, 10, 100)
			case store.IntervalBucket:
				spec.Burst = oneOf[int64](d, 1, 2, 10, 100)
			case store.WarmUp:
				spec.WarmUp = oneOf(d, time.Second, time.Minute)
			}
			l, err := store.NewLimit(spec)
			if err != nil {
				t.Fatal(err)
			}
			limits = append(limits, l)
		}
		m := &meter{t: t, now: store.Now{Steady: years, Wall: years}}
		for range 30 {
			m.limit = oneOf(d, limits...)
			spec := m.limit.Spec()
			m.sleep(time.Duration(d.roll(int64(spec.Period))))
			if d.roll(5) == 0 {
				m.sleep(-time.Duration(d.roll(int64(10 * spec.Period))))
			}
			cost, wait := oneOf(d, 1, 1, 2, 1+d.roll(spec.Units), 400), time.Duration(d.roll(2)*d.roll(int64(spec.Period)))
			if m.take(cost, wait).OK {
				continue
			}
			denials++
			first := m.state
			if m.take(cost, wait); !reflect.DeepEqual(m.state, first) {
				t.Fatalf("seed %d: %+v: a denial leaves %+v, and a second %+v", s, spec, first, m.state)
			}
		}
	}
	enough(t, denials)
}
