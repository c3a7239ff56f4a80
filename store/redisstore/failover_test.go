package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// gate is a way to the server that can be shut.
type gate struct {
	tap
	shut atomic.Bool
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if g.shut.Load() {
			cmd.SetErr(errGone)
			return errGone
		}
		return next(ctx, cmd)
	}
}

// Receipts of a store made of two: while the server comes and goes, every charge
// is settled where it was made, in parts, late, and together with those of the
// other side. In the end each side has charged what its receipts say, to the unit.
func TestReceiptsOfBothSides(t *testing.T) {
	server := redistest.Start(t)
	for seed := range uint64(4) {
		for _, threshold := range []int{1, 1 << 20} { // opens at once, or never
			t.Run(fmt.Sprint("opens after ", threshold, ", ", seed), func(t *testing.T) {
				rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
				g := new(gate)
				rdb.AddHook(g)
				primary, secondary := New(rdb, WithPrefix(redistest.Prefix(t)), WithTimeout(time.Minute)), memstore.New()
				defer primary.Close()
				s := failover.New(primary, secondary,
					failover.WithThreshold(threshold), failover.WithProbe(time.Millisecond, time.Second))
				defer s.Close()
				receiptsOfBoth(t, s, [2]store.Store{primary, secondary}, g, rand.New(rand.NewPCG(seed, uint64(threshold))))
			})
		}
	}
}

func receiptsOfBoth(t *testing.T, s *failover.Store, sides [2]store.Store, g *gate, rnd *rand.Rand) {
	const units = 5000
	var limits []*store.Limit
	for i, spec := range []store.Spec{
		{Units: units, Period: 365 * 24 * time.Hour},
		{Algorithm: store.IntervalBucket, Units: units, Period: 365 * 24 * time.Hour},
		{Algorithm: store.FixedWindow, Units: units, Period: 365 * 24 * time.Hour},
		{Algorithm: store.SlidingLog, Units: units, Period: 365 * 24 * time.Hour},
		{Algorithm: store.Concurrency, Units: units},
	} {
		spec.Name = fmt.Sprint("l", i)
		limits = append(limits, denyLimit(t, spec))
	}
	ctx := t.Context()
	var made []store.Charge
	settled := func(charges []store.Charge, which []int) {
		results := make([]store.Result, len(charges))
		err := s.Settle(ctx, charges, results)
		if err != nil && !errors.Is(err, failover.ErrOpen) && !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		for j, i := range which {
			// The side that is gone has settled nothing; it is the caller's to try
			// again. A slot is released later by itself, and again does no harm.
			if ofPrimary := charges[j].Receipt.Path&1 == 0; err == nil || !ofPrimary {
				made[i].Receipt = results[j].Receipt
			}
		}
	}
	for range 150 {
		if rnd.IntN(15) == 0 {
			if g.shut.Store(!g.shut.Load()); !g.shut.Load() {
				awaitClosed(t, s)
			}
		}
		if len(made) > 0 && rnd.IntN(2) == 0 {
			var which []int
			var charges []store.Charge
			for range 1 + rnd.IntN(4) {
				i := rnd.IntN(len(made))
				twice := false
				for _, j := range which {
					twice = twice || i == j
				}
				if twice {
					continue
				}
				c := made[i]
				switch c.Cost = rnd.Int64N(6); c.Limit.Algorithm() {
				case store.Concurrency:
					c.Cost = 0
				case store.SlidingLog: // whose debts are not given back: they have left later
					c.Cost = min(c.Cost, c.Receipt.Cost)
				}
				charges, which = append(charges, c), append(which, i)
			}
			settled(charges, which)
			continue
		}
		charges := make([]store.Charge, 1+rnd.IntN(len(limits)))
		for i, k := range rnd.Perm(len(limits))[:len(charges)] {
			charges[i] = store.Charge{Key: fmt.Sprint(rnd.IntN(2)), Limit: limits[k], Cost: 1 + rnd.Int64N(4)}
			if limits[k].Algorithm() == store.Concurrency {
				charges[i].Cost = 1
			}
		}
		results := make([]store.Result, len(charges))
		if err := s.Take(ctx, charges, results); err != nil {
			t.Fatal(err)
		}
		for i, c := range charges {
			c.Receipt = results[i].Receipt
			made = append(made, c)
		}
	}
	g.shut.Store(false)
	awaitClosed(t, s)
	type place struct {
		side  uint8
		key   string
		limit *store.Limit
	}
	charged := map[place]int64{}
	for _, c := range made {
		at := place{c.Receipt.Path & 1, c.Key, c.Limit}
		charged[at] += c.Receipt.Cost
	}
	both := [2]int{}
	for at, want := range charged {
		both[at.side]++
		var r [1]store.Result
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // slots released by and by
			if err := sides[at.side].Take(ctx, []store.Charge{{Key: at.key, Limit: at.limit}}, r[:]); err != nil {
				t.Fatal(err)
			}
			got := units - r[0].Remaining
			if late := at.limit.Algorithm() == store.TokenBucket && got > want && got <= want+want/10+4; late {
				break // what is known of the lows since a charge is bounded, and so is what it gets back
			}
			if got == want || at.limit.Algorithm() == store.Concurrency && at.side == 0 && got < want {
				break // of slots, some releases were made that the caller was told were not
			}
			if time.Now().After(end) {
				t.Fatalf("side %d has charged %d on %v, its receipts say %d", at.side, got, at.limit.Algorithm(), want)
			}
		}
	}
	if both[0] == 0 || both[1] == 0 {
		t.Errorf("charged on %v places: the test is at fault", both)
	}
}

func awaitClosed(t *testing.T, s *failover.Store) {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.Stats().State != failover.Closed; time.Sleep(time.Millisecond) { // a real server is probed
		if time.Now().After(end) {
			t.Fatal("the breaker stays open")
		}
	}
}
