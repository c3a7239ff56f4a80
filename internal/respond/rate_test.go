package respond

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// All rates are exact and fine enough; round ones are counted in one integer.
func TestNewRate(t *testing.T) {
	check := func(n int64, round bool) {
		r := NewRate(n, 0)
		got := big.NewRat(r.Units, int64(r.Period))
		if got.Mul(got, big.NewRat(r.Block, 1)).Cmp(big.NewRat(n, int64(time.Second))) != 0 {
			t.Errorf("%d is counted as %v a nanosecond", n, got)
		}
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
		if round && l.Engine(engine.Access{}).Terms().Scale.Wide {
			t.Errorf("%d is counted in two integers", n)
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
