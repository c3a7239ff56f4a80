package memory

import (
	"context"
	"sync/atomic"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Take decides the charges at one instant; see store.Store. Up to 8 charges are decided
// without an allocation, unless a state needs to grow.
//
// A single charge on a bucket takes no lock if the state of the bucket is one word before and
// after the charge. This is the usual case, so Take itself handles it; see shard.
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
	slot, found := s.shard(hash).table.Load().find(key)
	if !found {
		s.sweep(s.takeOne(hash, key, charges, results))
		return nil
	}
	word := atomic.LoadInt64(&slot.word)
	for spin := backoff; packed(word); spin = min(2*spin, 4*backoff) {
		now := s.steady()
		// If another call has charged the key since the clock was read, it may have done so
		// at a later instant.
		if atomic.LoadInt64(&slot.word) == word {
			tat, ok := stepWord(word, now, c, r)
			next, fits := repack(word, tat)
			if !ok || !fits {
				break
			}
			if next == word || atomic.CompareAndSwapInt64(&slot.word, word, next) {
				if now >= s.due.Load() {
					s.sweep(now)
				}
				return nil
			}
		}
		for range spin { // let other calls make progress
		}
		word = atomic.LoadInt64(&slot.word)
	}
	s.sweep(s.takeOne(hash, key, charges, results))
	return nil
}

// Allow charges a limit alone, for a caller that needs no result of a charge that is granted. decided is false
// if Take has to decide: nothing is charged then. A denial is written to r.
func (s *Store) Allow(l *store.Limit, key string, cost int64, r *store.Result) (granted, decided bool) {
	limit := inside.Limit(l)
	if !s.usable || cost > limit.Largest() {
		return false, false
	}
	hash := s.hash(key)
	slot, found := s.shard(hash).table.Load().find(identity(l, hash))
	if !found {
		return false, false
	}
	word := atomic.LoadInt64(&slot.word)
	for spin := backoff; packed(word); spin = min(2*spin, 4*backoff) {
		now := s.steady()
		if atomic.LoadInt64(&slot.word) == word { // see Take
			tat, ok := limit.GrantPlain(rateOf(word), now, word>>rateBits, cost)
			next, fits := repack(word, tat)
			if !ok || !fits {
				charge := store.Charge{Limit: l, Cost: cost}
				_, ok := stepWord(word, now, &charge, r)
				return false, ok && !r.OK
			}
			if atomic.CompareAndSwapInt64(&slot.word, word, next) {
				if now >= s.due.Load() {
					s.sweep(now)
				}
				return true, true
			}
		}
		for range spin {
		}
		word = atomic.LoadInt64(&slot.word)
	}
	return false, false
}

// takeOne decides a charge with its shard's lock held.
func (s *Store) takeOne(hash, key uint64, charges []store.Charge, results []store.Result) (steady int64) {
	sh := s.shard(hash)
	visits := [1]visit{{key: key, shard: sh}}
	var states [1]store.State
	sh.lock()
	defer sh.mu.Unlock()
	found := visits[0].takeOut()
	now := s.instant(charges[0].Limit.FollowsCalendar(), charges[0].Limit.Algorithm() == store.Concurrency)
	if !found || !s.takeInPlace(now, visits[:], charges, states[:], results) {
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
	case n <= fewCharges:
		var visits [fewCharges]visit
		var states [fewCharges]store.State
		now, err = s.takeWith(visits[:n], charges, states[:n], results)
	default:
		now, err = s.takeWith(make([]visit, n), charges, make([]store.State, n), results)
	}
	if err == nil {
		s.sweep(now)
	}
	return err
}

// takeWith is takeAll with room for the visits and states of the charges.
func (s *Store) takeWith(visits []visit, charges []store.Charge, states []store.State,
	results []store.Result) (steady int64, err error) {
	wall, lease, distinct := s.prepare(visits, charges)
	if !distinct {
		return 0, fail(store.ErrDuplicate)
	}
	allFound := s.lock(visits)
	defer unlock(visits)
	now := s.instant(wall, lease)
	if !allFound || !s.takeInPlace(now, visits, charges, states, results) {
		s.decide(now, visits, charges, states, results)
	}
	return now.Steady, nil
}

// prepare sets the keys of the visits, and sorts them by shard. It reports whether the charges need the
// wall clock and the id of a lease, and whether no two are of one key. Few visits are sorted in the loop
// that makes them: another loop would take a twentieth of a decision.
func (s *Store) prepare(visits []visit, charges []store.Charge) (wall, lease, distinct bool) {
	hash := uint64(0)
	for i := range charges {
		c := &charges[i]
		wall = wall || c.Limit.FollowsCalendar()
		lease = lease || c.Limit.Algorithm() == store.Concurrency
		if i == 0 || c.Key != charges[i-1].Key { // the limits of a request mostly share a key
			hash = s.hash(c.Key)
		}
		v := &visits[i]
		v.key, v.index, v.charge = identity(c.Limit, hash), s.shardIndex(hash), int32(i)
		if len(visits) > fewCharges {
			continue
		}
		j := i
		for ; j > 0 && visits[j].index < visits[j-1].index; j-- {
			visits[j], visits[j-1] = visits[j-1], visits[j]
		}
		for k := j - 1; k >= 0 && visits[k].index == visits[j].index; k-- {
			if visits[k].key == visits[j].key {
				return wall, lease, false
			}
		}
	}
	if len(visits) > fewCharges {
		return wall, lease, sortMany(visits)
	}
	return wall, lease, true
}

