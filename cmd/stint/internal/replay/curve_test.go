package replay

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// The burst of a curve is the maximum over all pairs of requests, for arrivals of every kind: bursts
// at one instant, regular ones, pauses of days, costs that differ.
func TestCurveIsExact(t *testing.T) {
	rates := []Rate{{Units: 1, Seconds: 86400}, {Units: 7, Seconds: 3600}, {Units: 10, Seconds: 60}, {Units: 11, Seconds: 1}, {Units: 640, Seconds: 1}, {Units: 1_000_000, Seconds: 1}}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		var c curve
		var all []cumulative
		at, sum := int64(rnd.IntN(3)-1)*1_700_000_000_000_000, int64(0)
		for range 1 + rnd.IntN(300) {
			switch rnd.IntN(4) {
			case 0:
				at += int64(rnd.IntN(2_000_000))
			case 1:
				at += 100_000
			case 2:
				if rnd.IntN(20) == 0 {
					at += rnd.Int64N(200_000_000_000)
				}
			}
			cost := int64(1)
			if seed%3 == 0 {
				cost = 1 + int64(rnd.IntN(50))
			}
			sum += cost
			c.add(at, cost)
			all = append(all, cumulative{at, cost, sum})
		}
		e := c.envelope()
		for i := range e[:len(e)-1] {
			if e[i+1].x <= e[i].x || e[i+1].y <= e[i].y || i > 0 && !steeper(e[i-1], e[i], e[i], e[i+1]) {
				t.Fatalf("seed %d: the envelope isn't one: %v", seed, e)
			}
		}
		for _, r := range rates {
			want := int64(0)
			for i := range all {
				for j := i; j < len(all); j++ {
					filled := big.NewInt(all[j].at - all[i].at)
					filled.Mul(filled, big.NewInt(r.Units)).Div(filled, big.NewInt(r.Seconds*1_000_000))
					if !filled.IsInt64() {
						t.Fatal(filled)
					}
					want = max(want, all[j].sum-all[i].sum+all[i].cost-filled.Int64())
				}
			}
			if got := e.burst(r); got != want {
				t.Errorf("seed %d: burst %d at %+v, want %d", seed, got, r, want)
			}
		}
	}
}

// A key that sends for long keeps few points.
func TestCurveIsSmall(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var c curve
	at := int64(0)
	const requests = 1<<17 - 1 // the most stretches
	for range requests {
		at += int64(rnd.ExpFloat64() * 1e5)
		c.add(at, 1)
	}
	points := len(c.recent)
	for _, p := range c.stretches {
		points += len(p.pairs) + len(p.ends) + len(p.begins)
	}
	if points > 1000 {
		t.Errorf("%d points are kept of %d requests", points, requests)
	}
	if !slices.IsSortedFunc(c.stretches, func(a, b stretch) int { return b.blocks - a.blocks }) {
		t.Error("parts out of order")
	}
}

func BenchmarkCurve(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var c curve
	at := int64(0)
	for b.Loop() {
		at += int64(rnd.ExpFloat64() * 1e5)
		c.add(at, 1)
	}
}

func TestLargest(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		all := make([]int64, 1+rnd.IntN(300))
		for i := range all {
			all[i] = int64(rnd.IntN(1 + rnd.IntN(100)))
		}
		want := slices.Sorted(slices.Values(all))
		slices.Reverse(want)
		n := 1 + rnd.IntN(len(all))
		if got := largest(all, n); !slices.Equal(got, want[:n]) {
			t.Errorf("seed %d: the %d largest are %v, want %v", seed, n, got, want[:n])
		}
	}
}

// A limit counts the rates that are suggested in microseconds, whatever the burst: the wait for a
// token that takes a fraction of one is rounded up to a whole one, and no further.
func TestRatesAreExact(t *testing.T) {
	ctx := t.Context()
	synctest.Test(t, func(t *testing.T) {
		before := 0.0
		for _, r := range candidates {
			if step := r.perSecond() / before; step <= 1 || before > 0 && step > 1.2 {
				t.Errorf("%+v is %v times the rate before it", r, step)
			}
			before = r.perSecond()
			if full := withHeadroom(r, 1.25); full.perSecond() < 1.25*before-1e-9 || full.perSecond() > 1.25*1.13*before {
				t.Errorf("%+v with headroom is %+v", r, full)
			}
			for _, burst := range []int64{1, 10_000} {
				if float64(burst)/before > 40*86400 {
					continue // it is suggested of logs of more than a year
				}
				l, err := store.NewLimit(store.Spec{Name: "rate", Algorithm: store.TokenBucket, Units: r.Units, Period: r.Per(), Burst: burst})
				if err != nil {
					t.Fatal(err)
				}
				m := memstore.New()
				take := func(cost int64) store.Result {
					results := make([]store.Result, 1)
					if err := m.Take(ctx, []store.Charge{{Key: "k", Limit: l, Cost: cost}}, results); err != nil {
						t.Fatal(err)
					}
					return results[0]
				}
				time.Sleep(7 * time.Microsecond)
				if !take(burst).OK {
					t.Fatalf("%+v: the burst doesn't pass", r)
				}
				token := time.Duration((r.Seconds*1_000_000+r.Units-1)/r.Units) * time.Microsecond
				if token == time.Microsecond {
					continue
				}
				time.Sleep(time.Microsecond)
				if got := take(1).RetryAfter; got != token-time.Microsecond {
					t.Errorf("%+v, burst %d: a token after %v, want %v", r, burst, got, token-time.Microsecond)
				}
			}
		}
	})
}
