package memstore

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Take decides the charges at one instant; see store.Store. Up to 8 charges are decided
// without an allocation, unless a state needs to grow.
//
// A single charge on a bucket takes no lock if the bucket is one word before and after
// it; see shard. Most charges are of this kind, so they are decided right here.
func (s *Store) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	if !s.usable {
		return s.unusable()
	}
	if err := store.Check(charges, results); err != nil {
		return fail(err)
	}
	if len(charges) != 1 {
		return s.takeAll(charges, results)
	}
	c, r := &charges[0], &results[0]
	hash := s.hash(c.Key)
	key := identity(c.Limit, hash)
	sl, found := s.shard(hash).table.Load().find(key)
	if !found {
		s.sweep(s.takeOne(hash, key, charges, results))
		return nil
	}
	seen := atomic.LoadInt64(&sl.word)
	for spin := backoff; packed(seen); spin = min(2*spin, 4*backoff) {
		now := s.steady()
		// If another call has charged the key since the clock was read, it may have done so
		// at a later instant.
		if atomic.LoadInt64(&sl.word) == seen {
			a, ok := inside.StepPlain(rateOf(seen), now, seen>>rateBits, c, r)
			next := a<<rateBits | seen&rateMask
			if !ok || next>>rateBits != a {
				break
			}
			if next == seen || atomic.CompareAndSwapInt64(&sl.word, seen, next) {
				if now >= s.due.Load() {
					s.sweep(now)
				}
				return nil
			}
		}
		for range spin { // let other calls make progress
		}
		seen = atomic.LoadInt64(&sl.word)
	}
	s.sweep(s.takeOne(hash, key, charges, results))
	return nil
}

// backoff is how many empty iterations a call spins after another has changed the word:
// about three microseconds. In that time another core makes dozens of decisions. Without
// it the key's word would move between cores for nearly every decision: with a third of
// it, two goroutines on one key take 1.4 times as long for each.
const backoff = 8192

// visit says where the state of one charge is.
type visit struct {
	key   uint64 // its identity under the limit
	shard *shard
	index uint32 // of the shard
	i     int32  // index of the charge
	where place
	spill int // index of the shared state
	slot  *slot
	word  int64 // taken out of the slot
	next  int64 // that a packed word becomes
}

// place is where a charge's state is kept.
type place uint8

const (
	// nowhere: there is room neither for another key nor for another shared state.
	nowhere place = iota
	// absent: the key has no state, and won't be given one.
	absent
	// held: in the table.
	held
	// reserved: not in the table yet, but already counted in Store.keys.
	reserved
	// shared: one of the shard's shared states; see spill.
	shared
)

// few is how many charges are decided without an allocation.
const few = 8

// takeOne decides a charge with its shard's lock held.
func (s *Store) takeOne(hash, key uint64, charges []store.Charge, results []store.Result) (steady int64) {
	sh := s.shard(hash)
	visits := [1]visit{{key: key, shard: sh}}
	var states [1]store.State
	sh.lock()
	defer sh.mu.Unlock()
	there := visits[0].hold()
	now := s.instant(charges[0].Limit.FollowsCalendar(), charges[0].Limit.Algorithm() == store.Concurrency)
	if !there || !s.takeInPlace(now, visits[:], charges, states[:], results) {
		s.decide(now, visits[:], charges, states[:], results)
	}
	return now.Steady
}

// takeAll decides several charges with the locks of their shards held.
func (s *Store) takeAll(charges []store.Charge, results []store.Result) error {
	var now int64
	var err error
	// Clearing room for 8 charges costs as much as deciding two or three, and most calls
	// have no more.
	switch n := len(charges); {
	case n <= 3:
		var visits [3]visit
		var states [3]store.State
		now, err = s.takeWith(visits[:n], charges, states[:n], results)
	case n <= few:
		var visits [few]visit
		var states [few]store.State
		now, err = s.takeWith(visits[:n], charges, states[:n], results)
	default:
		now, err = s.takeWith(make([]visit, n), charges, make([]store.State, n), results)
	}
	if err == nil {
		s.sweep(now)
	}
	return err
}