// takeInPlace decides charges that all have a state, and leaves each state where it is: a packed
// word is stepped as a word, and any other state in its slab. Making States of words and writing
// States back would take as long as the steps.
//
// It only grants. If a limit denies, or a state no longer fits a word, it restores all states and
// returns false. Then decide decides, which answers every denial. Both come to the same: if no limit
// denies, store.Decide is a step for each charge, in any order. A step only reslices a Log
// and appends to it, so the copies of States in before undo it.
func (s *Store) takeInPlace(now store.Now, visits []visit, charges []store.Charge, before []store.State,
	results []store.Result) bool {
	for i := range visits {
		v := &visits[i]
		c, r := &charges[v.charge], &results[v.charge]
		ok, fits := true, true
		if packed(v.word) {
			var tat int64
			tat, ok = stepWord(v.word, now.Steady, c, r)
			v.next, fits = repack(v.word, tat)
		} else {
			state := v.shard.slab.at(v.word).state[:]
			before[v.charge] = state[0]
			store.Decide(now, charges[v.charge:v.charge+1], state, results[v.charge:v.charge+1])
		}
		if !ok || !fits || !r.OK && !c.DryRun {
			restore(visits[:i+1], before)
			return false
		}
	}
	for i := range visits {
		if v := &visits[i]; packed(v.word) {
			atomic.StoreInt64(&v.slot.word, v.next)
		} else {
			s.keep(v, charges[v.charge].Limit, &results[v.charge], now)
		}
	}
	return true
}

// restore puts back the states in slabs that takeInPlace has stepped.
func restore(visits []visit, before []store.State) {
	for i := range visits {
		if v := &visits[i]; !packed(v.word) {
			v.shard.slab.at(v.word).state[0] = before[v.charge]
		}
	}
}

// keep keeps the state of a visit that has changed in its slab for as long as it is alive.
func (s *Store) keep(v *visit, l *store.Limit, r *store.Result, now store.Now) {
	w := v.shard.slab.at(v.word)
	until, alive := expiry(l, &w.state[0], r, now)
	switch {
	case alive && isBucket(l): // it may fit a word now
		v.shard.put(v.slot, v.word, l, &w.state[0], until)
	case alive:
		w.until = until
	case s.lingers(l):
		w.until = now.Steady
	default:
		v.shard.drop(v.slot, v.word)
		s.countDropped(1)
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
func (s *Store) decide(now store.Now, visits []visit, charges []store.Charge, states []store.State,
	results []store.Result) {
	s.makeRoom(now.Steady, visits, charges)
	denying := false
	for i := range visits {
		v := &visits[i]
		c := &charges[v.charge]
		states[v.charge] = store.State{} // takeInPlace may have used it
		s.find(v, c, &states[v.charge], now.Steady)
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
		s.countOverflow(v, &charges[v.charge], &results[v.charge], now.Steady)
	}
}

// find loads the state of the charge, or finds a place for a new one.
func (s *Store) find(v *visit, c *store.Charge, st *store.State, now int64) {
	switch {
	case v.word != vacant:
		v.where = inTable
		v.shard.load(v.word, st)
	case c.Cost == 0:
		v.where = absent
		if s.keys.Load() >= s.max { // answer as for a charge with a cost
			v.shareExisting(c.Limit, st, now)
		}
	case s.reserve():
		v.where = reserved
	case c.Limit.Algorithm() == store.Ban:
		// A lack of room to count denials denies no request, and denials of other keys
		// ban no key.
		v.where = absent
	default:
		v.share(c.Limit, st, now)
	}
}

// writeBack puts the states back. New keys are inserted last, because an insertion drops
// the expired keys of its shard. A key whose state this call has just revived still looks
// expired until that state is back.
func (s *Store) writeBack(visits []visit, charges []store.Charge, states []store.State, results []store.Result,
	now store.Now) {
	fresh := false
	for i := range visits {
		v := &visits[i]
		l, st, r := charges[v.charge].Limit, &states[v.charge], &results[v.charge]
		switch v.where {
		case inTable:
			until, alive := expiry(l, st, r, now)
			switch {
			case alive:
				v.shard.put(v.slot, v.word, l, st, until)
			case s.lingers(l):
				v.shard.put(v.slot, v.word, l, st, now.Steady)
			default:
				v.shard.drop(v.slot, v.word)
				s.countDropped(1)
			}
		case shared:
			until, alive := expiry(l, st, r, now)
			v.shard.shared.put(v.shared, st, until, alive)
		case reserved:
			fresh = true
		}
	}
	if !fresh {
		return
	}
	for i := range visits {
		if v := &visits[i]; v.where == reserved {
			s.add(v, charges[v.charge].Limit, &states[v.charge], &results[v.charge], now)
		}
	}
}

// add puts a new key into the table, or gives up its reservation if there is no state to
// keep.
func (s *Store) add(v *visit, l *store.Limit, st *store.State, r *store.Result, now store.Now) {
	until, alive := expiry(l, st, r, now)
	if !alive {
		s.keys.Add(-1)
		return
	}
	sl, dropped := v.shard.insert(v.key, now.Steady)
	v.shard.put(sl, vacant, l, st, until)
	s.countDropped(dropped)
}

// expiry returns when a state will have expired, and whether it is alive now. r is the
// result of the step just made with it.
func expiry(l *store.Limit, st *store.State, r *store.Result, now store.Now) (until int64, alive bool) {
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
