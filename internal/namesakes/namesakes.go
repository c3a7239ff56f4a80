// Package namesakes finds names that mean different limits in one store.
//
// In a store that limiters share, limits of the same name share what a key has
// consumed. That is intended, unless two limiters mean different limits by a name: then
// nothing fails, but what a caller gets depends on which limiter decides. It is no error,
// because an application updates its limiters one after another. So it is detected, to be
// warned of.
package namesakes

import (
	"hash/maphash"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// Meaning is the rule of a name in a store: everything its limit counts by, in words.
type Meaning struct {
	Store any
	Name  string
	Says  string
}

// Conflict is one name with two meanings.
type Conflict struct {
	Name, Says, Other string

	in weak.Pointer[known]
}

// Lasts reports whether there still are families that mean something else by the name.
func (c Conflict) Lasts() bool {
	k := c.in.Value()
	return k != nil && k.differs(c.Name, c.Says)
}

// Family is a set of limiters whose meanings may change: what they mean now replaces
// what they meant. The zero Family means nothing. It isn't safe for concurrent use, but
// different families may be used concurrently.
type Family struct {
	stores []*known // it keeps these alive
	means  *meanings
}

// Mean records what the family means from now on. It returns what other families
// understand differently: each name of a store once, however many families those are. A
// store that can't be compared with others is taken to be the family's alone.
func (f *Family) Mean(all []Meaning) (conflicts []Conflict) {
	var stores []*known
	next := map[meaning]bool{}
	for _, m := range all {
		if k := in(m.Store); k != nil {
			stores = append(stores, k)
			next[meaning{weak.Make(k), m.Name, m.Says}] = true
		}
	}
	if f.means == nil {
		if len(next) == 0 {
			return nil
		}
		f.means = &meanings{}
		runtime.AddCleanup(f, (*meanings).remove, f.means)
	}
	f.means.remove()
	f.means.all, f.stores = next, stores
	for m := range next {
		if other := m.in.Value().add(m.name, m.says); other != "" {
			conflicts = append(conflicts, Conflict{m.name, m.says, other, m.in})
		}
	}
	return conflicts
}

// meaning is one meaning of a family.
type meaning struct {
	in   weak.Pointer[known] // weak: the family has it, and this must not keep a store alive
	name string
	says string
}

// meanings are those of a family. They outlive it, so that they can be removed.
type meanings struct{ all map[meaning]bool }

func (ms *meanings) remove() {
	for m := range ms.all {
		if k := m.in.Value(); k != nil {
			k.remove(m.name, m.says)
		}
	}
	ms.all = nil
}

// stores finds what is known of the names in a store that is in use. The families that
// use the store hold that, and this list doesn't: a store may refer back to its
// limiters, and must be freed with them when no other limiter needs it.
var stores = struct {
	mu   sync.Mutex
	seed maphash.Seed
	all  map[uint64][]weak.Pointer[known] // by the hash of the store
}{seed: maphash.MakeSeed(), all: map[uint64][]weak.Pointer[known]{}}

// in returns what is known of a store, or nil for one that can't be compared with
// others.
func in(store any) *known {
	if !reflect.ValueOf(store).Comparable() {
		return nil
	}
	h := maphash.Comparable(stores.seed, store)
	stores.mu.Lock()
	defer stores.mu.Unlock()
	for _, w := range stores.all[h] {
		if k := w.Value(); k != nil && k.store == store {
			return k
		}
	}
	k := &known{store: store, names: map[string]*name{}}
	stores.all[h] = append(stores.all[h], weak.Make(k))
	runtime.AddCleanup(k, forget, h)
	return k
}

// forget drops freed entries of the stores with a hash.
func forget(h uint64) {
	stores.mu.Lock()
	defer stores.mu.Unlock()
	stores.all[h] = slices.DeleteFunc(stores.all[h], func(w weak.Pointer[known]) bool { return w.Value() == nil })
	if len(stores.all[h]) == 0 {
		delete(stores.all, h)
	}
}

// known holds the families' meanings of the names in one store.
type known struct {
	store any
	mu    sync.Mutex
	names map[string]*name
}

type name struct {
	families map[string]int // by what their limit says
	told     bool
}

// add counts a family whose limit of that name says says. It returns what another
// family's says instead, if that hasn't been reported yet.
func (k *known) add(of, says string) (other string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.names[of]
	if n == nil {
		n = &name{families: map[string]int{}}
		k.names[of] = n
	}
	n.families[says]++
	if n.told {
		return ""
	}
	for other := range n.families {
		if other != says {
			n.told = true
			return other
		}
	}
	return ""
}

// differs reports whether some family means something else by a name.
func (k *known) differs(of, says string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.names[of]
	return n != nil && (len(n.families) > 1 || n.families[says] == 0)
}

func (k *known) remove(of, says string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.names[of]
	if n.families[says]--; n.families[says] == 0 {
		delete(n.families, says)
	}
	if len(n.families) == 0 {
		delete(k.names, of)
	}
}
