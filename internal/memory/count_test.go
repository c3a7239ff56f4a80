package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
)

// Whatever expires beside whatever comes, the number of keys that the store
// counts is the number of keys that it holds, after every operation.
func TestKeysAreCounted(t *testing.T) {
	for _, maxKeys := range []int{1, 2, 8, 40, 100, 1 << 20} {
		for seed := range uint64(40) {
			synctest.Test(t, func(t *testing.T) { countKeys(t, maxKeys, seed) })
		}
	}
}

// counted are limits of every kind of state: in a word, in a slab, with a log,
// until released, and those of which versions differ in that.
func counted(t *testing.T) []*store.Limit {
	var limits []*store.Limit
	for i, spec := range []store.Spec{
		{Units: 1, Period: time.Millisecond, Burst: 3},
		{Units: 5, Period: time.Second},
		{Units: 5, Period: time.Second, Queue: 5}, // another version of the one before
		{Algorithm: store.IntervalBucket, Units: 2, Period: 10 * time.Millisecond, Burst: 4},
		{Algorithm: store.FixedWindow, Units: 3, Period: 20 * time.Millisecond},
		{Algorithm: store.FixedWindow, Units: 3, Window: store.Every(time.Second)},
		{Algorithm: store.SlidingLog, Units: 3, Period: 10 * time.Millisecond},
		{Algorithm: store.WarmUp, Units: 100, Period: time.Second, WarmUp: 20 * time.Millisecond},
		{Algorithm: store.Concurrency, Units: 2},
		{Algorithm: store.Ban, Units: 2, Period: 5 * time.Millisecond, Ban: 10 * time.Millisecond},
	} {
		if spec.Name = fmt.Sprint("l", i); i == 2 {
			spec.Name = "l1"
		}
		limits = append(limits, mustLimit(t, spec))
	}
	return limits
}

func countKeys(t *testing.T, maxKeys int, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, uint64(maxKeys)))
	s, limits, ctx := New(Config{MaxKeys: int64(maxKeys)}), counted(t), context.Background()
	keys := 4 + rnd.IntN(3*min(maxKeys, 100))
	var made []store.Charge
	charge := func() store.Charge {
		c := store.Charge{Key: fmt.Sprint(rnd.IntN(keys)), Limit: limits[rnd.IntN(len(limits))], Cost: rnd.Int64N(4)}
		if rnd.IntN(3) == 0 {
			c.MaxWait = time.Duration(rnd.IntN(100)) * time.Millisecond
		}
		c.DryRun, c.Final = rnd.IntN(8) == 0, true
		return c
	}
	for step := range 300 {
		op := "take"
		switch n := rnd.IntN(10); {
		case n < 6:
			charges := make([]store.Charge, 1+rnd.IntN(2)*rnd.IntN(12))
			for i := range charges {
				charges[i] = charge()
			}
			results := make([]store.Result, len(charges))
			if s.Take(ctx, charges, results) != nil {
				continue // one of them twice
			}
			for i, r := range results {
				if charges[i].Receipt = r.Receipt; r.Receipt.Cost > 0 || charges[i].Limit.Algorithm() == store.Ban {
					made = append(made, charges[i])
				}
			}
		case n < 8 && len(made) > 0:
			op = "settle"
			c := &made[rnd.IntN(len(made))]
			again := *c
			again.Cost = rnd.Int64N(2 * (c.Receipt.Cost + 1))
			var r [1]store.Result
			if err := s.Settle(ctx, []store.Charge{again}, r[:]); err != nil {
				t.Fatal(err)
			}
			c.Receipt = r[0].Receipt
		case n < 9:
			op = "reset"
			if _, err := s.Reset(ctx, fmt.Sprint(rnd.IntN(keys)), limits[rnd.IntN(len(limits))], limits[rnd.IntN(len(limits))]); err != nil {
				t.Fatal(err)
			}
		default:
			op = "sleep"
			time.Sleep(time.Duration(rnd.IntN(1<<rnd.IntN(22))) * time.Microsecond)
		}
		held, err := s.recount()
		if err != nil {
			t.Fatalf("max %d, seed %d, step %d, %s: %v", maxKeys, seed, step, op, err)
		}
		if st := s.Stats(); st.Keys != int64(held) || held > maxKeys {
			t.Fatalf("max %d, seed %d, step %d, %s: %+v, but %d are held", maxKeys, seed, step, op, st, held)
		}
	}
	// And nothing stays for ever: leases given back, all of it expires.
	for i := range made {
		made[i].Cost = 0
	}
	if err := s.Settle(ctx, made, make([]store.Result, len(made))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Minute)
	for range 2 * len(s.shards) {
		s.sweep(s.steady())
		time.Sleep(time.Second)
	}
	if st := s.Stats(); st.Keys != 0 {
		t.Fatalf("max %d, seed %d: %+v when all has expired", maxKeys, seed, st)
	}
}
