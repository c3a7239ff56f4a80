package memstore

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// A shard is an open-addressed table. A key's home is the slot at its hash scaled to
// the table's length, which may be any number; it is in the first free slot from there
// on.
//
// A slot belongs to one key for as long as the table is in use, also while nothing is
// kept of it. So whoever has found a key's slot may look at its word without a lock,
// and change the word by a swap: if it is still the state that was looked at, then
// nothing has happened to the key. That is how a charge on one bucket is decided.
// Everything else holds the shard's lock, under which slots are filled and tables
// replaced, and takes the words that it decides on out of their slots (hold): a swap
// fails from then on, and its caller comes to wait for the lock.
//
// The struct is a cache line, which is rarely written.
type shard struct {
	table  atomic.Pointer[table]
	mu     sync.Mutex
	filled int32 // slots that belong to a key
	live   int32 // those of them that hold a state
	cursor int32 // the slot that is examined next for expiry
	slab   *slab // states that don't fit a word
	spill  *spill
	_      [16]byte
}

type table struct{ slots []slot }

type slot struct {
	hash uint64 // 0: free. It is written once.
	word int64
}

// A table is replaced before more than maxLoad of its slots are filled, by one of
// which sizedLoad are: between 21 and 29 bytes a key. It is replaced by a smaller one
// when less than minLoad hold a state. All in 1/20.
const (
	maxLoad   = 15
	sizedLoad = 11
	minLoad   = 8
	smallest  = 8 // slots
)

// slots is the length of the table.
func (sh *shard) slots() int {
	if t := sh.table.Load(); t != nil {
		return len(t.slots)
	}
	return 0
}

// find returns the slot of h, or the free one that h would be given. The caller may
// hold the lock or not. There is none in no table.
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

// hold takes the state's word out of the slot, until put, so that nobody changes it
// who doesn't hold the lock. Only they would change one that refers to the slab.
func (sl *slot) hold() int64 {
	if w := atomic.LoadInt64(&sl.word); !packed(w) {
		return w
	}
	return atomic.SwapInt64(&sl.word, vacant)
}

// load copies the state that a word says or refers to.
func (sh *shard) load(word int64, s *store.State) {
	switch {
	case packed(word):
		unpack(word, s)
	case word != vacant:
		*s = sh.slab.at(word).state
	}
}

// put writes a state into a slot of which was is the word that has been taken out.
// until is when the state becomes as if never seen.
func (sh *shard) put(sl *slot, was int64, l *store.Limit, s *store.State, until int64) {
	slabbed := !packed(was) && was != vacant
	if isBucket(l) {
		if word, fits := pack(s, was&rateMask); fits {
			if slabbed {
				sh.slab.release(was)
			}
			atomic.StoreInt64(&sl.word, word)
			return
		}
	}
	if slabbed {
		*sh.slab.at(was) = wide{state: *s, until: until}
		if atomic.LoadInt64(&sl.word) != was { // see makeRoom
			atomic.StoreInt64(&sl.word, was)
		}
		return
	}
	if sh.slab == nil {
		sh.slab = newSlab(0)
	}
	atomic.StoreInt64(&sl.word, sh.slab.add(wide{state: *s, until: until}))
}

// drop forgets the state of a slot of which was is the word that has been taken out.
func (sh *shard) drop(sl *slot, was int64) {
	if !packed(was) {
		sh.slab.release(was)
		atomic.StoreInt64(&sl.word, vacant)
	}
	sh.live--
}

// expired drops the state in a slot if it has become as if never seen by the instant
// now.
func (sh *shard) expired(sl *slot, now int64) bool {
	word := atomic.LoadInt64(&sl.word)
	switch {
	case word == vacant:
		return false
	case !packed(word):
		if sh.slab.at(word).until > now {
			return false
		}
	case !full(word, now):
		return false
	}
	if packed(word) && !atomic.CompareAndSwapInt64(&sl.word, word, vacant) { // somebody is charging it
		return false
	}
	sh.drop(sl, word)
	return true
}

// insert returns the slot of a key of which nothing is kept, and how many expired ones
// it dropped to make room. The caller puts its state there.
func (sh *shard) insert(h uint64, now int64) (sl *slot, dropped int) {
	sl, found := sh.table.Load().find(h)
	if !found {
		if 20*(int(sh.filled)+1) > maxLoad*sh.slots() {
			dropped = sh.rebuild(now-rotation, 1)
			sl, _ = sh.table.Load().find(h)
		}
		atomic.StoreUint64(&sl.hash, h) // from here on it is found, and vacant
		sh.filled++
	}
	sh.live++
	return sl, dropped
}

