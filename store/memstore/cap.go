package memstore

import (
	"fmt"
	"sync/atomic"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

// reserve counts one more key if there is room for it, and reports whether there was.
func (s *Store) reserve() bool {
	if s.keys.Add(1) <= s.max {
		return true
	}
	s.keys.Add(-1)
	return false
}

// reportAt is the number of charges that have found the store full when it is reported.
const reportAt = 100

// Observe implements store.Observable. It tells o of store.Full, once: when the 100th charge on a
// new key has found no room.
func (s *Store) Observe(o *store.Observer) {
	s.observers.Observe(o)
	if s.overflow.Load() >= reportAt {
		go background.Do("reporting a full store", func() { o.Tell(s.isFull()) })
	}
}

func (s *Store) reportFull() { s.observers.Tell(s.isFull()) }

func (s *Store) isFull() store.Notice {
	return store.Notice{Kind: store.Full, Err: fmt.Errorf("the store in memory is full with %d keys, so new keys share states: "+
		"write memstore.WithMaxKeys(%d), or use keys that clients can't make up", s.max, 4*s.max)}
}

// When a new key finds the store full, the call searches so many slots of so many shards
// for expired keys. That is all of a small store, and takes a few microseconds in a large
// one. If it doesn't find enough, no call searches again for searchAgain, so that the
// calls of a flood cost little more than others.
const (
	searchSlots  = 4096
	searchShards = 64
	searchAgain  = 1000 // microseconds
)

// makeRoom drops expired keys if the charges bring more new keys than there is room for.
// The caller holds the visits' locks. Other shards are skipped if they are locked, so
// that no two calls wait for each other.
func (s *Store) makeRoom(now int64, visits []visit, charges []store.Charge) {
	if s.keys.Load()+int64(len(visits)) <= s.max {
		return
	}
	fresh := int64(0)
	for i := range visits {
		if v := &visits[i]; charges[v.i].Cost > 0 && v.word == vacant {
			fresh++
		}
	}
	full := func() bool { return s.keys.Load()+fresh > s.max }
	if fresh == 0 || !full() || now < s.vain.Load() {
		return
	}
	for i := range visits { // with a vacant slot, the search passes over the call's own keys
		if v := &visits[i]; v.word != vacant {
			atomic.StoreInt64(&v.slot.word, vacant)
		}
	}
	left := searchSlots
	for i := range visits {
		if sh := visits[i].shard; i == 0 || sh != visits[i-1].shard {
			left -= s.search(sh, now, left/2)
		}
	}
	for n := min(searchShards, len(s.shards)); n > 0 && left > 0 && full(); n-- {
		if sh := &s.shards[s.next.Add(1)&s.mask]; sh.mu.TryLock() {
			left -= s.search(sh, now, left)
			sh.mu.Unlock()
		}
	}
	if full() {
		s.vain.Store(now + searchAgain)
	}
}

// search examines up to n of a shard's slots, and returns how many it examined.
func (s *Store) search(sh *shard, now int64, n int) int {
	n = min(n, sh.slots())
	s.dropped(sh.expire(n, now))
	return n
}
