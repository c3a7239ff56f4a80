// Package namesakes finds names that mean different limits in one store.
//
// In a store that limiters share, limits of the same name share what a key has
// consumed. That is intended, unless two limiters mean different limits by a name: then
// nothing fails, but what a caller gets depends on which limiter decides. It is no error,
// because an application updates its limiters one after another. So it is detected, to be
// warned of.
package namesakes

import (
	"reflect"
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

// Conflict is a meaning that another family has no longer, or never had.
type Conflict struct {
	Meaning
	Other string // what the other family says
}

// Family is a set of limiters whose meanings may change. The zero Family means nothing. It is safe
// for concurrent use.
type Family struct {
	means []Meaning       // guarded by families.mu
	told  map[string]bool // names of reported conflicts with others; guarded by families.mu
}

// families are those of the process that are in use and have meant something. It keeps none of them,
// nor a store, which may refer back to its limiters.
var families struct {
	mu  sync.Mutex
	all []weak.Pointer[Family]
}

// Mean replaces what the family means, and returns what other families understand differently: each
// name once, however many families those are. A store that can't be compared with others is taken
// to be the family's alone.
func (f *Family) Mean(all []Meaning) (conflicts []Conflict) {
	families.mu.Lock()
	defer families.mu.Unlock()
	families.all = slices.DeleteFunc(families.all, func(w weak.Pointer[Family]) bool { return w.Value() == nil || w.Value() == f })
	f.means = slices.DeleteFunc(all, func(m Meaning) bool { return !reflect.ValueOf(m.Store).Comparable() })
	if len(f.means) > 0 {
		families.all = append(families.all, weak.Make(f))
	}
	for _, m := range f.means {
		if other, says := f.other(m); other != nil && !f.told[m.Name] && !other.told[m.Name] {
			f.tell(m.Name)
			other.tell(m.Name)
			conflicts = append(conflicts, Conflict{m, says})
		}
	}
	return conflicts
}

// Differs reports whether another family still means something else by a name.
func (f *Family) Differs(m Meaning) bool {
	families.mu.Lock()
	defer families.mu.Unlock()
	other, _ := f.other(m)
	return other != nil
}

// other returns a family that means something else by a name, and what that is; or nil.
func (f *Family) other(m Meaning) (other *Family, says string) {
	for _, w := range families.all {
		if other = w.Value(); other == nil || other == f {
			continue
		}
		for _, o := range other.means {
			if o.Name == m.Name && o.Says != m.Says && o.Store == m.Store {
				return other, o.Says
			}
		}
	}
	return nil, ""
}

func (f *Family) tell(name string) {
	if f.told == nil {
		f.told = map[string]bool{}
	}
	f.told[name] = true
}
