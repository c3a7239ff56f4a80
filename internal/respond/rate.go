package respond

import "time"

// Rate is bytes per second as a bucket counts them: in ticks of at most a millisecond,
// and in blocks of bytes that can be counted in one integer.
type Rate struct {
	Units, Burst int64
	Period       time.Duration
	Block, Piece int64 // for a ByteLimit
}

const (
	// Slowest and Fastest bound the bytes per second of a Rate.
	Slowest int64 = 1 << 10
	Fastest int64 = 1 << 36
	// LeastPiece is the least that is paid for at once, and the least burst, in bytes:
	// with less, every few bytes would cost a call to the store.
	LeastPiece int64 = 4 << 10
	// finestUnits is how many units a millisecond may have, so that a store's instants
	// are one integer with room for the burst (engine.Scale).
	finestUnits int64 = 14_000
)

// NewRate returns the rate for bytesPerSecond, from Slowest to Fastest, with a burst of
// at least LeastPiece. A burst of 0 means a quarter of a second's worth, at least 16
// KiB.
func NewRate(bytesPerSecond, burst int64) Rate {
	if burst == 0 {
		burst = max(bytesPerSecond/4, 16<<10)
	}
	// Turns are exact to a millisecond at worst: with a burst smaller than what passes
	// in one, the rate would never be reached.
	burst = max(burst, bytesPerSecond/1000)
	var r Rate
	r.Units, r.Period, r.Block = blocksPer(bytesPerSecond)
	r.Burst = max(burst/r.Block, 1)
	r.Piece = min(max(bytesPerSecond/16, LeastPiece), burst)
	r.Piece = max(r.Piece/r.Block, 1) * r.Block
	return r
}

// blocksPer converts n bytes per second to units per period of a bucket, and returns the bytes of a
// unit. Rates in decimal or binary round numbers are exact, in blocks of less than half a
// millisecond's worth. Others are rounded down to whole blocks a second, and a store may round them
// down further, in all by less than one part in 10,000.
func blocksPer(n int64) (units int64, period time.Duration, block int64) {
	block = 1
	for n/(1000*block) >= finestUnits {
		block *= 2
	}
	// The smallest block in which the rate is exact, of at most half a millisecond's bytes.
	for b := block; b == block || b <= n/2000; b *= 2 {
		g := gcd(n, 1000*b)
		if n/g <= finestUnits {
			return n / g, time.Duration(1000*b/g) * time.Millisecond, b
		}
	}
	return n / block, time.Second, block
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
