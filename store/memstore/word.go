package memstore

import "github.com/stint-go/stint/store"

// A slot's word is a state where it can be: a token or leaky bucket that owes
// nothing beyond its capacity is one instant and the scale it counts in. From
// the low end: three bits of the scale's exponent, seven of its units per tick,
// and 54 of the instant, signed, which is all that store counts in. Limits with
// a scale of more than 127 units per tick (128 to 1000 per second in no round
// number, say 997) do not fit.
//
// An exponent of 7 marks a word whose upper bits are an index into the shard's
// slab, where a State is kept in full.
const (
	exponentBits = 3
	perTickBits  = 7
	instantShift = exponentBits + perTickBits

	exponentMask = 1<<exponentBits - 1
	perTickMask  = 1<<perTickBits - 1

	inSlab = exponentMask
)

// tick is the length of a scale's tick in microseconds, by exponent.
var tick = [...]int64{1, 10, 100, 1000, 10_000, 100_000}

// pack makes a word of a bucket's state, if it fits one.
func pack(s *store.State) (word int64, ok bool) {
	word = s.A<<instantShift | s.Scale.PerTick<<exponentBits | int64(s.Scale.Exponent)
	ok = s.A == word>>instantShift &&
		uint64(s.Scale.PerTick) <= perTickMask &&
		int(s.Scale.Exponent) < len(tick) &&
		s.B|s.C == 0 && s.Live && len(s.Log) == 0
	return word, ok
}

func unpack(word int64, s *store.State) {
	s.Live = true
	s.Scale.Exponent = uint8(word & exponentMask)
	s.Scale.PerTick = word >> exponentBits & perTickMask
	s.A = word >> instantShift
}

// packed says whether the word is a state itself.
func packed(word int64) bool { return word&exponentMask != inSlab }

// full says whether the bucket in a packed word has become full by the instant
// now, in microseconds: from then on it is as if never seen.
func full(word, now int64) bool {
	units := now
	if e := word & exponentMask; e != 0 {
		t := tick[e]
		units = now / t
		if now%t < 0 {
			units--
		}
	}
	return word>>instantShift <= units*(word>>exponentBits&perTickMask)
}

// isBucket says whether a limit's states may be packed.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket
}