func (s *Store) takeWith(visits []visit, charges []store.Charge, states []store.State, results []store.Result) (steady int64, err error) {
	wall, lease, hash := false, false, uint64(0)
	for i := range charges {
		c := &charges[i]
		wall = wall || c.Limit.FollowsCalendar()
		lease = lease || c.Limit.Algorithm() == store.Concurrency
		if i == 0 || c.Key != charges[i-1].Key { // the limits of a request mostly share a key
			hash = s.hash(c.Key)
		}
		v := &visits[i]
		v.key, v.index, v.i = identity(c.Limit, hash), uint32(hash>>32)&s.mask, int32(i)
		if len(visits) > few {
			continue
		}
		// Shards are locked in ascending order, so that two calls never wait for each
		// other. A call has a handful of charges, so insertion sort does.
		j := i
		for ; j > 0 && visits[j].index < visits[j-1].index; j-- {
			visits[j], visits[j-1] = visits[j-1], visits[j]
		}
		for k := j - 1; k >= 0 && visits[k].index == visits[j].index; k-- {
			if visits[k].key == visits[j].key {
				return 0, fail(store.ErrDuplicate)
			}
		}
	}
	if len(visits) > few {
		slices.SortFunc(visits, func(a, b visit) int { return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.key, b.key)) })
		for i := range visits[1:] {
			if visits[i].key == visits[i+1].key && visits[i].index == visits[i+1].index {
				return 0, fail(store.ErrDuplicate)
			}
		}
	}

	there := true
	for i := range visits {
		v := &visits[i]
		if v.shard = &s.shards[v.index]; i == 0 || v.index != visits[i-1].index {
			v.shard.lock()
		}
		there = v.hold() && there
	}
	defer unlock(visits)
	now := s.instant(wall, lease)
	if !there || !s.takeInPlace(now, visits, charges, states, results) {
		s.decide(now, visits, charges, states, results)
	}
	return now.Steady, nil
}

// hold finds the visit's slot, takes its word out, and reports whether there is one. The
// caller reads the clock after that, so its decision is not earlier than any made on the
// state before.
func (v *visit) hold() (there bool) {
	if sl, found := v.shard.table.Load().find(v.key); found {
		v.slot, v.word = sl, sl.hold()
	}
	return v.word != vacant
}

// takeInPlace decides charges whose states are all there, and leaves each state where it is: a
// packed word is the instant that it encodes, and all others are stepped in their slabs. To make
// States of words, and to write States back, takes as long as the steps.
//
// It only grants: if a limit denies, or a word doesn't do for a state, it leaves all as it was and
// returns false. Then decide decides, which answers every denial. Both come to the same. If none
// denies, store.Decide is a step for each charge, in any order. And a step only reslices a Log
// and appends to it, so the copy of a State that is made before it undoes it.
func (s *Store) takeInPlace(now store.Now, visits []visit, charges []store.Charge, were []store.State, results []store.Result) bool {
	for i := range visits {
		v := &visits[i]
		c, r := &charges[v.i], &results[v.i]
		fits := true
		if packed(v.word) {
			var a int64
			a, fits = inside.StepPlain(rateOf(v.word), now.Steady, v.word>>rateBits, c, r)
			v.next = a<<rateBits | v.word&rateMask
			fits = fits && v.next>>rateBits == a
		} else {
			st := v.shard.slab.at(v.word).state[:]
			were[v.i] = st[0]
			store.Decide(now, charges[v.i:v.i+1], st, results[v.i:v.i+1])
		}
		if fits && (r.OK || c.DryRun) {
			continue
		}
		for ; i >= 0; i-- {
			if v := &visits[i]; !packed(v.word) {
				v.shard.slab.at(v.word).state[0] = were[v.i]
			}
		}
		return false
	}
	for i := range visits {
		if v := &visits[i]; packed(v.word) {
			atomic.StoreInt64(&v.slot.word, v.next)
		} else {
			s.keep(v, charges[v.i].Limit, &results[v.i], now)
		}
	}
	return true
}

// keep keeps the state of a visit that has changed in its slab for as long as it is alive.
func (s *Store) keep(v *visit, l *store.Limit, r *store.Result, now store.Now) {
	w := v.shard.slab.at(v.word)
	until, alive := outlook(l, &w.state[0], r, now)
	switch {
	case alive && isBucket(l): // it may fit a word now
		v.shard.put(v.slot, v.word, l, &w.state[0], until)
	case alive:
		w.until = until
	case s.lingers(l):
		w.until = now.Steady
	default:
		v.shard.drop(v.slot, v.word)
		s.dropped(1)
	}
}

