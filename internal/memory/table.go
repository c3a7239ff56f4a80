package memory

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// A shard is an open-addressed hash table with linear probing. A key's home is its hash
// scaled to the table's length, which may be any number; the key is in the first free
// slot from there on.
//
// A slot belongs to one key for as long as the table is in use, even while the key has no
// state. So a call that has found a key's slot may read its word without a lock, and
// replace the word by a compare-and-swap: if the swap succeeds, nothing has happened to
// the key in between. A single charge on a bucket is decided that way. Everything else
// holds the shard's lock, under which slots are filled and tables replaced, and takes the
// words that it decides on out of their slots (hold). From then on a swap fails, and its
// caller waits for the lock.
//
// The struct is one cache line, which is rarely written.
type shard struct {
	table  atomic.Pointer[table]
	mu     sync.Mutex
	filled int32 // how many slots belong to a key
	live   int32 // how many of those hold a state
	cursor int32 // the next slot to examine for expiry
	slab   *slab // states that don't fit a word
	shared *sharedStates
	_      [16]byte
}

type table struct{ slots []slot }

type slot struct {
	hash uint64 // 0 if the slot is free; written once
	word int64
}

// These are twentieths of a table's slots. A table is replaced before more than maxLoad of
// them are filled, by one of which sizedLoad are filled: 21 to 29 bytes per key. When
// fewer than minLoad hold a state, it is replaced by a smaller one.
const (
	maxLoad   = 15
	sizedLoad = 11
	minLoad   = 8
)

// rotation is the time in microseconds in which a store in steady use
// sweeps all of its shards, if it has no more than rotation/shortestPause.
const rotation = 1_000_000

// smallest is the fewest slots of a table.
const smallest = 8

// slots is the length of the table.
func (sh *shard) slots() int {
	if t := sh.table.Load(); t != nil {
		return len(t.slots)
	}
	return 0
}

// find returns the slot of h, or the free slot that h would be given, or nil if t is nil.
// The caller need not hold the lock.
func (t *table) find(h uint64) (sl *slot, found bool) {
	if t == nil {
		return nil, false
	}
	slots := t.slots
	for i := uint(uint64(uint32(h)) * uint64(len(slots)) >> 32); i < uint(len(slots)); {
		sl = &slots[i]
		switch atomic.LoadUint64(&sl.hash) {
		case h:
			return sl, true
		case 0:
			return sl, false
		}
		if i++; i == uint(len(slots)) {
			i = 0
		}
	}
	return nil, false
}

// identity returns the identity of a key under a limit, from a seeded hash of the key. It is
// never 0. Two of n keys share an identity with a probability of n²/2^65 (one in thirty million for
// a million keys) and are then counted together. Without the seed no caller can construct a
// collision.
func identity(l *store.Limit, hash uint64) uint64 { return max(hash^inside.Hash(l), 1) }

// takeOut takes the state's word out of the slot until put, so that no call without the lock
// can change it. A word that refers to the slab stays: such calls never change one.
func (sl *slot) takeOut() int64 {
	if w := atomic.LoadInt64(&sl.word); !packed(w) {
		return w
	}
	return atomic.SwapInt64(&sl.word, vacant)
}

// load copies the state that a word encodes or refers to.
func (sh *shard) load(word int64, s *store.State) {
	switch {
	case packed(word):
		unpack(word, inside.State(s))
	case word != vacant:
		*s = sh.slab.at(word).state[0]
	}
}

// put writes a state into a slot whose word, was, has been taken out. until is when the
// state expires.
func (sh *shard) put(sl *slot, was int64, l *store.Limit, s *store.State, until int64) {
	slabbed := !packed(was) && was != vacant
	if isBucket(l) {
		if word, fits := pack(inside.State(s), was&rateMask); fits {
			if slabbed {
				sh.slab.remove(was)
			}
			atomic.StoreInt64(&sl.word, word)
			return
		}
	}
	if slabbed {
		*sh.slab.at(was) = slabState{state: [1]store.State{*s}, until: until}
		if atomic.LoadInt64(&sl.word) != was { // see makeRoom
			atomic.StoreInt64(&sl.word, was)
		}
		return
	}
	if sh.slab == nil {
		sh.slab = newSlab(0)
	}
	atomic.StoreInt64(&sl.word, sh.slab.add(slabState{state: [1]store.State{*s}, until: until}))
}

