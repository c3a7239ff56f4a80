package memory

import (
	"context"
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// Settle replaces the cost of each earlier charge by charges[i].Cost; see store.Store. The
// charges are settled one after the other.
func (s *Store) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	if !s.usable {
		return s.unusable()
	}
	if err := store.Check(charges, results); err != nil {
		return fail(err)
	}
	for i := range charges {
		s.settle(charges[i:i+1], results[i:i+1])
	}
	if s.tickAt.Load() == noTick {
		s.startTimer(s.steady())
	}
	return nil
}

// settle settles one charge.
func (s *Store) settle(charges []store.Charge, results []store.Result) {
	c, r := &charges[0], &results[0]
	hash := s.hash(c.Key)
	visits := [1]visit{{key: identity(c.Limit, hash), shard: s.shard(hash)}}
	v := &visits[0]
	v.shard.lock()
	defer v.shard.mu.Unlock()
	found := v.takeOut()
	now := s.instant(c.Limit.FollowsCalendar(), false)
	if found && !packed(v.word) && !madeInShared(c) {
		store.Amend(now, c, &v.shard.slab.at(v.word).state[0], r)
		s.keep(v, c.Limit, r, now)
		return
	}

	var states [1]store.State
	s.findEarlier(visits[:], charges, &states[0], now.Steady)
	store.Amend(now, c, &states[0], r)
	s.writeBack(visits[:], charges, states[:], results, now)
	if v.where == shared {
		r.Receipt.Lease[len(r.Receipt.Lease)-1] = inShared
	}
}

// findEarlier finds the state that an earlier charge was made against. It is for calls of one charge:
// visits and charges have one element. If the state has expired, there is nothing to refund, but an
// additional cost is still owed, as it would be if the state had been kept.
func (s *Store) findEarlier(visits []visit, charges []store.Charge, st *store.State, now int64) {
	v, c := &visits[0], &charges[0]
	v.where = absent
	if madeInShared(c) {
		if v.slot != nil { // the key has a state of its own by now: put that back as it was
			atomic.StoreInt64(&v.slot.word, v.word)
		}
		v.share(c.Limit, st, now)
		return
	}
	if v.word != vacant {
		v.where = inTable
		v.shard.load(v.word, st)
		return
	}
	if c.Cost <= c.Receipt.Cost || c.Limit.Algorithm() == store.Concurrency {
		return
	}
	s.makeRoom(now, visits, charges)
	switch {
	case s.reserve():
		v.where = reserved
	case c.Limit.Algorithm() == store.Ban: // as in find
	default:
		v.share(c.Limit, st, now)
	}
}
