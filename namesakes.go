package stint

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/stint-go/stint/store"
)

// In a store that limiters share, limits of one name share what a key has
// consumed. That is what names are for, until two limiters mean different limits:
// then each clamps what the other has counted to its own numbers, and nothing is
// wrong but the answers. Nobody can refuse it, as the numbers of a fleet change
// one process after another; so it is logged.
//
// A limiter, those derived from it, and what Update and WithLimitFunc make of
// them are one family, which may change its mind. All this is looked at when
// limiters are made: a request knows nothing of it.

// namesakes are the limits that families have in one store, by name.
type namesakes struct {
	store store.Store
	mu    sync.Mutex
	named map[string]*namesake
}

// namesake is one name.
type namesake struct {
	families map[string]int // by what their limit says
	logged   bool
}

// stores finds the namesakes of a store that is in use. They are held by the
// families that use it, and not by this list: a store may lead back to its
// limiters, and go with them when nobody else needs it.
var stores = struct {
	mu   sync.Mutex
	seed maphash.Seed
	all  map[uint64][]weak.Pointer[namesakes] // by the hash of the store
}{seed: maphash.MakeSeed(), all: map[uint64][]weak.Pointer[namesakes]{}}

// namesakesIn returns the namesakes of a store, or nil for one that can't be told
// from others.
func namesakesIn(s store.Store) *namesakes {
	if !reflect.ValueOf(s).Comparable() {
		return nil
	}
	h := maphash.Comparable(stores.seed, s)
	stores.mu.Lock()
	defer stores.mu.Unlock()
	for _, known := range stores.all[h] {
		if n := known.Value(); n != nil && n.store == s {
			return n
		}
	}
	n := &namesakes{store: s, named: map[string]*namesake{}}
	stores.all[h] = append(stores.all[h], weak.Make(n))
	runtime.AddCleanup(n, forgetStores, h)
	return n
}

// forgetStores drops what is gone of the stores with a hash.
func forgetStores(h uint64) {
	stores.mu.Lock()
	defer stores.mu.Unlock()
	stores.all[h] = slices.DeleteFunc(stores.all[h], func(w weak.Pointer[namesakes]) bool { return w.Value() == nil })
	if len(stores.all[h]) == 0 {
		delete(stores.all, h)
	}
}

// add counts a family whose limit of that name says says. It returns what
// another's says instead, if that isn't known yet.
func (n *namesakes) add(name, says string) (other string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	same := n.named[name]
	if same == nil {
		same = &namesake{families: map[string]int{}}
		n.named[name] = same
	}
	same.families[says]++
	if same.logged {
		return ""
	}
	for other := range same.families {
		if other != says {
			same.logged = true
			return other
		}
	}
	return ""
}

func (n *namesakes) remove(name, says string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	same := n.named[name]
	if same.families[says]--; same.families[says] == 0 {
		delete(same.families, says)
	}
	if len(same.families) == 0 {
		delete(n.named, name)
	}
}

// given is a limit that a family has in a store that others may use.
type given struct {
	in   weak.Pointer[namesakes] // the family has it; this must not keep a store
	name string
	says string
}

// givens are those of a family, which they outlive to be removed.
type givens struct{ all map[given]bool }

func (g *givens) remove() {
	for o := range g.all {
		if n := o.in.Value(); n != nil {
			n.remove(o.name, o.says)
		}
	}
	g.all = nil
}

// conflict is one name with two meanings.
type conflict struct{ name, says, other string }

func logAll(conflicts []conflict) {
	for _, c := range conflicts {
		slog.Warn("stint: limiters on one store give a limit's name different numbers: write another stint.WithName in one of them",
			"limit", c.name, "rule", c.says, "other", c.other)
	}
}

// announce makes the family's limits known in the stores that others may use,
// those of before no more, and returns what others understand otherwise. The
// caller holds f.mu, and logs the conflicts without it: a logger may be anybody's.
func (f *family) announce() (conflicts []conflict) {
	var in []*namesakes
	next := map[given]bool{}
	for _, m := range f.members {
		v := m.now.Load()
		if !v.lent {
			continue
		}
		n := namesakesIn(v.store)
		if n == nil {
			continue
		}
		in = append(in, n)
		for e := range v.entries() {
			if e.needs&local == 0 { // which is in no store
				next[given{weak.Make(n), e.limit.Name(), e.says()}] = true
			}
		}
	}
	if f.givens == nil {
		if len(next) == 0 {
			return nil
		}
		f.givens = &givens{}
		runtime.AddCleanup(f, (*givens).remove, f.givens)
	}
	f.givens.remove()
	f.givens.all, f.namesakes = next, in
	for o := range next {
		if other := o.in.Value().add(o.name, o.says); other != "" {
			conflicts = append(conflicts, conflict{o.name, o.says, other})
		}
	}
	return conflicts
}

// says is all that an entry's limit counts by, in words.
func (e *entry) says() string {
	s := e.limit.Spec()
	block, units := e.kind.unit()
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d%s", s.Algorithm, s.Units*block, units)
	if s.Window != (Window{}) {
		fmt.Fprintf(&b, " %v", s.Window)
	}
	for _, d := range []struct {
		word string
		d    time.Duration
	}{{"per", s.Period}, {"for", s.Ban}, {"warm-up", s.WarmUp}} {
		if d.d != 0 {
			fmt.Fprintf(&b, " %s %v", d.word, d.d)
		}
	}
	for _, n := range []struct {
		word string
		n    int64
	}{{"burst", s.Burst * block}, {"queue", s.Queue}, {"buckets", s.Buckets}} {
		if n.n != 0 {
			fmt.Fprintf(&b, ", %s %d", n.word, max(n.n, 0))
		}
	}
	if s.Debt {
		b.WriteString(", debt")
	}
	return b.String()
}
