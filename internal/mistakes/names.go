package mistakes

import (
	"reflect"
	"slices"
	"sync"
	"weak"
)

// In a store that limiters share, limits of the same name share what a key has consumed. That is intended,
// unless two limiters give one name different numbers: then nothing fails, but how much a caller gets
// depends on which limiter decides. It is only a warning, because an application updates its limiters one
// after another.

// definition is the limit of a name in a store. Text describes everything that its counting depends on.
type definition struct {
	store any
	name  string
	text  string
}

// conflict is a definition that differs from another family's for the same name and store.
type conflict struct {
	definition
	otherText string // of the other family
}

// Names are what the names of a family's limits mean. The zero Names has none. It is safe
// for concurrent use.
type Names struct {
	definitions []definition    // guarded by families.mu
	reported    map[string]bool // names of reported conflicts with others; guarded by families.mu
}

// families are those of the process that are in use and have definitions. The list keeps none of them
// in memory, nor a store, which may refer back to its limiters.
var families struct {
	mu  sync.Mutex
	all []weak.Pointer[Names]
}

// define replaces the family's definitions, and returns those that differ from other families': each
// name once, however many families differ. A store that can't be compared with others is taken
// to be the family's alone.
func (f *Names) define(all []definition) (conflicts []conflict) {
	families.mu.Lock()
	defer families.mu.Unlock()
	families.all = slices.DeleteFunc(families.all,
		func(w weak.Pointer[Names]) bool { return w.Value() == nil || w.Value() == f })
	f.definitions = slices.DeleteFunc(all, func(d definition) bool { return !reflect.ValueOf(d.store).Comparable() })
	if len(f.definitions) > 0 {
		families.all = append(families.all, weak.Make(f))
	}
	for _, d := range f.definitions {
		if other, text := f.other(d); other != nil && !f.reported[d.name] && !other.reported[d.name] {
			f.report(d.name)
			other.report(d.name)
			conflicts = append(conflicts, conflict{d, text})
		}
	}
	return conflicts
}

// differs reports whether another family still defines a name differently.
func (f *Names) differs(m definition) bool {
	families.mu.Lock()
	defer families.mu.Unlock()
	other, _ := f.other(m)
	return other != nil
}

// other returns a family that defines a name differently, and the text of its definition; or nil.
func (f *Names) other(m definition) (other *Names, text string) {
	for _, w := range families.all {
		if other = w.Value(); other == nil || other == f {
			continue
		}
		for _, o := range other.definitions {
			if o.name == m.name && o.text != m.text && o.store == m.store {
				return other, o.text
			}
		}
	}
	return nil, ""
}

// report records that a conflict about a name was reported.
func (f *Names) report(name string) {
	if f.reported == nil {
		f.reported = map[string]bool{}
	}
	f.reported[name] = true
}
