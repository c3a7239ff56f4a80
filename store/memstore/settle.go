package memstore

import (
	"context"

	"github.com/stint-go/stint/store"
)

// Settle makes each earlier charge cost charges[i].Cost after all; see
// store.Store. The charges are settled one after the other.
func (s *Store) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	if err := check(charges, results); err != nil {
		return err
	}
	for i := range charges {
		s.settle(&charges[i], &results[i])
	}
	return nil
}

func (s *Store) settle(c *store.Charge, r *store.Result) {
	now := s.instant(c.Limit)
	h := s.hash(c.Key, c.Limit)
	visits := [1]visit{{hash: h, shard: s.shard(h)}}
	v := &visits[0]
	v.shard.mu.Lock()
	defer v.shard.mu.Unlock()
	v.shard.advance(&now)

	var st store.State
	s.trace(visits[:], c, &st, now.Steady)
	store.Amend(now, c, &st, r)
	s.put(v, c.Limit, &st, r, now)
	if v.where == shared {
		r.Receipt.Lease[len(r.Receipt.Lease)-1] = overflowed
	}
}

// trace finds the state that an earlier charge was made against. It may have
// expired: then there is nothing to give back, but what is added is still owed,
// as it would be had the state been kept.
func (s *Store) trace(visits []visit, c *store.Charge, st *store.State, now int64) {
	v := &visits[0]
	v.where = absent
	if c.Receipt.Lease[len(c.Receipt.Lease)-1] == overflowed {
		v.share(c.Limit, st, now, true)
		return
	}
	if i := v.shard.find(v.hash); i >= 0 {
		v.where = held
		v.shard.load(i, st)
		return
	}
	if c.Cost <= c.Receipt.Cost || c.Limit.Algorithm() == store.Concurrency {
		return
	}
	s.makeRoom(now, visits, []store.Charge{*c})
	if s.reserve() {
		v.where = reserved
	} else {
		v.share(c.Limit, st, now, true)
	}
}
