package stint

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// version is what a limiter does from one Update to the next: plans, a backend that decides what
// is read by them, and a conduct. It is data, and none of its fields changes. A call and its permit
// keep the version they began with, so a request sees one configuration from its plan to its fields,
// whatever is updated meanwhile. Only the limits of one that waits for slots are replaced by what an
// Update has made of them.
type version struct {
	conduct
	events   sender            // sends what happens
	registry *compile.Registry // of the limiter's family
	compiled *compile.Result
	plans    *read.Plans     // compiled
	backend  *decide.Backend // decides what is read by the plans
	memory   *memstore.Store // the backend's store, if it is one in memory; or nil
	// tooCostly is called for a charge of a request that costs more than its limit ever lets pass.
	tooCostly func(*store.Charge)
	dryRuns   bool // some limit may be in a dry run
	shows     bool // some function of the application sees requests, observers aside: see showsRequests
}

// showsRequests reports whether some function of the application sees requests.
func (v *version) showsRequests() bool { return v.shows || v.events.observers() != nil }

// same reports whether two stores are the same. Stores that can't be compared, such as
// structs with a slice, are taken to be different.
func same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// plan returns the plan of a request.
func (v *version) plan(r *http.Request) *read.Plan {
	if v.plans.Router == nil {
		return v.plans.Base
	}
	return v.route(r)
}

// route returns the plan of a request's route.
func (v *version) route(r *http.Request) *read.Plan {
	plan := v.plans.Find(r)
	plan.Meet()
	return plan
}

// entriesOf returns the version's entries, and those that sources have for a key; known reports whether
// there are sources.
func (v *version) entriesOf(ctx context.Context, key string) (own, sourced []*read.Entry, known bool, err error) {
	own = slices.Collect(v.plans.Entries)
	var q read.Reading
	q.By(v.plans)
	all, known, err := q.OfKey(ctx, key, own, true)
	if err != nil {
		return nil, nil, known, err
	}
	return own, all[len(own):], known, nil
}

// hasEntry reports whether a condition holds for an entry of the version's plans.
func (v *version) hasEntry(is func(*read.Entry) bool) bool {
	for e := range v.plans.Entries {
		if is(e) {
			return true
		}
	}
	return false
}

// sharesStore reports whether another version counts in the same store.
func (v *version) sharesStore(other *version) bool {
	return same(v.backend.Store, other.backend.Store)
}

// uses reports whether limits of the version have the key that a look is at, and returns their
// names: those that a function makes have none yet.
func (v *version) uses(l *warn.Look) (limits []string, uses bool) {
	for e := range v.plans.Entries {
		if e.Look == l {
			limits, uses = append(limits, e.Name()), true
		}
	}
	return limits, uses || slices.ContainsFunc(v.compiled.Funcs, func(f *compile.Func) bool { return f.Has(l) })
}
