// Package mistakes finds likely mistakes in how a limiter is used: in its plans, in what an Update
// changes, in the costs and keys of its requests, and in its store. Each function returns findings, of
// which package stint makes warnings. Options that can't work are errors instead: see package
// optionerror.
package mistakes

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// View is what is checked of a limiter: its plans and its store, from one Update to the next. It is
// immutable.
type View struct {
	Plans       *read.Plans
	Store       store.Store
	StoreShared bool  // the store is of WithStore, and other limiters may use it
	Ignored     Kinds // by WithoutWarnings
}

// SharesStore reports whether the limiter's store is s. Stores that can't be compared, such as
// structs with a slice, are taken to be different.
func (v *View) SharesStore(s store.Store) bool {
	return reflect.ValueOf(v.Store).Comparable() && reflect.ValueOf(s).Comparable() && v.Store == s
}

// hasEntry reports whether a condition holds for an entry of the limiter's plans.
func (v *View) hasEntry(holds func(*read.Entry) bool) bool {
	for e := range v.Plans.Entries {
		if holds(e) {
			return true
		}
	}
	return false
}

// Finding is a likely mistake that was found.
type Finding struct {
	Kind   Kind
	Limits []string // that it is about, or whose key it is about; nil for the limiter as a whole
	text   string   // "" for the kind's

	// applies reports whether the mistake is one of a limiter. That may end by an Update.
	applies func(*View) bool
}

// Text says what was found and what to write instead.
func (f *Finding) Text() string { return cmp.Or(f.text, kinds[f.Kind].text) }

// mostFindings bounds the memory of a List if limits get other names at each Update.
const mostFindings = 100

// List has the findings about limiters that belong together, each once. It is safe for
// concurrent use. The zero List is empty.
type List struct {
	mu  sync.Mutex
	all []*Finding
}

// Add adds findings about a limiter, except those that it ignores. It returns those that are new.
func (l *List) Add(v *View, found ...Finding) (news []Finding) {
	for _, f := range found {
		if !v.Ignored.Has(f.Kind) && l.Put([]*View{v}, f) {
			news = append(news, f)
		}
	}
	return news
}

// Put adds a finding about some of the limiters, or replaces the one of the same kind about the same
// limits. It reports whether the finding is new. A full List drops a finding that
// applies to none of the limiters, or the oldest.
func (l *List) Put(views []*View, f Finding) (isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, old := range l.all {
		if old.Kind == f.Kind && slices.Equal(old.Limits, f.Limits) {
			*old = f // an Update may have made another key that it is about
			return false
		}
	}
	if len(l.all) == mostFindings {
		i := slices.IndexFunc(l.all, func(old *Finding) bool { return !slices.ContainsFunc(views, old.applies) })
		l.all = slices.Delete(l.all, max(i, 0), max(i, 0)+1)
	}
	l.all = append(l.all, &f)
	return true
}

// About returns the findings that apply to a limiter, oldest first, except those that it ignores.
func (l *List) About(v *View) (all []Finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.all {
		if !v.Ignored.Has(f.Kind) && f.applies(v) {
			all = append(all, *f)
		}
	}
	return all
}

// Len returns the number of findings, including those that no longer apply.
func (l *List) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}
