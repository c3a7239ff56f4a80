package memstore

import (
	"context"

	"github.com/stint-go/stint/store"
)

// Take decides the charges at one instant; see store.Store. It allocates
// nothing for up to 8 charges, but what states themselves need.
func (s *Store) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return fail(err)
	}
	var now int64
	switch len(charges) {
	case 0:
		return nil
	case 1:
		now = s.takeOne(charges, results)
	default:
		var err error
		if now, err = s.takeAll(charges, results); err != nil {
			return err
		}
	}
	if now >= s.due.Load() {
		s.sweep(now)
	}
	return nil
}

// takeOne spares the one charge that most calls consist of the arrays, and the
// packed bucket that most charges find the second lookup.
func (s *Store) takeOne(charges []store.Charge, results []store.Result) (steady int64) {
	c := &charges[0]
	h := s.hash(c.Key, c.Limit)
	sh := s.shard(h)
	now := s.instant(c.Limit)
	var states [1]store.State
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.advance(&now)
	if i := sh.find(h); i >= 0 && packed(sh.slots[i].word) {
		unpack(sh.slots[i].word, &states[0])
		store.Decide(now, charges, states[:], results)
		if word, fits := pack(&states[0], sh.slots[i].word&rateMask); fits {
			sh.slots[i].word = word
		} else {
			s.keep(sh, h, c.Limit, &states[0], &results[0], now.Steady)
		}
	} else {
		visits := [1]visit{{hash: h, shard: sh}}
		s.decide(now, visits[:], charges, states[:], results)
	}
	return now.Steady
}

// visit is one charge's way to its state.
type visit struct {
	hash  uint64
	shard *shard
	index uint32 // of the shard
	i     int32  // of the charge
	where place
	spill int // of the shared state
}

// place is where a charge's state is kept.
type place uint8

const (
	// nowhere: no room for another key, nor for another shared state.
	nowhere place = iota
	// absent: never seen, and nothing to be kept.
	absent
	// held: in the table.
	held
	// reserved: not yet in the table, but counted.
	reserved
	// shared: in overflow.
	shared
)

// few is how many charges are decided without allocating.
const few = 8

func (s *Store) takeAll(charges []store.Charge, results []store.Result) (steady int64, err error) {
	var (
		fewVisits [few]visit
		fewStates [few]store.State
		visits    = fewVisits[:]
		states    = fewStates[:]
	)
	if len(charges) > few {
		visits = make([]visit, len(charges))
		states = make([]store.State, len(charges))
	}
	visits, states = visits[:len(charges)], states[:len(charges)]

	wall := false
	for i := range charges {
		c := &charges[i]
		wall = wall || followsCalendar(c.Limit)
		h := s.hash(c.Key, c.Limit)
		v := visit{hash: h, index: uint32(h>>32) & s.mask, i: int32(i)}
		// Shards are locked in ascending order, so that two calls never wait
		// for each other. A call has a handful of charges: insertion it is.
		j := i
		for ; j > 0 && v.before(&visits[j-1]); j-- {
			visits[j] = visits[j-1]
		}
		visits[j] = v
	}
	for i := 1; i < len(visits); i++ {
		if visits[i].hash == visits[i-1].hash {
			return 0, fail(store.ErrDuplicate)
		}
	}

	now := store.Now{}
	if wall {
		now = s.now()
	} else {
		now.Steady = s.steady()
	}
	var last *shard
	for i := range visits {
		v := &visits[i]
		v.shard = &s.shards[v.index]
		if v.shard != last {
			v.shard.mu.Lock()
			v.shard.advance(&now)
			last = v.shard
		}
	}
	defer unlock(visits)
	s.decide(now, visits, charges, states, results)
	return now.Steady, nil
}

func (v *visit) before(w *visit) bool {
	return v.index < w.index || v.index == w.index && v.hash < w.hash
}

