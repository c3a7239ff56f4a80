package memstore

import "github.com/stint-go/stint/store"

// A slot's word is a state where it can be: a token or leaky bucket that owes
// nothing beyond its capacity is one instant, signed, which takes the upper 54
// bits (store counts in no more), and the numbers it was written under. Those
// are few: the lower ten bits are their place in the list of known rates. 0
// there marks a word whose upper bits are an index into the shard's slab, where
// a State is kept in full.
const (
	rateBits = 10
	rateMask = 1<<rateBits - 1
)

// pack makes a word of a bucket's state, if it fits one. rate is the place of
// the numbers that it had before, or 0.
func pack(s *store.State, rate int64) (word int64, ok bool) {
	if rate == 0 || rates.at(rate) != s.Numbers {
		if rate = rates.place(s.Numbers); rate == 0 {
			return 0, false
		}
	}
	word = s.A<<rateBits | rate
	ok = s.A == word>>rateBits && s.B|s.C|s.D|s.E == 0 && s.Live && len(s.Log) == 0
	return word, ok
}

func unpack(word int64, s *store.State) {
	s.Live = true
	s.Numbers = rates.at(word & rateMask)
	s.A = word >> rateBits
}

// packed says whether the word is a state itself.
func packed(word int64) bool { return word&rateMask != 0 }

// full says whether the bucket in a packed word has become full by the instant
// now, in microseconds: from then on it is as if never seen.
func full(word, now int64) bool {
	return word>>rateBits <= rates.at(word&rateMask).At(now)
}

// isBucket says whether a limit's states may be packed.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket
}
