package memstore

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// A slot's word is a state where it can be: a token or leaky bucket that owes
// nothing beyond its capacity is one instant, signed, which takes the upper 54
// bits (store counts in no more), and the numbers it was written under. Those
// are few: the lower ten bits are their place in the list of known rates. 0
// there marks a word whose upper bits are a place in the shard's slab, counted from
// 1, where a State is kept in full.
const (
	rateBits = 10
	rateMask = 1<<rateBits - 1
)

// vacant is the word of a slot that holds no state: of a key that is as if never seen,
// or whose state somebody has taken out who holds the shard's lock.
const vacant = 0

// pack makes a word of a bucket's state, if it fits one. rate is the place of
// the numbers that it had before, or 0.
func pack(s *store.State, rate int64) (word int64, ok bool) {
	if rate == 0 || rates.list[rate&rateMask] != s.Numbers {
		if rate = rates.place(s.Numbers); rate == 0 {
			return 0, false
		}
	}
	word = s.A<<rateBits | rate
	ok = s.A == word>>rateBits && s.B|s.C|s.D|s.E|int64(s.Low) == 0 && s.Live && len(s.Log) == 0
	return word, ok
}

// unpack makes a state of a word, if it is one.
func unpack(word int64, s *store.State) bool {
	rate := word & rateMask
	s.Live, s.Numbers, s.A = rate != 0, rates.list[rate], word>>rateBits
	return rate != 0
}

// packed says whether the word is a state itself.
func packed(word int64) bool { return word&rateMask != 0 }

// full says whether the bucket in a packed word has become full by the instant
// now, in microseconds: from then on it is as if never seen.
func full(word, now int64) bool {
	return word>>rateBits <= rates.list[word&rateMask].At(now)
}

// isBucket says whether a limit's states may be packed.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket
}

// rates are the numbers that words refer to. Programs have a few, so they are
// never forgotten; one that makes up ever new ones finds the list full at some
// time, and the states of its later limits in slabs.
//
// The list belongs to the process, not to a store: it holds nothing of anybody,
// and a shard has no room to say where to look.
var rates rateList

type rateList struct {
	// list is written once at each place, before anybody is told of the place:
	// words travel under the lock of their shard.
	list [1 << rateBits]store.Numbers
	// known finds the places. It is replaced, never changed.
	known atomic.Pointer[map[store.Numbers]int64]
	mu    sync.Mutex
}

// place finds the numbers, and adds them if there is room; 0 if there isn't.
func (r *rateList) place(n store.Numbers) int64 {
	if known := r.known.Load(); known != nil {
		if place := (*known)[n]; place != 0 || len(*known) == rateMask {
			return place
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var known map[store.Numbers]int64
	if p := r.known.Load(); p != nil {
		known = *p
	}
	if place := known[n]; place != 0 || len(known) == rateMask {
		return place
	}
	place := int64(len(known) + 1)
	more := maps.Clone(known)
	if more == nil {
		more = make(map[store.Numbers]int64)
	}
	more[n] = place
	r.list[place] = n
	r.known.Store(&more)
	return place
}
