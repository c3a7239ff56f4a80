package stint

import (
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/stint-go/stint/store"
)

// WithShare promises a class of WithPriority a share of a concurrency limit's
// slots, in percent. Others may use what of it is idle; when the class needs it,
// it gets it back as slots are released, before all others and whatever their
// class: nobody is interrupted.
//
// Exactly: of the slots that this process holds for a key, counting the one to
// be given, a class that would hold no more than its percentage with it is woken
// before any that would, and so is a class that holds none. Among those, as
// among all others, WithPriority's order counts. A class may hold more than its
// share, in that order.
//
// In a fleet each process keeps to the share of what it holds itself, so the
// whole does, give or take the part of a slot that each rounds: where a process
// holds but a few slots for a key, a small share is one of them.
//
// Slots that were taken before an Update that adds a share count, and those who
// wait then have it.
//
// The shares of a limit's classes are 100 at the most. A class without a share
// gets what those leave; where they add up to 100 and are all used, nothing.
func WithShare(class, percent int) SlotOption {
	return slotOption{change: func(r *rule) {
		bad := func(why string) {
			r.bad("WithShare(%d, %d): %s", class, percent, why)
		}
		switch {
		case class < 0 || class >= classes:
			bad("write a class from 0 to 9")
			return
		case percent < 1 || percent > 100:
			bad("write a share of 1 to 100 percent")
			return
		}
		if r.shares == nil {
			r.shares = new(shares)
		}
		sum := percent
		for _, p := range r.shares {
			sum += int(p)
		}
		switch {
		case r.shares[class] != 0:
			bad("the class has a share already: leave one out")
		case sum > 100:
			bad(fmt.Sprintf("the shares add up to %d percent: write 100 at the most in all", sum))
		default:
			r.shares[class] = uint8(percent)
		}
	}}
}

// shares are the percentages that are promised to classes; 0 for none.
type shares [classes]uint8

// holdings is what the permits of this process hold of one limit and key.
type holdings struct {
	total int64
	class [classes]int64
}

// held counts the slots that permits of this process hold, of all limits: a share
// that an Update adds counts those that were there before. A request adds what it
// has been granted and takes it away, so keys are spread over parts with a lock
// each, and what a map holds is no pointer.
type held [heldParts]struct {
	mu   sync.Mutex
	keys map[slotKey]holdings
	_    [48]byte // locks of their own cache lines
}

const heldParts = 16

var heldSeed = maphash.MakeSeed()

// add counts n slots as held by a class, or no longer with a negative n.
func (h *held) add(key slotKey, class uint8, n int64) {
	p := &h[maphash.String(heldSeed, key.key)%heldParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.keys[key]
	now.class[class] += n
	if now.total += n; now.total == 0 {
		delete(p.keys, key)
		return
	}
	if p.keys == nil {
		p.keys = map[slotKey]holdings{}
	}
	p.keys[key] = now
}

// of returns what is held of a key, by a class and in all.
func (h *held) of(key slotKey, class uint8) (own, total int64) {
	p := &h[maphash.String(heldSeed, key.key)%heldParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.keys[key]
	return now.class[class], now.total
}

// owes reports whether p's class is to be served before those that hold their
// share: it holds nothing yet, or no more than its share with what p asks for.
func (s *slots) owes(p *place) bool {
	shares := p.shares()
	if shares == nil || shares[p.class] == 0 {
		return false
	}
	own, total := s.held.of(p.key, p.class)
	return own == 0 || (own+p.cost)*100 <= int64(shares[p.class])*(total+p.cost)
}

// shares are those of e's limit as it now is.
func (f *family) shares(e *entry) *shares {
	if r := f.now.Load().named().rules[e.limit.Name()]; r != nil {
		return r.shares
	}
	return e.shares
}

// hold counts sign times what charges cost as held by a class.
func (f *family) hold(entries []*entry, charges []store.Charge, class uint8, sign int64) {
	for i, e := range entries {
		if ch := &charges[i]; e.slots && !e.dryRun && ch.Cost > 0 {
			f.slots.held.add(slotKey{ch.Limit.Name(), ch.Key}, class, sign*ch.Cost)
		}
	}
}
