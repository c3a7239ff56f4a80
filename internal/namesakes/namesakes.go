// Package namesakes finds names that mean different limits in one store.
//
// In a store that limiters share, limits of the same name share what a key has
// consumed. That is intended, unless two limiters give one name different numbers: then
// nothing fails, but how much a caller gets depends on which limiter decides. It is only a
// warning, because an application updates its limiters one after another.
package namesakes

import (
	"reflect"
	"slices"
	"sync"
	"weak"
)

// Definition is the limit of a name in a store. Text describes everything that its counting depends on.
type Definition struct {
	Store any
	Name  string
	Text  string
}

// Conflict is a definition that differs from another family's for the same name and store.
type Conflict struct {
	Definition
	OtherText string // of the other family
}

// Family is a set of limiters whose definitions may change. The zero Family has none. It is safe
// for concurrent use.
type Family struct {
	definitions []Definition    // guarded by families.mu
	reported    map[string]bool // names of reported conflicts with others; guarded by families.mu
}

// families are those of the process that are in use and have definitions. The list keeps none of them
// in memory, nor a store, which may refer back to its limiters.
var families struct {
	mu  sync.Mutex
	all []weak.Pointer[Family]
}

// Define replaces the family's definitions, and returns those that differ from other families': each
// name once, however many families differ. A store that can't be compared with others is taken
// to be the family's alone.
func (f *Family) Define(all []Definition) (conflicts []Conflict) {
	families.mu.Lock()
	defer families.mu.Unlock()
	families.all = slices.DeleteFunc(families.all, func(w weak.Pointer[Family]) bool { return w.Value() == nil || w.Value() == f })
	f.definitions = slices.DeleteFunc(all, func(d Definition) bool { return !reflect.ValueOf(d.Store).Comparable() })
	if len(f.definitions) > 0 {
		families.all = append(families.all, weak.Make(f))
	}
	for _, d := range f.definitions {
		if other, text := f.other(d); other != nil && !f.reported[d.Name] && !other.reported[d.Name] {
			f.report(d.Name)
			other.report(d.Name)
			conflicts = append(conflicts, Conflict{d, text})
		}
	}
	return conflicts
}

// Differs reports whether another family still defines a name differently.
func (f *Family) Differs(m Definition) bool {
	families.mu.Lock()
	defer families.mu.Unlock()
	other, _ := f.other(m)
	return other != nil
}

// other returns a family that defines a name differently, and the text of its definition; or nil.
func (f *Family) other(m Definition) (other *Family, text string) {
	for _, w := range families.all {
		if other = w.Value(); other == nil || other == f {
			continue
		}
		for _, o := range other.definitions {
			if o.Name == m.Name && o.Text != m.Text && o.Store == m.Store {
				return other, o.Text
			}
		}
	}
	return nil, ""
}

// report records that a conflict about a name was reported.
func (f *Family) report(name string) {
	if f.reported == nil {
		f.reported = map[string]bool{}
	}
	f.reported[name] = true
}
