package respond

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// All rates are exact and fine enough; round ones are counted in one integer.
func TestNewRate(t *testing.T) {
	check := func(n int64, round bool) {
		r := NewRate(n, 0)
		if r.Block > max(1, n/1000) {
			t.Errorf("%d is counted in blocks of %d", n, r.Block)
		}
		if r.Piece%r.Block != 0 || r.Piece > r.Burst*r.Block {
			t.Errorf("%d is paid for in pieces of %d, in blocks of %d, up to %d blocks", n, r.Piece, r.Block, r.Burst)
		}
		l, err := store.NewLimit(store.Spec{Name: "rate", Units: r.Units, Period: r.Period, Burst: r.Burst})
		if err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		terms := inside.Terms(l)
		perSecond := big.NewRat(terms.Scale.PerTick*r.Block*1_000_000, terms.Token*terms.Scale.Tick())
		least := big.NewRat(n*9_999, 10_000)
		if round {
			least.SetInt64(n)
		}
		if perSecond.Cmp(big.NewRat(n, 1)) > 0 || perSecond.Cmp(least) < 0 {
			t.Errorf("%d bytes per second are counted as %v", n, perSecond)
		}
	}
	for _, unit := range []int64{1000, 1024, 1_000_000, 1 << 20, 1_000_000_000, 1 << 30} {
		for _, k := range []int64{2, 3, 5, 8, 10, 16, 25, 50, 64} {
			if n := unit * k; n <= Fastest {
				check(n, n <= 1<<30)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		check(1024+rnd.Int64N(1<<(1+rnd.IntN(35))), false)
	}
	check(Slowest, true)
	check(Fastest, true)
	check(1_000_003, false)
}
