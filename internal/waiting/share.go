package waiting

import (
	"hash/maphash"
	"sync"
)

// Shares are the percentages of a limit's slots that are promised to classes; 0
// for none.
type Shares [Classes]uint8

// holdings is what is held of one key in this process.
type holdings struct {
	total int64
	class [Classes]int64
}

// held counts the slots that are held in this process, of all limits: a share
// that an update adds counts those that were there before. A request adds what it
// has been granted and takes it away, so keys are spread over parts with a lock
// each, and what a map holds is no pointer.
type held [heldParts]struct {
	mu   sync.Mutex
	keys map[Key]holdings
	_    [48]byte // locks of their own cache lines
}

const heldParts = 16

var heldSeed = maphash.MakeSeed()

// Hold counts n slots of key as held by a class, or no longer with a negative n.
func (s *Slots) Hold(key Key, class uint8, n int64) {
	p := &s.held[maphash.String(heldSeed, key.Key)%heldParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.keys[key]
	now.class[class] += n
	if now.total += n; now.total == 0 {
		delete(p.keys, key)
		return
	}
	if p.keys == nil {
		p.keys = map[Key]holdings{}
	}
	p.keys[key] = now
}

// of returns what is held of a key, by a class and in all.
func (h *held) of(key Key, class uint8) (own, total int64) {
	p := &h[maphash.String(heldSeed, key.Key)%heldParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.keys[key]
	return now.class[class], now.total
}

// owes reports whether w's class is to be served before those that hold their
// share: it holds nothing yet, or no more than its share with what w asks for.
func (s *Slots) owes(w *Want) bool {
	shares := w.Shares()
	class := w.Rank.Class
	if shares == nil || shares[class] == 0 {
		return false
	}
	own, total := s.held.of(w.Key, class)
	return own == 0 || (own+w.Cost)*100 <= int64(shares[class])*(total+w.Cost)
}