// drop forgets the state of a slot whose word, was, has been taken out.
func (sh *shard) drop(sl *slot, was int64) {
	if !packed(was) {
		sh.slab.remove(was)
		atomic.StoreInt64(&sl.word, vacant)
	}
	sh.live--
}

// dropIfExpired drops the state in a slot if it has expired by now, and reports whether it did.
func (sh *shard) dropIfExpired(sl *slot, now int64) bool {
	word := atomic.LoadInt64(&sl.word)
	switch {
	case word == vacant:
		return false
	case !packed(word):
		if sh.slab.at(word).until > now {
			return false
		}
	case !bucketFull(word, now):
		return false
	}
	if packed(word) && !atomic.CompareAndSwapInt64(&sl.word, word, vacant) { // another call has just charged it
		return false
	}
	sh.drop(sl, word)
	return true
}

// insert returns a slot for a key without a state, and how many expired keys it dropped
// to make room. The caller puts the state there.
func (sh *shard) insert(h uint64, now int64) (sl *slot, dropped int) {
	sl, found := sh.table.Load().find(h)
	if !found {
		if 20*(int(sh.filled)+1) > maxLoad*sh.slots() {
			dropped = sh.rebuild(now-rotation, 1)
			sl, _ = sh.table.Load().find(h)
		}
		atomic.StoreUint64(&sl.hash, h) // from now on others find the slot, still vacant
		sh.filled++
	}
	sh.live++
	return sl, dropped
}

// rebuild moves the states that had not expired at the instant by to a table and a slab
// with room for them and more keys. It returns how many states it dropped.
func (sh *shard) rebuild(by int64, more int) (dropped int) {
	var old []slot
	if t := sh.table.Load(); t != nil {
		old = t.slots
	}
	wide := 0
	for i := range old {
		if sh.dropIfExpired(&old[i], by) {
			dropped++
		} else if w := atomic.LoadInt64(&old[i].word); !packed(w) && w != vacant {
			wide++
		}
	}
	live := int(sh.live)
	from := sh.slab
	if sh.slab = nil; wide > 0 {
		sh.slab = newSlab(wide + wide/4)
	}
	if live+more == 0 {
		sh.filled, sh.cursor = 0, 0
		sh.table.Store(nil)
		return dropped
	}
	// The allocator rounds sizes up. A table as long as what it gets wastes none of it.
	slots := slices.Grow([]slot(nil), max(smallest, (20*(live+more)+sizedLoad-1)/sizedLoad))
	next := &table{slots[:cap(slots)]}
	for i := range old {
		if atomic.LoadInt64(&old[i].word) == vacant {
			continue
		}
		w := old[i].takeOut() // for good: a call that found the slot here looks again
		if !packed(w) {
			w = sh.slab.move(from, w)
		}
		sl, _ := next.find(old[i].hash)
		sl.hash, sl.word = old[i].hash, w // not atomic: the table isn't published yet
	}
	sh.filled, sh.cursor = int32(live), 0
	sh.table.Store(next)
	return dropped
}

// lock acquires the lock. It spins for a while first: sleeping goroutines are woken one by
// one, which takes longer than a decision.
func (sh *shard) lock() {
	for range 4 {
		if sh.mu.TryLock() {
			return
		}
		for range backoff {
		}
	}
	sh.mu.Lock()
}

// backoff is how many empty iterations a call spins after another has changed the word:
// about three microseconds. In that time another core makes dozens of decisions. Without
// it the key's word would move between cores for nearly every decision: with a third of
// it, two goroutines on one key take 1.4 times as long for each.
const backoff = 8192
