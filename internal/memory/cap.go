package memory

import (
	"fmt"
	"slices"
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

// Observe implements store.Observable. It sends store.Full to o once, at the 100th charge on a
// new key for which the store has no room.
func (s *Store) Observe(o *store.Observer) {
	s.observers.Observe(o)
	if s.overflow.Load() >= reportAt {
		go background.Do("reporting a full store", func() { o.Tell(s.fullNotice()) })
	}
}

func (s *Store) reportFull() { s.observers.Tell(s.fullNotice()) }

func (s *Store) fullNotice() store.Notice {
	err := fmt.Errorf("the store in memory is full with %d keys, so new keys share their counts with each other: "+
		"use memstore.WithMaxKeys(%d), or use keys that clients can't make up", s.max, 4*s.max)
	return store.Notice{Kind: store.Full, Err: err}
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
		if v := &visits[i]; charges[v.charge].Cost > 0 && v.word == vacant {
			fresh++
		}
	}
	full := func() bool { return s.keys.Load()+fresh > s.max }
	if fresh == 0 || !full() || now < s.searchAfter.Load() {
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
		s.searchAfter.Store(now + searchAgain)
	}
}

// search examines up to n of a shard's slots, and returns how many it examined.
func (s *Store) search(sh *shard, now int64, n int) int {
	n = min(n, sh.slots())
	s.countDropped(sh.dropExpired(n, now))
	return n
}

// inShared in the last byte of a receipt's lease says that the charge was made against
// a shared state. It is settled there, even if its key has found room since. The first 8
// bytes are enough to tell leases apart.
const inShared = 1

// madeInShared reports whether an earlier charge was made against a shared state.
func madeInShared(c *store.Charge) bool { return c.Receipt.Lease[len(c.Receipt.Lease)-1] == inShared }

// countOverflow updates the statistics for a charge, and makes the result of one for which there
// is no state.
func (s *Store) countOverflow(v *visit, c *store.Charge, r *store.Result, now int64) {
	switch v.where {
	case nowhere:
		wait := v.shard.shared.untilExpiry(now)
		*r = store.Result{OK: c.Cost == 0, ResetAfter: wait}
		if !r.OK {
			r.RetryAfter = wait
		}
	case shared:
		if r.Receipt.Cost > 0 {
			r.Receipt.Lease[len(r.Receipt.Lease)-1] = inShared
		}
	default:
		return
	}
	if c.Cost > 0 {
		if s.overflow.Add(1) == reportAt {
			go background.Do("reporting a full store", s.reportFull) // the caller holds locks
		}
		if !r.OK {
			s.denied.Add(1)
		}
	}
}

// deny decides a call that is denied because there is no state for one of its charges.
// The other results are those without the denial, and nothing is charged.
func deny(now store.Now, visits []visit, charges []store.Charge, states []store.State, results []store.Result) {
	asked, tried := slices.Clone(charges), slices.Clone(states)
	for i := range visits {
		if visits[i].where == nowhere {
			asked[visits[i].charge].Cost = 0
		}
	}
	granted := store.Decide(now, asked, tried, results)
	for i := range asked {
		if granted && asked[i].Cost > 0 && results[i].OK {
			peek := []store.Charge{{Key: asked[i].Key, Limit: asked[i].Limit}}
			store.Decide(now, peek, states[i:i+1], results[i:i+1])
		} else {
			states[i] = tried[i]
		}
	}
}
