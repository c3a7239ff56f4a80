package memory_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/store"
)

func take(tb testing.TB, s *memory.Store, key string, l *store.Limit, cost int64) store.Result {
	tb.Helper()
	return takeAll(tb, s, store.Charge{Key: key, Limit: l, Cost: cost})[0]
}

func takeAll(tb testing.TB, s *memory.Store, charges ...store.Charge) []store.Result {
	tb.Helper()
	results := make([]store.Result, len(charges))
	if err := s.Take(ctx, charges, results); err != nil {
		tb.Fatal(err)
	}
	return results
}

func settle(tb testing.TB, s *memory.Store, key string, l *store.Limit, cost int64, receipt store.Receipt) store.Result {
	tb.Helper()
	var results [1]store.Result
	err := s.Settle(ctx, []store.Charge{{Key: key, Limit: l, Cost: cost, Receipt: receipt}}, results[:])
	if err != nil {
		tb.Fatal(err)
	}
	return results[0]
}

// together runs n goroutines and waits for them.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// At an instant that does not pass, exactly the burst is admitted, however
// many ask at once.
func TestExactUnderConcurrency(t *testing.T) {
	for _, spec := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 1000, Period: time.Second},
		{Algorithm: store.TokenBucket, Units: 997, Period: time.Second, Burst: 1000}, // does not fit a word
		{Algorithm: store.IntervalBucket, Units: 1000, Period: time.Second},
		{Algorithm: store.LeakyBucket, Units: 1000, Period: time.Second, Burst: 499, Queue: 500},
		{Algorithm: store.FixedWindow, Units: 1000, Period: time.Second},
		{Algorithm: store.FixedWindow, Units: 1000, Window: store.Daily},
		{Algorithm: store.SlidingWindow, Units: 1000, Period: time.Second},
		{Algorithm: store.SlidingLog, Units: 1000, Period: time.Second},
		{Algorithm: store.SlidingCounter, Units: 1000, Period: time.Second},
		{Algorithm: store.Concurrency, Units: 1000},
	} {
		t.Run(fmt.Sprint(spec.Algorithm, spec.Units, spec.Window), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := memory.New(memory.Config{}), newLimit(t, spec)
				var admitted atomic.Int64
				together(16, func(int) {
					charges := []store.Charge{{Key: "k", Limit: l, Cost: 1}}
					results := make([]store.Result, 1)
					for range 200 {
						if err := s.Take(ctx, charges, results); err != nil {
							t.Error(err)
						}
						if results[0].OK {
							admitted.Add(1)
						}
					}
				})
				if n := admitted.Load(); n != 1000 {
					t.Errorf("admitted %d of 3200, not 1000", n)
				}
			})
		})
	}
}

// Every call charges three limits on keys that others charge too, in all
// orders. What each limit has been charged must be what was served.
func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		const users, tenants = 20, 4
		limits := []*store.Limit{
			newLimit(t, store.Spec{Name: "user", Units: 60, Period: time.Hour}),
			newLimit(t, store.Spec{Name: "tenant", Algorithm: store.FixedWindow, Units: 200, Period: time.Hour}),
			newLimit(t, store.Spec{Name: "all", Algorithm: store.SlidingWindow, Units: 700, Period: time.Hour}),
		}
		var served [3][users]atomic.Int64
		together(8, func(g int) {
			results := make([]store.Result, 3)
			for i := range 400 {
				user := (i*7 + g) % users
				tenant := user % tenants
				charges := []store.Charge{
					{Key: fmt.Sprint("user", user), Limit: limits[0], Cost: 1},
					{Key: fmt.Sprint("tenant", tenant), Limit: limits[1], Cost: 1},
					{Key: "all", Limit: limits[2], Cost: 1},
				}
				r := (i + g) % 3
				charges[0], charges[r] = charges[r], charges[0]
				if err := s.Take(ctx, charges, results); err != nil {
					t.Error(err)
				}
				if results[0].OK && results[1].OK && results[2].OK {
					served[0][user].Add(1)
					served[1][tenant].Add(1)
					served[2][0].Add(1)
				}
			}
		})
		check := func(limit int, key string, i int, units int64) {
			want := units - served[limit][i].Load()
			if got := take(t, s, key, limits[limit], 0).Remaining; got != want {
				t.Errorf("%s has %d left, %d were served of %d", key, got, units-want, units)
			}
		}
		for i := range users {
			check(0, fmt.Sprint("user", i), i, 60)
		}
		for i := range tenants {
			check(1, fmt.Sprint("tenant", i), i, 200)
		}
		check(2, "all", 0, 700)
		if n := served[2][0].Load(); n != 700 {
			t.Errorf("served %d, not the 700 that the narrowest limit has room for", n)
		}
	})
}

