package memory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/store"
)

// Limits of one key are decided where their states stand, in words and slabs, and that comes to what
// store.Decide and store.Amend make of copies: the same results, call by call, whatever the
// algorithms, costs and dry runs of a call, and whichever of its limits denies.
func TestStatesInPlace(t *testing.T) {
	specs := []store.Spec{
		{Name: "rate", Units: 3, Period: time.Second, Burst: 5},
		{Name: "queue", Units: 10, Period: time.Second, Burst: 2, Queue: 6},
		{Name: "leaky", Algorithm: store.LeakyBucket, Units: 5, Period: time.Second},
		{Name: "debt", Units: 4, Period: time.Second, Debt: true},
		{Name: "rounded", Units: 1_000_003, Period: 700 * 24 * time.Hour, Burst: 3},
		{Name: "quota", Algorithm: store.FixedWindow, Units: 9, Window: store.Every(time.Minute)},
		{Name: "window", Algorithm: store.FixedWindow, Units: 6, Period: 2 * time.Second},
		{Name: "interval", Algorithm: store.IntervalBucket, Units: 3, Period: time.Second, Burst: 6},
		{Name: "sliding", Algorithm: store.SlidingWindow, Units: 7, Period: 2 * time.Second, Buckets: 4},
		{Name: "counter", Algorithm: store.SlidingCounter, Units: 7, Period: 2 * time.Second},
		{Name: "log", Algorithm: store.SlidingLog, Units: 5, Period: time.Second},
		{Name: "warm", Algorithm: store.WarmUp, Units: 20, Period: time.Second, WarmUp: time.Second},
		{Name: "slots", Algorithm: store.Concurrency, Units: 3},
		{Name: "ban", Algorithm: store.Ban, Units: 4, Period: time.Second, Ban: time.Second},
	}
	var limits []*store.Limit
	for _, s := range specs {
		limits = append(limits, must(s))
		if s.Algorithm == store.TokenBucket || s.Algorithm == store.FixedWindow { // and another version
			s.Units += 2
			limits = append(limits, must(s))
		}
	}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s, began := memory.New(memory.Config{}), time.Now()
			states, leases := map[string]*store.State{}, uint64(0)
			at := func(l *store.Limit, key string) *store.State {
				name := fmt.Sprint(l.StateName(), " ", key)
				if states[name] == nil {
					states[name] = new(store.State)
				}
				return states[name]
			}
			var open []store.Charge
			for step := range 400 {
				now := store.Now{Steady: time.Since(began).Microseconds(), Wall: time.Now().UnixMicro() - store.Epoch*1_000_000}
				if len(open) > 0 && random.IntN(3) == 0 {
					i := random.IntN(len(open))
					c := open[i : i+1 : i+1]
					c[0].Cost = random.Int64N(c[0].Receipt.Cost + 2)
					if c[0].Limit.Algorithm() == store.Concurrency {
						c[0].Cost = 0
					}
					got, want := make([]store.Result, 1), make([]store.Result, 1)
					store.Amend(now, &c[0], at(c[0].Limit, c[0].Key), &want[0])
					if err := s.Settle(t.Context(), c, got); err != nil || got[0] != want[0] {
						t.Fatalf("seed %d, step %d: %s settled at %d: %+v, %v, want %+v", seed, step, c[0].Limit.Name(), c[0].Cost, got[0], err, want[0])
					}
					open = slices.Delete(open, i, i+1)
					continue
				}
				var charges []store.Charge
				var copies []store.State
				key := fmt.Sprint(random.IntN(2))
				for range 1 + random.IntN(4) {
					l := limits[random.IntN(len(limits))]
					if slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Limit.Name() == l.Name() }) {
						continue
					}
					c := store.Charge{Key: key, Limit: l, Cost: random.Int64N(4), DryRun: random.IntN(6) == 0, Final: random.IntN(4) > 0}
					if random.IntN(4) == 0 {
						c.MaxWait = time.Duration(random.IntN(2000)) * time.Millisecond
					}
					charges, copies = append(charges, c), append(copies, *at(l, key))
				}
				if slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Limit.Algorithm() == store.Concurrency }) {
					leases++
					now.Lease = store.Lease(leases)
				}
				got, want := make([]store.Result, len(charges)), make([]store.Result, len(charges))
				store.Decide(now, charges, copies, want)
				for i, c := range charges {
					*at(c.Limit, key) = copies[i]
				}
				if err := s.Take(t.Context(), charges, got); err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: %+v:\n%+v, %v, want\n%+v", seed, step, charges, got, err, want)
				}
				for i, c := range charges {
					if c.Receipt = got[i].Receipt; c.Receipt.Cost > 0 {
						open = append(open, c)
					}
				}
				time.Sleep(time.Duration(random.ExpFloat64() * float64(50*time.Millisecond)))
			}
		})
	}
}
