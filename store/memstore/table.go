package memstore

import (
	"slices"
	"sync"

	"github.com/stint-go/stint/store"
)

// A shard is an open-addressed table under a lock. A key's home is the slot at
// its hash scaled to the table's length, which may be any number; it is in the
// first free slot from there on. Deleting moves later keys back over the gap,
// so no tombstones pile up.
//
// The struct is a cache line, so shards do not slow each other down.
type shard struct {
	mu     sync.Mutex
	newest int64 // the newest instant seen, in microseconds
	slots  []slot
	used   int32
	cursor int32 // the slot that is examined next for expiry
	slab   *slab // states that don't fit a word
	spill  *spill
}

type slot struct {
	hash uint64 // 0: free
	word int64
}

// A table grows before more than maxLoad of its slots are used, and is made
// anew so that sizedLoad are: between 21 and 29 bytes a key. It is made anew,
// smaller, when less than minLoad are used. All in 1/20.
const (
	maxLoad   = 15
	sizedLoad = 11
	minLoad   = 8
	smallest  = 8 // slots
)

func home(h uint64, slots int) int { return int(uint64(uint32(h)) * uint64(slots) >> 32) }

// find returns the slot of h, or -1.
func (sh *shard) find(h uint64) int {
	slots := sh.slots
	if len(slots) == 0 {
		return -1
	}
	for i := home(h, len(slots)); uint(i) < uint(len(slots)); {
		switch slots[i].hash {
		case h:
			return i
		case 0:
			return -1
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
	return -1
}

// insert adds h, which is not there, and returns how many expired keys it
// dropped to make room.
func (sh *shard) insert(h uint64, word, now int64) (dropped int) {
	if 20*(int(sh.used)+1) > maxLoad*len(sh.slots) {
		dropped = sh.rebuild(now, 1)
	}
	sh.place(h, word)
	return dropped
}

func (sh *shard) place(h uint64, word int64) {
	i := home(h, len(sh.slots))
	for sh.slots[i].hash != 0 {
		if i++; i == len(sh.slots) {
			i = 0
		}
	}
	sh.slots[i] = slot{h, word}
	sh.used++
}

// remove frees slot i. Keys behind it that would no longer be found across the
// gap are moved back into it.
func (sh *shard) remove(i int) {
	if w := sh.slots[i].word; !packed(w) {
		sh.slab.release(w)
	}
	n := len(sh.slots)
	for j := i; ; {
		if j++; j == n {
			j = 0
		}
		if sh.slots[j].hash == 0 {
			break
		}
		// j may move to i unless its home lies behind i, on the way to j.
		if h := home(sh.slots[j].hash, n); distance(h, j, n) >= distance(i, j, n) {
			sh.slots[i] = sh.slots[j]
			i = j
		}
	}
	sh.slots[i] = slot{}
	sh.used--
}

// distance is how many slots j is behind i.
func distance(i, j, n int) int {
	if j < i {
		return j - i + n
	}
	return j - i
}

// rebuild moves what has not expired to a table and a slab that fit it and
// more keys. It returns how many have been dropped.
func (sh *shard) rebuild(now int64, more int) (dropped int) {
	old, from := sh.slots, sh.slab
	live, wide := 0, 0
	for i := range old {
		switch {
		case old[i].hash == 0:
		case sh.gone(old[i].word, now):
			old[i].hash = 0
			dropped++
		case packed(old[i].word):
			live++
		default:
			live++
			wide++
		}
	}
	sh.used, sh.cursor, sh.slots, sh.slab = 0, 0, nil, nil
	if live+more == 0 {
		return dropped
	}
	if wide > 0 {
		sh.slab = newSlab(wide + wide/4)
	}
	// Memory comes in sizes; a table that asks for the whole of its piece
	// wastes none of it.
	sh.slots = slices.Grow(sh.slots, max(smallest, (20*(live+more)+sizedLoad-1)/sizedLoad))
	sh.slots = sh.slots[:cap(sh.slots)]
	for i := range old {
		if old[i].hash == 0 {
			continue
		}
		w := old[i].word
		if !packed(w) {
			w = sh.slab.move(from, w)
		}
		sh.place(old[i].hash, w)
	}
	return dropped
}

// gone says whether a state has become as if never seen by the instant now.
func (sh *shard) gone(word, now int64) bool {
	if packed(word) {
		return full(word, now)
	}
	return sh.slab.at(word).until <= now
}

// load copies the state in slot i.
func (sh *shard) load(i int, s *store.State) {
	if w := sh.slots[i].word; packed(w) {
		unpack(w, s)
	} else {
		*s = sh.slab.at(w).state
	}
}

// save puts a state where h is, or in a free slot if it is nowhere. until is
// when it becomes as if never seen.
func (sh *shard) save(h uint64, l *store.Limit, s *store.State, until, now int64) (dropped int) {
	i := sh.find(h)
	word, fits := int64(0), false
	if isBucket(l) {
		rate := int64(0)
		if i >= 0 {
			rate = sh.slots[i].word & rateMask
		}
		word, fits = pack(s, rate)
	}
	if fits {
		if i >= 0 {
			if w := sh.slots[i].word; !packed(w) {
				sh.slab.release(w)
			}
			sh.slots[i].word = word
			return 0
		}
		return sh.insert(h, word, now)
	}
	if i >= 0 && !packed(sh.slots[i].word) {
		*sh.slab.at(sh.slots[i].word) = wide{state: *s, until: until}
		return 0
	}
	if i < 0 {
		// First: the table may be made anew, and its slab with it.
		dropped = sh.insert(h, 0, now)
		i = sh.find(h)
	}
	if sh.slab == nil {
		sh.slab = newSlab(0)
	}
	sh.slots[i].word = sh.slab.add(wide{state: *s, until: until})
	return dropped
}
