package lines

import (
	"hash/maphash"
	"maps"
	"sync"
)

// holdings counts the slots held of one key in this process.
type holdings struct {
	total int64
	class [Classes]int64
}

// held counts the slots held in this process, of all limits: a share that an Update
// adds counts those held before. Every request adds the slots that it is granted and subtracts
// them again. So keys are spread over parts with a lock each, and a key that holds
// nothing any more keeps its place for a while: to insert and delete it for each request
// would take twice as long as to count.
type held [heldParts]heldPart

type heldPart struct {
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

func hashOf(key Key) uint64 { return maphash.Comparable(heldSeed, key) }

// part returns the part of a key, and the key's hash in it.
func (h *held) part(key Key) (p *heldPart, hash uint64) {
	hash = hashOf(key)
	return &h[hash%heldParts], hash
}

// add counts n slots of key as held by a class, or as released if n is negative.
func (h *held) add(key Key, class uint8, n int64) {
	p, hash := h.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.keys[hash]
	if now == nil {
		if p.keys == nil {
			p.keys = map[uint64]*holdings{}
		}
		now = new(holdings)
		p.keys[hash] = now
		p.empty++
	}
	before := now.total
	now.class[class] += n
	now.total += n
	switch {
	case before == 0 && now.total != 0:
		p.empty--
	case before != 0 && now.total == 0:
		if p.empty++; p.empty > len(p.keys)/2+keptEmpty {
			maps.DeleteFunc(p.keys, func(_ uint64, h *holdings) bool { return h.total == 0 })
			p.empty = 0
		}
	}
}

// slots returns how many slots of a key are held, by a class and in total.
func (h *held) slots(key Key, class uint8) (ofClass, total int64) {
	p, hash := h.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.keys[hash]; now != nil {
		return now.class[class], now.total
	}
	return 0, 0
}

// len returns of how many keys slots are held.
func (h *held) len() (n int) {
	for i := range h {
		p := &h[i]
		p.mu.Lock()
		n += len(p.keys) - p.empty
		p.mu.Unlock()
	}
	return n
}

// belowShare reports whether w's class is below its share: it holds no slot, or if w got its
// slots it would hold no more than its share of all that are then held.
func (h *held) belowShare(w *Waiter) bool {
	if w.Shares == nil || w.Class == Raises {
		return false
	}
	shares := w.Shares()
	if shares == nil || shares[w.Class] == 0 {
		return false
	}
	ofClass, total := h.slots(w.Key, w.Class)
	return ofClass == 0 || (ofClass+w.Cost)*100 <= int64(shares[w.Class])*(total+w.Cost)
}

// rank returns where a waiter stands among others now: a raise is above all requests, a class below its share is above
// all that aren't, and otherwise a higher class is above a lower one. Waiters of one rank
// go in the order in which they arrived.
func (h *held) rank(w *Waiter) int {
	rank := int(w.Class)
	if w.Class == Raises {
		return rank + Classes
	}
	if h.belowShare(w) {
		rank += Classes
	}
	return rank
}
