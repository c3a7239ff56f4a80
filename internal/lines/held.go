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
	empty int // how many of the keys hold nothing
	// tenants has the slots that each tenant of a key holds, by a hash of both. Tenants that hold none aren't in it.
	tenants map[uint64]int64
	_       [32]byte // each lock on a cache line of its own
}

const heldParts = 16

// keptEmpty is how many keys that hold nothing a part keeps beside as many as hold
// something.
const keptEmpty = 64

var heldSeed = maphash.MakeSeed()

// hashOf returns the hash of a key. maphash.Comparable takes three times as long, and every request with a slot needs
// the hash twice.
func hashOf(key Key) uint64 {
	limit := maphash.String(heldSeed, key.Limit)
	if key.Slots {
		limit++
	}
	if key.Decided {
		limit += 2
	}
	return limit*0x9E3779B97F4A7C15 ^ maphash.String(heldSeed, key.Key)
}

// Tenant identifies a tenant of a fair queue, by 48 bits of a hash of its key: so many have room in a grant. The zero
// Tenant is none.
type Tenant uint64

// TenantOf returns the tenant that has a key. It may be empty.
func TenantOf(key string) Tenant { return Tenant(max(maphash.String(heldSeed, key)>>16, 1)) }

// of returns the hash under which a tenant of a key is counted.
func (t Tenant) of(key Key) uint64 { return hashOf(key) ^ uint64(t)*0x9E3779B97F4A7C15 }

// part returns the part of a hash.
func (h *held) part(hash uint64) *heldPart { return &h[hash%heldParts] }

// add counts n slots of key as held by a class and by a tenant, or as released if n is negative.
func (h *held) add(key Key, class uint8, t Tenant, n int64) {
	hash := hashOf(key)
	h.part(hash).add(hash, class, n)
	if t != 0 {
		hash = t.of(key)
		h.part(hash).addTenant(hash, n)
	}
}

func (p *heldPart) add(hash uint64, class uint8, n int64) {
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

func (p *heldPart) addTenant(hash uint64, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tenants == nil {
		p.tenants = map[uint64]int64{}
	}
	if p.tenants[hash] += n; p.tenants[hash] == 0 {
		delete(p.tenants, hash)
	}
}

// byTenant returns how many slots are held under the hash of a tenant of a key.
func (h *held) byTenant(hash uint64) int64 {
	p := h.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenants[hash]
}

// slots returns how many slots of a key are held, by a class and in total.
func (h *held) slots(key Key, class uint8) (ofClass, total int64) {
	hash := hashOf(key)
	p := h.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.keys[hash]; now != nil {
		return now.class[class], now.total
	}
	return 0, 0
}

// len returns of how many keys slots are held, and by how many tenants of them.
func (h *held) len() (n int) {
	for i := range h {
		p := &h[i]
		p.mu.Lock()
		n += len(p.keys) - p.empty + len(p.tenants)
		p.mu.Unlock()
	}
	return n
}

// belowShare reports whether w's class is below its share: it holds no slot, or if w got its
// slots it would hold no more than its share of all that are then held. What the calls of l ask for counts as held, if
// l isn't nil.
func (h *held) belowShare(w *Waiter, l *line) bool {
	if w.Shares == nil || w.Class == Raises {
		return false
	}
	shares := w.Shares()
	if shares == nil || shares[w.Class] == 0 {
		return false
	}
	ofClass, total := h.slots(w.Key, w.Class)
	if l != nil && l.asking > 0 {
		for class := range l.classes {
			asked := l.asked(&l.classes[class])
			if total += asked; class == int(w.Class) {
				ofClass += asked
			}
		}
	}
	return ofClass == 0 || (ofClass+w.Cost)*100 <= int64(shares[w.Class])*(total+w.Cost)
}

// rank returns where a waiter stands among others now: a raise is above all requests, a class below its share is above
// all that aren't, and otherwise a higher class is above a lower one. Waiters of one rank
// go in the order in which they arrived. l is as in belowShare.
func (h *held) rank(w *Waiter, l *line) int {
	rank := int(w.Class)
	if w.Class == Raises {
		return rank + Classes
	}
	if h.belowShare(w, l) {
		rank += Classes
	}
	return rank
}