// More charges than fit the stack, and a denial among them.
func TestManyCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		var charges []store.Charge
		for i := range 40 {
			l := newLimit(t, store.Spec{Name: fmt.Sprint("limit", i), Units: int64(100 - i), Period: time.Hour})
			charges = append(charges, store.Charge{Key: "k", Limit: l, Cost: 1})
		}
		for range 61 {
			for i, r := range takeAll(t, s, charges...) {
				if !r.OK {
					t.Fatalf("limit %d denies", i)
				}
			}
		}
		for i, r := range takeAll(t, s, charges...) {
			if want := int64(100 - i - 61); r.Remaining != want || r.OK != (i != 39) || r.Receipt.Cost != 0 {
				t.Errorf("limit %d: %+v, want %d left and nothing charged", i, r, want)
			}
		}
	})
}

func TestMalformed(t *testing.T) {
	s := memory.New(memory.Config{})
	l, other := newLimit(t, store.Spec{Name: "a", Units: 1, Period: time.Hour}), newLimit(t, store.Spec{Name: "b", Units: 1, Period: time.Hour})
	for _, tc := range []struct {
		name    string
		charges []store.Charge
		results int
		want    error
	}{
		{"no limit", []store.Charge{{Key: "k", Cost: 1}}, 1, store.ErrLimit},
		{"limit not made by NewLimit", []store.Charge{{Key: "k", Limit: new(store.Limit), Cost: 1}}, 1, store.ErrLimit},
		{"negative", []store.Charge{{Key: "k", Limit: l, Cost: -1}}, 1, store.ErrCost},
		{"too large", []store.Charge{{Key: "k", Limit: l, Cost: store.MaxCost + 1}}, 1, store.ErrCost},
		{"too few results", []store.Charge{{Key: "k", Limit: l, Cost: 1}}, 0, store.ErrResults},
		{"twice", []store.Charge{{Key: "k", Limit: l, Cost: 1}, {Key: "k", Limit: other, Cost: 1}, {Key: "k", Limit: l, Cost: 1}}, 3, store.ErrDuplicate},
		{"twice by name", []store.Charge{{Key: "k", Limit: l, Cost: 1}, {Key: "k", Limit: newLimit(t, store.Spec{Name: "a", Units: 5, Period: time.Hour}), Cost: 1}}, 2, store.ErrDuplicate},
	} {
		if err := s.Take(ctx, tc.charges, make([]store.Result, tc.results)); !errors.Is(err, tc.want) {
			t.Errorf("%s: Take says %v, want %v", tc.name, err, tc.want)
		}
		if tc.want == store.ErrDuplicate {
			continue
		}
		if err := s.Settle(ctx, tc.charges, make([]store.Result, tc.results)); !errors.Is(err, tc.want) {
			t.Errorf("%s: Settle says %v, want %v", tc.name, err, tc.want)
		}
	}
	if err := s.Take(ctx, nil, nil); err != nil {
		t.Errorf("no charges: %v", err)
	}
	if _, err := s.Reset(ctx, "k", nil); !errors.Is(err, store.ErrLimit) {
		t.Errorf("Reset without a limit: %v", err)
	}
	if n := s.Stats().Keys; n != 0 {
		t.Errorf("%d keys after malformed calls", n)
	}
	// Same name, other algorithm: another limit.
	window := newLimit(t, store.Spec{Name: "a", Algorithm: store.FixedWindow, Units: 1, Period: time.Hour})
	for i, r := range takeAll(t, s, store.Charge{Key: "k", Limit: l, Cost: 1}, store.Charge{Key: "k", Limit: window, Cost: 1}) {
		if !r.OK {
			t.Errorf("charge %d denied", i)
		}
	}
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		a := newLimit(t, store.Spec{Name: "a", Units: 1, Period: time.Hour})
		b := newLimit(t, store.Spec{Name: "b", Algorithm: store.Concurrency, Units: 1})
		c := newLimit(t, store.Spec{Name: "c", Algorithm: store.SlidingLog, Units: 1, Period: time.Hour})
		for _, l := range []*store.Limit{a, b, c} {
			take(t, s, "k", l, 1)
			take(t, s, "other", l, 1)
		}
		lease := take(t, s, "unknown", b, 1)
		if _, err := s.Reset(ctx, "k", a, b, b); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*store.Limit{a, b} {
			if !take(t, s, "k", l, 1).OK {
				t.Errorf("%s still denies", l.Name())
			}
			if take(t, s, "other", l, 1).OK {
				t.Errorf("%s has forgotten another key", l.Name())
			}
		}
		if take(t, s, "k", c, 1).OK {
			t.Error("a limit not named has been reset")
		}
		// Releasing a lease that a reset has forgotten frees nothing.
		s.Reset(ctx, "unknown", b)
		take(t, s, "unknown", b, 1)
		settle(t, s, "unknown", b, 0, lease.Receipt)
		if take(t, s, "unknown", b, 1).OK {
			t.Error("a forgotten lease was released")
		}
	})
}

