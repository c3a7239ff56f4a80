package respond

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stint-go/stint/store"
)

// Rates are exact where they are round, and within a ten thousandth elsewhere;
// all of them can be counted, finely enough.
func TestNewRate(t *testing.T) {
	check := func(n int64, round bool) {
		r := NewRate(n, 0)
		got := float64(r.Units) * float64(r.Block) / r.Period.Seconds()
		if off := math.Abs(got/float64(n) - 1); round && off > 1e-12 || off > 1e-4 {
			t.Errorf("%d is counted as %v", n, got)
		}
		if r.Block > max(1, n/1000) {
			t.Errorf("%d is counted in blocks of %d", n, r.Block)
		}
		if r.Piece%r.Block != 0 || r.Piece > r.Burst*r.Block {
			t.Errorf("%d is paid for in pieces of %d, in blocks of %d, up to %d blocks", n, r.Piece, r.Block, r.Burst)
		}
		if _, err := store.NewLimit(store.Spec{Name: "rate", Units: r.Units, Period: r.Period, Burst: r.Burst}); err != nil {
			t.Errorf("%d: %v", n, err)
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
	check(Slowest, false)
	check(Fastest, false)
}
