package stint

import (
	"net/http"
	"reflect"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// version is a limiter's configuration from one Update to the next. It is immutable. A call
// and its permit keep the version they began with, so a request sees one configuration
// from its plan to its fields, whatever is updated meanwhile.
type version struct {
	conduct
	events   sender
	registry *compile.Registry // of the limiter's family
	warnings *book             // of the limiter's family
	compiled *compile.Result
	plans    *read.Plans     // compiled
	backend  *decide.Backend // decides what is read by the plans
	allower  store.Allower   // the backend's store, if it is one; or nil
	streams  *respond.Queues // of the streams that wait for bytes from the store
	most     int64           // how many keys the store holds, where it is the limiter's own
	routes   *warn.Routes    // looks at its first requests, if it has routes
	exempts  *warn.Exempts   // counts its first requests, if addresses are exempt
	dryRuns  bool            // some limit may be in a dry run
	shows    bool            // some function of the application sees requests; observers aside
}

// leader is a writer of a router that keeps a context of its own: see Admit.
type leader interface {
	Lead(r *http.Request) *http.Request
}

// shown returns the request as the application's functions see it.
func (v *version) shown(w http.ResponseWriter, r *http.Request) *http.Request {
	if v.shows || v.events.to.audience.Load() != nil {
		if w, ok := w.(leader); ok {
			return w.Lead(r)
		}
	}
	return r
}

// same reports whether two stores are the same. Stores that can't be compared, such as
// structs with a slice, are taken to be different.
func same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