// rebuild moves what had not expired by an instant to a table and a slab that fit it
// and more keys. It returns how many have been dropped.
func (sh *shard) rebuild(by int64, more int) (dropped int) {
	var old []slot
	if t := sh.table.Load(); t != nil {
		old = t.slots
	}
	wide := 0
	for i := range old {
		if sh.expired(&old[i], by) {
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
	// Memory comes in sizes; a table that asks for the whole of its piece
	// wastes none of it.
	slots := slices.Grow([]slot(nil), max(smallest, (20*(live+more)+sizedLoad-1)/sizedLoad))
	next := &table{slots[:cap(slots)]}
	for i := range old {
		if atomic.LoadInt64(&old[i].word) == vacant {
			continue
		}
		w := old[i].hold() // for good: who has found it here looks again
		if !packed(w) {
			w = sh.slab.move(from, w)
		}
		sl, _ := next.find(old[i].hash)
		sl.hash, sl.word = old[i].hash, w // nobody has seen it yet
	}
	sh.filled, sh.cursor = int32(live), 0
	sh.table.Store(next)
	return dropped
}

// lock waits for the lock, a while without going to sleep: those who sleep are woken one
// by one, which takes longer than to decide.
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

// A slot's word is a state where it can be: a token or leaky bucket that owes
// nothing beyond its capacity is one instant, signed, which takes the upper 54
// bits (store counts in no more), and the numbers it was written under. Those
// are few: the lower ten bits are their place in the list of known rates. 0
// there marks a word whose upper bits are a place in the shard's slab, counted from
// 1, where a State is kept in full.
const (
	rateBits = 10
	rateMask = 1<<rateBits - 1
)

// vacant is the word of a slot that holds no state: of a key that is as if never seen,
// or whose state somebody has taken out who holds the shard's lock.
const vacant = 0

// pack makes a word of a bucket's state, if it fits one. rate is the place of
// the numbers that it had before, or 0.
func pack(s *store.State, rate int64) (word int64, ok bool) {
	if rate == 0 || rates.list[rate&rateMask] != s.Numbers {
		if rate = rates.place(s.Numbers); rate == 0 {
			return 0, false
		}
	}
	word = s.A<<rateBits | rate
	ok = s.A == word>>rateBits && s.B|s.C|s.D|s.E|int64(s.Low) == 0 && s.Live && len(s.Log) == 0
	return word, ok
}

// unpack makes a state of a packed word.
func unpack(word int64, s *store.State) {
	s.Live, s.Numbers, s.A = true, rateOf(word), word>>rateBits
}

// rateOf is the numbers that a packed word was written under.
func rateOf(word int64) store.Numbers { return rates.list[word&rateMask] }

// packed says whether the word is a state itself.
func packed(word int64) bool { return word&rateMask != 0 }

// full says whether the bucket in a packed word has become full by the instant
// now, in microseconds: from then on it is as if never seen.
func full(word, now int64) bool {
	return word>>rateBits <= rates.list[word&rateMask].At(now)
}

// isBucket says whether a limit's states may be packed.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket
}

// rates are the numbers that words refer to. Programs have a few, so they are
// never forgotten; one that makes up ever new ones finds the list full at some
// time, and the states of its later limits in slabs.
//
// The list belongs to the process, not to a store: it holds nothing of anybody,
// and a shard has no room to say where to look.
var rates rateList

type rateList struct {
	// list is written once at each place, before anybody is told of the place:
	// words travel under the lock of their shard.
	list [1 << rateBits]store.Numbers
	// known finds the places. It is replaced, never changed.
	known atomic.Pointer[map[store.Numbers]int64]
	mu    sync.Mutex
}

// place finds the numbers, and adds them if there is room; 0 if there isn't.
func (r *rateList) place(n store.Numbers) int64 {
	if known := r.known.Load(); known != nil {
		if place := (*known)[n]; place != 0 || len(*known) == rateMask {
			return place
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var known map[store.Numbers]int64
	if p := r.known.Load(); p != nil {
		known = *p
	}
	if place := known[n]; place != 0 || len(known) == rateMask {
		return place
	}
	place := int64(len(known) + 1)
	more := maps.Clone(known)
	if more == nil {
		more = make(map[store.Numbers]int64)
	}
	more[n] = place
	r.list[place] = n
	r.known.Store(&more)
	return place
}