// decide finds the states, has the charges decided against them, and puts them
// back. The visits are sorted and their shards locked.
func (s *Store) decide(now store.Now, visits []visit, charges []store.Charge, states []store.State, results []store.Result) {
	for i := range visits {
		visits[i].shard.newest = now.Steady
	}
	s.makeRoom(now.Steady, visits, charges)
	refusing, lease := false, false
	for i := range visits {
		v := &visits[i]
		c := &charges[v.i]
		lease = lease || c.Limit.Algorithm() == store.Concurrency
		s.find(v, c, &states[v.i], now.Steady)
		refusing = refusing || v.where == nowhere && c.Cost > 0 && !c.DryRun
	}
	if lease {
		// Ids have to ascend in each state: the locks are held.
		now.Lease = store.Lease(s.leases.Add(1))
	}
	if refusing {
		refuse(now, visits, charges, states, results)
	} else {
		store.Decide(now, charges, states, results)
	}
	s.writeBack(visits, charges, states, results, now.Steady)
	for i := range visits {
		v := &visits[i]
		s.count(v, &charges[v.i], &results[v.i], now.Steady)
	}
}

// find looks up the charge's state, or finds a place for it.
func (s *Store) find(v *visit, c *store.Charge, st *store.State, now int64) {
	i := v.shard.find(v.hash)
	switch {
	case i >= 0:
		v.where = held
		v.shard.load(i, st)
	case c.Cost == 0:
		v.where = absent
		if s.keys.Load() >= s.max { // answered as a charge would be
			v.share(c.Limit, st, now, false)
		}
	case s.reserve():
		v.where = reserved
	case c.Limit.Algorithm() == store.Ban:
		// Nobody is refused for want of room to count refusals, nor banned for
		// those of others.
		v.where = absent
	default:
		v.share(c.Limit, st, now, true)
	}
}

// writeBack is the way back. New keys come last: to insert them drops keys of
// their shards that have expired, and until its state is back, a key that the call
// itself has brought to life again may look like one of those.
func (s *Store) writeBack(visits []visit, charges []store.Charge, states []store.State, results []store.Result, now int64) {
	fresh := false
	for i := range visits {
		v := &visits[i]
		l, st, r := charges[v.i].Limit, &states[v.i], &results[v.i]
		switch v.where {
		case held:
			s.keep(v.shard, v.hash, l, st, r, now)
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

// add puts a new key into the table, or gives its place back if nothing is to be
// kept.
func (s *Store) add(v *visit, l *store.Limit, st *store.State, r *store.Result, now int64) {
	until, alive := outlook(l, st, r, now)
	if !alive {
		s.keys.Add(-1)
		return
	}
	s.dropped(v.shard.save(v.hash, l, st, until, now) + v.shard.expire(perInsert, now))
}

// keep writes a state back to the table, or drops it if it has come to be as
// if never seen.
func (s *Store) keep(sh *shard, h uint64, l *store.Limit, st *store.State, r *store.Result, now int64) {
	if until, alive := outlook(l, st, r, now); alive {
		sh.save(h, l, st, until, now)
	} else if i := sh.find(h); i >= 0 {
		sh.remove(i)
		s.dropped(1)
	}
}

// outlook says until when a state differs from one never seen, and whether it
// does now. r is the answer of the step that has just been made with it.
func outlook(l *store.Limit, st *store.State, r *store.Result, now int64) (until int64, alive bool) {
	switch {
	case !st.Live:
		return now, false
	case l.Algorithm() == store.Concurrency:
		return never, true
	}
	lifetime := l.Lifetime(st, r)
	until = now + lifetime.Microseconds()
	if followsCalendar(l) {
		// ResetAfter is by the wall clock, which may be set back a little.
		until += setBack
	}
	return until, lifetime > 0
}

// setBack is how far, in microseconds, the wall clock may be set back in a
// window without the window being forgotten before its end.
const setBack = 60_000_000

// unlock unlocks the visits' shards.
func unlock(visits []visit) {
	for i := range visits {
		if i == 0 || visits[i].shard != visits[i-1].shard {
			visits[i].shard.mu.Unlock()
		}
	}
}
