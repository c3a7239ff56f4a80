package memstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
)

func TestAnOlderInstantIsTheNewest(t *testing.T) {
	sh := shard{newest: -100}
	for _, tc := range []struct{ steady, wall, wantSteady, wantWall int64 }{
		{-50, 1000, -50, 1000},
		{-70, 980, -50, 1000}, // read before the one above, locked after
		{10, 1060, 10, 1060},
		{10, 0, 10, 0}, // the wall clock has been set back
		{9, 1, 10, 2},
	} {
		now := store.Now{Steady: tc.steady, Wall: tc.wall}
		sh.advance(&now)
		if now.Steady != tc.wantSteady || now.Wall != tc.wantWall {
			t.Errorf("(%d, %d) is treated as (%d, %d), want (%d, %d)",
				tc.steady, tc.wall, now.Steady, now.Wall, tc.wantSteady, tc.wantWall)
		}
	}
}

// A call on several shards decides at the newest instant of them all, and all
// of them have then seen it.
func TestOneInstantForAllShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		l := mustLimit(t, store.Spec{Units: 1, Period: time.Second, Burst: 10})
		a, b := s.shard(s.hash("a", l)), s.shard(s.hash("b", l))
		for i := 0; a == b; i++ {
			b = s.shard(s.hash("b"+string(rune('0'+i)), l))
		}
		a.newest, b.newest = 5_000_000, 3_000_000
		results := make([]store.Result, 2)
		charges := []store.Charge{{Key: "a", Limit: l, Cost: 1}, {Key: "b", Limit: l, Cost: 1}}
		b = s.shard(s.hash("b", l))
		if err := s.Take(t.Context(), charges, results); err != nil {
			t.Fatal(err)
		}
		for i, sh := range []*shard{a, b} {
			if sh.newest != 5_000_000 || results[i].Receipt.Instant != 5_000_000 {
				t.Errorf("charge %d is made at %d, its shard is at %d", i, results[i].Receipt.Instant, sh.newest)
			}
		}
	})
}

// A clock that reads less than the store's base, as in a bubble that the store
// was not made in, counts from before the origin. With a rate in fine units
// and years of distance the instants do not fit a word.
func TestNegativeInstants(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, ahead := range []time.Duration{time.Second, 3 * year, 40 * year} {
		for _, units := range []int64{1, 3, 13} {
			synctest.Test(t, func(t *testing.T) {
				s := New()
				s.base = s.base.Add(ahead)
				l := mustLimit(t, store.Spec{Units: units, Period: time.Second})
				charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)
				take := func() store.Result {
					if err := s.Take(t.Context(), charges, results); err != nil {
						t.Fatal(err)
					}
					return results[0]
				}
				for range 3 {
					for i := range units {
						if r := take(); !r.OK {
							t.Fatalf("%d/s, %v before the base: charge %d: %+v", units, ahead, i, r)
						}
					}
					r := take()
					if r.OK || r.RetryAfter <= 0 || r.RetryAfter > time.Second {
						t.Fatalf("%d/s, %v before the base: %+v", units, ahead, r)
					}
					time.Sleep(r.RetryAfter - time.Microsecond)
					if r = take(); r.OK {
						t.Fatalf("%d/s, %v before the base: passes too early", units, ahead)
					}
					time.Sleep(time.Second)
				}
				s.sweepShard(s.shard(s.hash("k", l)), s.steady())
				if n := s.Stats().Keys; n != 0 {
					t.Errorf("%d/s, %v before the base: %d keys stay after they are full", units, ahead, n)
				}
			})
		}
	}
}
