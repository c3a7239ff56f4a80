package waiting

import (
	"hash/maphash"
	"maps"
	"sync"
)

// Shares are the percentages of a limit's slots that are reserved for classes; 0 for
// none.
type Shares [Classes]uint8

// holdings counts the slots held of one key in this process.
type holdings struct {
	total int64
	class [Classes]int64
}

// held counts the slots held in this process, of all limits: a share that an update
// adds counts those held before. Every request adds what it has been granted and takes
// it away again, so keys are spread over parts with a lock each, and a key that holds
// nothing any more keeps its place for a while: to insert and delete it for each request
// would take twice as long as to count.
type held [heldParts]struct {
	mu sync.Mutex
	// keys are by a hash of 64 bits, which takes half the time of a map by their texts. Two keys
	// with the same hash would count for each other's shares.
	keys  map[uint64]*holdings
	empty int      // how many of the keys hold nothing
	_     [40]byte // each lock on a cache line of its own
}

const heldParts = 16

// keptEmpty is how many keys that hold nothing a part keeps beside as many as hold
// something.
const keptEmpty = 64

var heldSeed = maphash.MakeSeed()

// AddHeld counts n slots of key as held by a class, or as released if n is negative.
func (s *Slots) AddHeld(key Key, class uint8, n int64) {
	id := maphash.Comparable(heldSeed, key)
	p := &s.held[id%heldParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.keys[id]
	if now == nil {
		if p.keys == nil {
			p.keys = map[uint64]*holdings{}
		}
		now = new(holdings)
		p.keys[id] = now
		p.empty++
	}
	was := now.total
	now.class[class] += n
	now.total += n
	switch {
	case was == 0 && now.total != 0:
		p.empty--
	case was != 0 && now.total == 0:
		if p.empty++; p.empty > len(p.keys)/2+keptEmpty {
			maps.DeleteFunc(p.keys, func(_ uint64, h *holdings) bool { return h.total == 0 })
			p.empty = 0
		}
	}
}

// of returns what is held of a key, by a class and in total.
func (h *held) of(key Key, class uint8) (own, total int64) {
	id := maphash.Comparable(heldSeed, key)
	p := &h[id%heldParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.keys[id]; now != nil {
		return now.class[class], now.total
	}
	return 0, 0
}

// owes reports whether w's class is below its share: it holds nothing yet, or with what w
// wants it holds no more than its share of all that is then held.
func (s *Slots) owes(w *Want) bool {
	shares := w.Shares()
	class := w.Rank.Class
	if shares == nil || shares[class] == 0 {
		return false
	}
	own, total := s.held.of(w.Key, class)
	return own == 0 || (own+w.Cost)*100 <= int64(shares[class])*(total+w.Cost)
}