func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{MaxKeys: 15}) // one shard, which a call sweeps
		for _, spec := range []store.Spec{
			{Name: "bucket", Units: 10, Period: time.Second},
			{Name: "odd", Units: 997, Period: 99700 * time.Millisecond, Burst: 10},
			{Name: "window", Algorithm: store.FixedWindow, Units: 10, Period: time.Second},
			{Name: "log", Algorithm: store.SlidingLog, Units: 10, Period: time.Second},
			{Name: "slots", Algorithm: store.Concurrency, Units: 10},
		} {
			l := newLimit(t, spec)
			// Of a key never seen: nothing to give back.
			if r := settle(t, s, "unknown", l, 0, store.Receipt{Cost: 5}); r.Remaining != 10 {
				t.Errorf("%s: unknown receipt: %+v", spec.Name, r)
			}
			r := take(t, s, "k", l, 4)
			if r = settle(t, s, "k", l, 1, r.Receipt); r.Remaining != 9 {
				t.Errorf("%s: 4 settled as 1 leave %d", spec.Name, r.Remaining)
			}
			if r = settle(t, s, "k", l, 0, r.Receipt); r.Remaining != 10 {
				t.Errorf("%s: cancelled leaves %d", spec.Name, r.Remaining)
			}
		}
		if n := s.Stats().Keys; n != 1 {
			t.Errorf("%d keys are kept that are as if never seen, want that of the slots", n)
		}
		time.Sleep(time.Second)
		take(t, s, "other", newLimit(t, store.Spec{Units: 1, Period: time.Second}), 0)
		if n := s.Stats().Keys; n != 0 {
			t.Errorf("%d keys are kept after a sweep", n)
		}
	})
}

// The true cost may become known after the estimate has expired. It is owed
// whether or not the sweep has been there.
func TestSettleAddsToAnExpiredKey(t *testing.T) {
	for _, algorithm := range []store.Algorithm{store.TokenBucket, store.IntervalBucket, store.FixedWindow, store.SlidingLog} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New(memory.Config{})
			l := newLimit(t, store.Spec{Algorithm: algorithm, Units: 100, Period: time.Second})
			receipt := take(t, s, "k", l, 1).Receipt
			time.Sleep(2 * time.Second)
			for i := range 2000 { // sweeps it away
				take(t, s, fmt.Sprint("other", i%2), l, 1)
				time.Sleep(time.Millisecond)
			}
			if r := settle(t, s, "k", l, 81, receipt); r.Remaining != 20 {
				t.Errorf("%v: %d left after 80 were added, not 20", algorithm, r.Remaining)
			}
			if r := take(t, s, "k", l, 21); r.OK {
				t.Errorf("%v: %+v", algorithm, r)
			}
		})
	}
}

