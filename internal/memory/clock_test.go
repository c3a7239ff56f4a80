package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/inside"
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
				s := New(Config{})
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
				sh := s.shard(s.hash("k"))
				sh.lock() // the store's timer may sweep it, too
				s.sweepShard(sh, s.steady())
				sh.mu.Unlock()
				if n := s.Stats().Keys; n != 0 {
					t.Errorf("%d/s, %v before the base: %d keys stay after they are full", units, ahead, n)
				}
			})
		}
	}
}

// A store goes by the clock that it is given, and no other store does: a day of requests, one
// every second, is decided in a moment, by a rate and by a quota that follows the calendar.
func TestAClockOfItsOwn(t *testing.T) {
	noon := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	now, other := noon, New(Config{})
	driven := New(Config{Clock: func() time.Time { return now }})
	charges := []store.Charge{
		{Key: "k", Limit: mustLimit(t, store.Spec{Units: 10, Period: time.Minute, Burst: 10}), Cost: 1},
		{Key: "k", Limit: mustLimit(t, store.Spec{Name: "quota", Algorithm: store.FixedWindow, Units: 6000, Window: store.Daily}), Cost: 1},
	}
	results := make([]store.Result, 2)
	passed, elsewhere := map[int]int{}, 0 // by the day of the month
	for second := range 24 * 60 * 60 {
		if second == 3600 && passed[10] != 10+3599/6 {
			t.Errorf("%d passed in the first hour, not the burst and one every 6 s", passed[10])
		}
		now = noon.Add(time.Duration(second) * time.Second)
		for _, s := range []*Store{driven, other} {
			if err := s.Take(t.Context(), charges, results); err != nil {
				t.Fatal(err)
			}
			if ok := inside.Granted(charges, results); ok && s == driven {
				passed[now.Day()]++
			} else if ok {
				elsewhere++
			}
		}
	}
	if passed[10] != 6000 || passed[11] != 6000 {
		t.Errorf("%v passed, not the quota on each of the two days", passed)
	}
	if elsewhere > 6000 {
		t.Errorf("%d passed in a store that goes by the system's clock", elsewhere)
	}
}
