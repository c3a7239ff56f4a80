package memory

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// A slot's word encodes the state itself if it can. A token or leaky bucket that owes
// nothing beyond its capacity, and of which no refund is recorded, is one signed instant, in the
// upper 54 bits (package store uses no more), and the numbers of its last charge. Programs have
// few such numbers, so the lower ten bits are their place in the list of known rates. If
// the lower bits are 0, the upper ones are a place in the shard's slab, counted from 1,
// which holds the whole State.
const (
	rateBits = 10
	rateMask = 1<<rateBits - 1
)

// vacant is the word of a slot without a state: the key has none, or the holder of the
// shard's lock has taken it out.
const vacant = 0

// pack makes a word of a bucket's state, if it fits one. rate is the place of the numbers
// of its last charge, or 0.
func pack(s *algorithm.State, rate int64) (word int64, ok bool) {
	if rate == 0 || rates.list[rate&rateMask] != s.Numbers {
		if rate = rates.placeOf(s.Numbers); rate == 0 {
			return 0, false
		}
	}
	tat := s.W[algorithm.Tat]
	word = tat<<rateBits | rate
	ok = s.Live && s.W == algorithm.Words{algorithm.Tat: word >> rateBits} && len(s.Log) == 0
	return word, ok
}

// repack returns a packed word with another tat, and whether that fits.
func repack(word, tat int64) (next int64, ok bool) {
	next = tat<<rateBits | word&rateMask
	return next, next>>rateBits == tat
}

// stepWord decides a charge on the bucket in a packed word, and returns the bucket's new tat. If ok is
// false, the charge needs or leaves more than a word, and r is meaningless.
func stepWord(word, now int64, c *store.Charge, r *store.Result) (tat int64, ok bool) {
	charge := algorithm.Charge{Cost: c.Cost, MaxWait: c.MaxWait}
	return inside.Limit(c.Limit).StepPlain(rateOf(word), now, word>>rateBits, charge, (*algorithm.Result)(r))
}

// unpack makes the state that a packed word encodes.
func unpack(word int64, s *algorithm.State) {
	s.Live, s.Numbers, s.W[algorithm.Tat] = true, *rateOf(word), word>>rateBits
}

// rateOf returns the numbers of a packed word's last charge.
func rateOf(word int64) *algorithm.Numbers { return &rates.list[word&rateMask] }

// packed reports whether the word encodes a state itself.
func packed(word int64) bool { return word&rateMask != 0 }

// bucketFull reports whether the bucket in a packed word is full at now, in microseconds. From
// then on it has expired.
func bucketFull(word, now int64) bool {
	return word>>rateBits <= rates.list[word&rateMask].At(now)
}

// isBucket reports whether a limit's states may be packed.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket
}

// rates are the numbers that words refer to. They are never removed, because programs
// have few. In a program that keeps making up new ones the list gets full, and states of
// later limits go to slabs.
//
// The list belongs to the process, not to a store: it holds no data of any key, and a
// shard has no room for a pointer to it.
var rates rateList

type rateList struct {
	// list is written once at each place, before any word refers to that place. The
	// atomic store of the word publishes it.
	list [1 << rateBits]algorithm.Numbers
	// known maps numbers to places. It is replaced, never changed.
	known atomic.Pointer[map[algorithm.Numbers]int64]
	mu    sync.Mutex
}

// placeOf returns the place of the numbers, and adds them if they are new. It returns 0 if
// there is no room.
func (r *rateList) placeOf(n algorithm.Numbers) int64 {
	if known := r.known.Load(); known != nil {
		if place := (*known)[n]; place != 0 || len(*known) == rateMask {
			return place
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var known map[algorithm.Numbers]int64
	if p := r.known.Load(); p != nil {
		known = *p
	}
	if place := known[n]; place != 0 || len(known) == rateMask {
		return place
	}
	place := int64(len(known) + 1)
	more := maps.Clone(known)
	if more == nil {
		more = make(map[algorithm.Numbers]int64)
	}
	more[n] = place
	r.list[place] = n
	r.known.Store(&more)
	return place
}
