package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// neighbours are n keys of the shard that the key hot is in.
func neighbours(s *Store, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprint("beside", i); s.shard(s.hash(key)) == s.shard(s.hash("hot")) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Charges on one bucket come without a lock beside decisions on several limits,
// settlements, resets and growth in the same table. None of them is lost, and none of
// them counts twice.
func TestSwapsBesideEverythingElse(t *testing.T) {
	const each, lines = 2000, 4
	s, ctx := New(Config{}), context.Background()
	hot := mustLimit(t, store.Spec{Name: "hot", Units: 4 * each * lines, Period: 24 * time.Hour})
	other := mustLimit(t, store.Spec{Name: "other", Units: 1_000_000, Period: time.Hour})
	keys := neighbours(s, 300)
	var charged atomic.Int64
	take := func(charges ...store.Charge) store.Result {
		results := make([]store.Result, len(charges))
		if err := s.Take(ctx, charges, results); err != nil {
			t.Error(err)
		}
		for i, r := range results {
			if !r.OK {
				t.Errorf("%s is denied: %+v", charges[i].Key, r)
			}
		}
		return results[0]
	}
	one := store.Charge{Key: "hot", Limit: hot, Cost: 1}
	work := []func(i int){
		func(int) {
			take(one)
			charged.Add(1)
		},
		func(i int) {
			take(one, store.Charge{Key: keys[i%len(keys)], Limit: other, Cost: 1})
			charged.Add(1)
		},
		func(i int) { // costs one, two or nothing after all
			c := one
			c.Receipt, c.Cost = take(one).Receipt, int64(i%3)
			var r [1]store.Result
			if err := s.Settle(ctx, []store.Charge{c}, r[:]); err != nil {
				t.Error(err)
			}
			charged.Add(r[0].Receipt.Cost)
		},
		func(i int) { // the table grows, is replaced, and shrinks
			key := keys[i%len(keys)]
			take(store.Charge{Key: key, Limit: hot, Cost: 1})
			if _, err := s.Reset(ctx, keys[(i*7)%len(keys)], hot); err != nil {
				t.Error(err)
			}
			if i%50 == 0 {
				sh := s.shard(s.hash("hot"))
				sh.mu.Lock()
				s.sweepShard(sh, s.steady())
				s.countDropped(sh.rebuild(s.steady(), 0))
				sh.mu.Unlock()
			}
		},
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, f := range work {
		for range lines {
			wg.Go(func() {
				for i := range each {
					f(i)
				}
			})
		}
	}
	wg.Wait()
	back := int64(time.Since(start)/(24*time.Hour/(4*each*lines))) + 1
	left := take(store.Charge{Key: "hot", Limit: hot}).Remaining
	if want := 4*each*lines - charged.Load(); left < want || left > want+back {
		t.Errorf("%d are left after %d were charged, not %d", left, charged.Load(), want)
	}
	if _, err := s.recount(); err != nil {
		t.Error(err)
	}
}

// What is decided later on a key is decided at a later instant, however callers get in
// each other's way between reading the clock and charging: a bucket would be found less
// full than it is, and deny its last tokens.
func TestInstantsAscend(t *testing.T) {
	const callers, calls = 4, 20_000
	s, ctx := New(Config{}), context.Background()
	hot := mustLimit(t, store.Spec{Name: "hot", Units: 1_000_000, Period: time.Hour})
	window := mustLimit(t, store.Spec{Name: "window", Algorithm: store.FixedWindow, Units: store.MaxCost, Period: time.Hour})
	receipts := make([][]store.Receipt, callers)
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			charges := []store.Charge{{Key: "k", Limit: hot, Cost: 1}, {Key: fmt.Sprint(g), Limit: window, Cost: 1}}
			results := make([]store.Result, len(charges))
			for i := range calls {
				n := 1
				if i%16 == g { // with a lock
					n = 2
				}
				if err := s.Take(ctx, charges[:n], results[:n]); err != nil || !results[0].OK {
					t.Error(results[0], err)
				}
				receipts[g] = append(receipts[g], results[0].Receipt)
			}
		})
	}
	wg.Wait()
	all := slices.Concat(receipts...)
	slices.SortFunc(all, func(a, b store.Receipt) int { return cmp.Compare(a.Mark, b.Mark) })
	for i := 1; i < len(all); i++ {
		if all[i].Instant < all[i-1].Instant {
			t.Fatalf("charge %d was made at %d, the one after it at %d", i-1, all[i-1].Instant, all[i].Instant)
		}
	}
}