// A limit that changes its numbers keeps what has been consumed, also where
// its states move between word and slab.
func TestChangedNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		states, want := make([]store.State, 1), make([]store.Result, 1)
		for _, units := range []int64{1000, 997, 1000, 3, 1000} {
			l := newLimit(t, store.Spec{Units: units, Period: time.Second, Burst: 1000})
			store.Decide(store.Now{}, []store.Charge{{Limit: l, Cost: 100}}, states, want)
			if r := take(t, s, "k", l, 100); r != want[0] {
				t.Errorf("at %d per second: %+v, want %+v", units, r, want[0])
			}
		}
		// A lowered burst isn't clamped, and a denial changes nothing: the excess drains.
		high := newLimit(t, store.Spec{Name: "x", Units: 1, Period: time.Hour, Burst: 100})
		low := newLimit(t, store.Spec{Name: "x", Units: 1, Period: time.Hour, Burst: 1})
		take(t, s, "x", high, 100)
		for _, left := range []time.Duration{100 * time.Hour, time.Hour} {
			if r := take(t, s, "x", low, 1); r.OK || r.RetryAfter != left {
				t.Errorf("after lowering: %+v, want a retry after %v", r, left)
			}
			time.Sleep(99 * time.Hour)
		}
		if r := take(t, s, "x", low, 1); !r.OK {
			t.Errorf("when the excess has drained: %+v", r)
		}
	})
}

func TestAllocations(t *testing.T) {
	s := memory.New(memory.Config{})
	for _, n := range []int{1, 2, 3, 8} {
		charges, results := make([]store.Charge, n), make([]store.Result, n)
		for i := range charges {
			charges[i] = store.Charge{Key: "k", Limit: rate(t, fmt.Sprint("limit", i)), Cost: 1}
		}
		if a := testing.AllocsPerRun(1000, func() { s.Take(ctx, charges, results) }); a != 0 {
			t.Errorf("%d charges: %v allocations", n, a)
		}
		for i := range charges {
			charges[i].Receipt, charges[i].Cost = results[i].Receipt, 2
		}
		if a := testing.AllocsPerRun(1000, func() { s.Settle(ctx, charges, results) }); a != 0 {
			t.Errorf("settling %d: %v allocations", n, a)
		}
	}
}

// Inserting, expiring and growing at once. Run with -race.
func TestConcurrentGrowth(t *testing.T) {
	s := memory.New(memory.Config{MaxKeys: 1000})
	long := newLimit(t, store.Spec{Name: "long", Units: 100, Period: 24 * time.Hour})
	short := newLimit(t, store.Spec{Name: "short", Units: 1000, Period: 100 * time.Microsecond})
	window := newLimit(t, store.Spec{Name: "window", Algorithm: store.FixedWindow, Units: 10, Period: 50 * time.Microsecond})
	var charged atomic.Int64
	together(8, func(g int) {
		results := make([]store.Result, 3)
		for i := range 2000 {
			charges := []store.Charge{
				{Key: "busy", Limit: long, Cost: 1},
				{Key: fmt.Sprint(g, i), Limit: short, Cost: 1},
				{Key: fmt.Sprint(i), Limit: window, Cost: 1},
			}
			switch i % 4 {
			case 0:
				charges[0].Cost = 0
			case 1:
				charges = charges[1:2]
			case 2:
				charges = charges[2:]
			}
			if err := s.Take(ctx, charges, results[:len(charges)]); err != nil {
				t.Error(err)
			}
			if len(charges) == 3 && charges[0].Cost > 0 && results[0].OK && results[1].OK && results[2].OK {
				charged.Add(1)
			}
			if i%16 == 0 {
				s.Reset(ctx, fmt.Sprint(g, i), short)
				s.Settle(ctx, charges[:1], results[:1])
			}
		}
	})
	st := s.Stats()
	if st.Keys < 1 || st.Keys > 1000 {
		t.Errorf("%+v", st)
	}
	if left := take(t, s, "busy", long, 0).Remaining; left != max(0, 100-charged.Load()) {
		t.Errorf("%d left of 100 after %d charges", left, charged.Load())
	}
}
