package memstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

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
				s.sweepShard(s.shard(l.Engine(engine.Access{}).KeyHash(s.seed, "k")), clock.Micros(s.base))
				if n := s.Stats().Keys; n != 0 {
					t.Errorf("%d/s, %v before the base: %d keys stay after they are full", units, ahead, n)
				}
			})
		}
	}
}