// lingers reports whether a state stays when it is over. A key whose last slot has been
// released does: its next request finds the state, and the log's memory in it; the sweep
// drops it if none comes. A full store drops it at once.
func (s *Store) lingers(l *store.Limit) bool {
	return l.Algorithm() == store.Concurrency && s.keys.Load() < s.max
}

// decide finds the states, decides the charges against them, and puts the states back.
// The visits are sorted and their shards locked.
func (s *Store) decide(now store.Now, visits []visit, charges []store.Charge, states []store.State, results []store.Result) {
	s.makeRoom(now.Steady, visits, charges)
	denying := false
	for i := range visits {
		v := &visits[i]
		c := &charges[v.i]
		states[v.i] = store.State{} // takeInPlace may have used it
		s.find(v, c, &states[v.i], now.Steady)
		denying = denying || v.where == nowhere && c.Cost > 0 && !c.DryRun
	}
	if denying {
		deny(now, visits, charges, states, results)
	} else {
		store.Decide(now, charges, states, results)
	}
	s.writeBack(visits, charges, states, results, now)
	for i := range visits {
		v := &visits[i]
		s.count(v, &charges[v.i], &results[v.i], now.Steady)
	}
}

// find loads the state of the charge, or finds a place for a new one.
func (s *Store) find(v *visit, c *store.Charge, st *store.State, now int64) {
	switch {
	case v.word != vacant:
		v.where = held
		v.shard.load(v.word, st)
	case c.Cost == 0:
		v.where = absent
		if s.keys.Load() >= s.max { // answer as for a charge with a cost
			v.share(c.Limit, st, now, false)
		}
	case s.reserve():
		v.where = reserved
	case c.Limit.Algorithm() == store.Ban:
		// A lack of room to count denials denies no request, and denials of other keys
		// ban no key.
		v.where = absent
	default:
		v.share(c.Limit, st, now, true)
	}
}

// writeBack puts the states back. New keys are inserted last, because an insertion drops
// the expired keys of its shard. A key whose state this call has just revived still looks
// expired until that state is back.
func (s *Store) writeBack(visits []visit, charges []store.Charge, states []store.State, results []store.Result, now store.Now) {
	fresh := false
	for i := range visits {
		v := &visits[i]
		l, st, r := charges[v.i].Limit, &states[v.i], &results[v.i]
		switch v.where {
		case held:
			until, alive := outlook(l, st, r, now)
			switch {
			case alive:
				v.shard.put(v.slot, v.word, l, st, until)
			case s.lingers(l):
				v.shard.put(v.slot, v.word, l, st, now.Steady)
			default:
				v.shard.drop(v.slot, v.word)
				s.dropped(1)
			}
		case shared:
			until, alive := outlook(l, st, r, now)
			v.shard.spill.put(v.spill, st, until, alive)
		case reserved:
			fresh = true
		}
	}
	if !fresh {
		return
	}
	for i := range visits {
		if v := &visits[i]; v.where == reserved {
			s.add(v, charges[v.i].Limit, &states[v.i], &results[v.i], now)
		}
	}
}

// add puts a new key into the table, or gives up its reservation if there is no state to
// keep.
func (s *Store) add(v *visit, l *store.Limit, st *store.State, r *store.Result, now store.Now) {
	until, alive := outlook(l, st, r, now)
	if !alive {
		s.keys.Add(-1)
		return
	}
	sl, dropped := v.shard.insert(v.key, now.Steady)
	v.shard.put(sl, vacant, l, st, until)
	s.dropped(dropped)
}

// outlook returns when a state will have expired, and whether it is alive now. r is the
// result of the step just made with it.
func outlook(l *store.Limit, st *store.State, r *store.Result, now store.Now) (until int64, alive bool) {
	lifetime := l.Lifetime(now, st, r)
	if lifetime == store.Never {
		return never, true
	}
	until = now.Steady + lifetime.Microseconds()
	if l.FollowsCalendar() && (inside.State(st).Numbers.Unit < 0 || l.Algorithm() != store.IntervalBucket) {
		// The lifetime is by the wall clock, which may be set back a little.
		until += setBack
	}
	return until, lifetime > 0
}

// setBack is how many microseconds the wall clock may be set back within a window without
// the window being forgotten before its end.
const setBack = 60_000_000

// unlock unlocks the visits' shards.
func unlock(visits []visit) {
	for i := range visits {
		if i == 0 || visits[i].shard != visits[i-1].shard {
			visits[i].shard.mu.Unlock()
		}
	}
}
