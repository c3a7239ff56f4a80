package memory

import (
	"cmp"
	"slices"

	"github.com/stint-go/stint/store"
)

// visit is where the state of one charge is. A call makes one for each of its charges.
type visit struct {
	key    uint64 // its identity under the limit
	shard  *shard
	index  uint32 // of the shard
	charge int32  // index of the charge
	where  place
	shared int   // index of the shared state
	slot   *slot // nil if the key has none
	word   int64 // taken out of the slot
	next   int64 // what a packed word becomes
}

// place is where a charge's state is kept.
type place uint8

const (
	// nowhere: there is room neither for another key nor for another shared state.
	nowhere place = iota
	// absent: the key has no state, and won't be given one.
	absent
	// inTable: the state is in the table.
	inTable
	// reserved: the state isn't in the table yet, but is already counted in Store.keys.
	reserved
	// shared: the state is one of the shard's shared states.
	shared
)

// sortMany sorts visits by shard. It reports whether no two are of one key.
func sortMany(visits []visit) (distinct bool) {
	slices.SortFunc(visits, func(a, b visit) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.key, b.key))
	})
	for i := range visits[1:] {
		if visits[i].key == visits[i+1].key && visits[i].index == visits[i+1].index {
			return false
		}
	}
	return true
}

// lock locks the shards of sorted visits and takes out their words. It reports whether all
// keys have a state. Since each call locks shards in the same order, no two calls wait for each other.
func (s *Store) lock(visits []visit) (allFound bool) {
	allFound = true
	for i := range visits {
		v := &visits[i]
		v.shard = &s.shards[v.index]
		if i == 0 || v.index != visits[i-1].index {
			v.shard.lock()
		}
		if !v.takeOut() {
			allFound = false
		}
	}
	return allFound
}

// unlock unlocks the shards of sorted visits.
func unlock(visits []visit) {
	for i := range visits {
		if i == 0 || visits[i].shard != visits[i-1].shard {
			visits[i].shard.mu.Unlock()
		}
	}
}

// takeOut finds the visit's slot, takes its word out, and reports whether there is one. The
// caller reads the clock after that, so its decision is not earlier than any made on the
// state before.
func (v *visit) takeOut() (found bool) {
	if slot, found := v.shard.table.Load().find(v.key); found {
		v.slot, v.word = slot, slot.takeOut()
	}
	return v.word != vacant
}

// share gives the visit the state that the limit's keys beyond the cap share, and creates it if there
// is none. It does nothing if there are too many states, or if another charge of the call uses this
// one.
func (v *visit) share(l *store.Limit, st *store.State, now int64) {
	if v.shard.shared == nil {
		v.shard.shared = new(sharedStates)
	}
	v.useShared(v.shard.shared.place(l, now, true), st)
}

// shareExisting is share, but creates no state.
func (v *visit) shareExisting(l *store.Limit, st *store.State, now int64) {
	if v.shard.shared != nil {
		v.useShared(v.shard.shared.place(l, now, false), st)
	}
}

// useShared gives the visit the i-th shared state, or none if i is negative.
func (v *visit) useShared(i int, st *store.State) {
	if i >= 0 {
		v.where, v.shared = shared, i
		*st = v.shard.shared.use(i)
	}
}

// fewCharges is how many charges are decided without an allocation.
const fewCharges = 8
