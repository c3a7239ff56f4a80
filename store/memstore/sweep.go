package memstore

import (
	"math"
)

// Calls drop expired keys, in one shard after the other as time goes by, whichever keys
// they charge. A visit is bounded by the shard's number of slots. Until it is dropped, a
// key that comes back finds its slot. So a table that needs room drops only keys that
// expired a rotation ago, and grows: most keys of a fast rate have expired nearly every
// time they come back, and would have to be inserted again.
const (
	// rotation is the time in microseconds in which a store in steady use
	// visits all of its shards, if it has no more than rotation/shortest.
	rotation = 1_000_000
	// shortest is the least time in microseconds between two visits. A visit takes a few
	// microseconds, so all of them cost a few percent of one core.
	shortest = 200
	// catchUp is the most visits that a call makes when several are overdue.
	catchUp = 4
)

// never is the until of a state that holds leases: it lives until they are released.
const never = math.MaxInt64

// sweep makes the visits that are due at now. The caller holds no lock.
func (s *Store) sweep(now int64) {
	due := s.due.Load()
	if now < due || !s.due.CompareAndSwap(due, now+s.every) {
		return // nothing is due, or another call makes the visit
	}
	visits := int64(1)
	if due != math.MinInt64 {
		visits = min(catchUp, int64(len(s.shards)), 1+(now-due)/s.every)
	}
	for ; visits > 0 && s.keys.Load() > 0; visits-- {
		if sh := &s.shards[s.next.Add(1)&s.mask]; sh.mu.TryLock() {
			s.sweepShard(sh, now)
			sh.mu.Unlock()
		}
	}
}

// sweepShard drops all of a shard's expired keys, and frees memory that the shard no
// longer needs. The caller holds the lock.
func (s *Store) sweepShard(sh *shard, now int64) {
	s.dropped(sh.expire(math.MaxInt, now))
	sh.expireShared(now)
	if sh.roomy() {
		s.dropped(sh.rebuild(now, 0))
	}
}

// roomy reports whether the shard has much more memory than it needs.
func (sh *shard) roomy() bool {
	n := sh.slots()
	return n > smallest && 20*int(sh.live) < minLoad*n ||
		sh.slab != nil && 20*sh.slab.used < minLoad*len(sh.slab.states)
}

// expire examines up to n slots, from where it stopped the last time, and drops the
// expired keys among them. It returns how many it dropped.
func (sh *shard) expire(n int, now int64) (dropped int) {
	t := sh.table.Load()
	if t == nil {
		return 0
	}
	i := int(sh.cursor)
	for n = min(n, len(t.slots)); n > 0; n-- {
		if sh.expired(&t.slots[i], now) {
			dropped++
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	sh.cursor = int32(i)
	return dropped
}

func (s *Store) dropped(n int) {
	if n > 0 {
		s.keys.Add(int64(-n))
		s.expired.Add(uint64(n))
	}
}
