package stint

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint/store"
)

// Usage is what the caller of a request has used of one limit: see [Limiter.Usage].
type Usage struct {
	Limit string // its name
	// Route is the pattern of the WithRoute that the limit is written in, or several separated by
	// commas. It is "" for the limiter's own limits and those of functions.
	Route string
	// Capacity is LimitStatus.Capacity. Used and Left are parts of it, or more than it while a
	// request owes units.
	Capacity, Used, Left int64
	// Reset is LimitStatus.ResetAfter: the time until the caller has used nothing.
	Reset time.Duration
}

// Usage returns what the caller of a request has used of every limit, for a page of their account. It
// charges nothing. The limits are the limiter's own, those of all its routes, whatever the request's
// path is, and those that functions and sources have for the request. Each is looked up under its own
// key, taken from this request. It calls the store once.
//
// These limits are left out: those whose key the request doesn't have (it is empty, too long or an
// error), those that their own WithSkip exempts the request from, dry runs, those with WithHidden, and
// a Bandwidth. The WithSkip and WithBlock of the limiter are ignored, and so is a function's error.
//
// The error is a *StoreError if the store fails, or a *SourceError if a source does and has no limits
// to go on with. Keys of a framework's adapter are in requests that a middleware of that adapter
// has passed on.
func (l *Limiter) Usage(r *http.Request) ([]Usage, error) {
	v := l.inForce()
	a := beginAdmission(v, r, nil)
	defer a.end(r.Context())
	var failed *SourceError
	if err := a.reading.Everything(); errors.As(err, &failed) {
		return nil, failed
	}
	if len(a.call.Charges) == 0 {
		return nil, nil
	}
	d, err := a.look(r.Context())
	if err != nil {
		return nil, err
	}
	routes := map[*store.Limit][]string{}
	for _, p := range v.plans.Routes {
		for _, e := range p.Own {
			routes[e.Limit.Limit] = append(routes[e.Limit.Limit], p.Pattern)
		}
	}
	all := make([]Usage, len(d.Limits))
	for i, s := range d.Limits {
		all[i] = Usage{s.Name, strings.Join(routes[a.call.Limits[i].Limit], ", "), s.Capacity, max(s.Capacity-s.Remaining, s.InFlight), s.Remaining, s.ResetAfter}
	}
	return all, nil
}
