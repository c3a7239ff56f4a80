package memory

import (
	"math"
	"slices"
)

// Calls drop expired keys, in one shard after the other as time goes by, whichever keys
// they charge; if there are few calls, a timer does. Sweeping a shard is bounded by its number of
// slots. Until it is dropped, a
// key that comes back finds its slot. So a table that needs room drops only keys that
// expired a rotation ago, and grows: most keys of a fast rate have expired nearly every
// time they come back, and would have to be inserted again.

// catchUp is the most shards that a call sweeps when several are overdue.
const catchUp = 4

// sweep sweeps the shards that are due at now. The caller holds no lock.
func (s *Store) sweep(now int64) {
	s.startTimer(now)
	due := s.due.Load()
	if now < due || !s.due.CompareAndSwap(due, now+s.every) {
		return // nothing is due, or another call sweeps
	}
	shards := int64(1)
	if due != math.MinInt64 {
		shards = min(catchUp, int64(len(s.shards)), 1+(now-due)/s.every)
	}
	for ; shards > 0 && s.keys.Load() > 0; shards-- {
		if sh := &s.shards[s.next.Add(1)&s.mask]; sh.mu.TryLock() {
			s.sweepShard(sh, now)
			sh.mu.Unlock()
		}
	}
}

// sweepShard drops all of a shard's expired keys, and frees memory that the shard no
// longer needs. The caller holds the lock.
func (s *Store) sweepShard(sh *shard, now int64) {
	s.countDropped(sh.dropExpired(math.MaxInt, now))
	sh.expireShared(now)
	if sh.roomy() {
		s.countDropped(sh.rebuild(now, 0))
	}
}

// roomy reports whether the shard has much more memory than it needs.
func (sh *shard) roomy() bool {
	n := sh.slots()
	return n > smallest && 20*int(sh.live) < minLoad*n ||
		sh.slab != nil && 20*sh.slab.used < minLoad*len(sh.slab.states)
}

// dropExpired examines up to n slots, from where it stopped the last time, and drops the
// expired keys among them. It returns how many it dropped.
func (sh *shard) dropExpired(n int, now int64) (dropped int) {
	t := sh.table.Load()
	if t == nil {
		return 0
	}
	i := int(sh.cursor)
	for n = min(n, len(t.slots)); n > 0; n-- {
		if sh.dropIfExpired(&t.slots[i], now) {
			dropped++
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	sh.cursor = int32(i)
	return dropped
}

func (s *Store) countDropped(n int) {
	if n > 0 {
		s.keys.Add(int64(-n))
		s.expired.Add(uint64(n))
	}
}

// expireShared frees the shard's shared states once all of them have expired.
func (sh *shard) expireShared(now int64) {
	if sh.shared != nil && !slices.ContainsFunc(sh.shared.states, func(e sharedState) bool { return e.until > now }) {
		sh.shared = nil
	}
}
