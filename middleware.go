// Package stint limits how much of an HTTP service each caller may use: request rates,
// quotas, concurrency and bandwidth.
//
//	limit := stinthttp.New(
//		stint.Rate(10, time.Second),
//		stint.WithKey(stint.RemoteIP()))
//	http.ListenAndServe(addr, limit(mux))
//
// A [Limiter] holds limits and decides requests: a request is charged to all of its limits at
// once, or to none. Nested limiters decide separately. The adapters (stinthttp, stintgin,
// stintecho) mount a limiter in a router. For another router, call [Limiter.Serve]. Outside
// HTTP use [Limiter.Allow], [Limiter.Take] and [Limiter.Wait]. [Limiter.Update] changes the
// limits while requests run.
//
// # Limits
//
// [Rate] and [Quota] limit requests over time. [Concurrency] and [AdaptiveConcurrency] limit
// requests in flight. [Bandwidth] limits bytes per second. [Ban] denies callers that were
// denied too often. Each function takes the options of its kind of limit.
//
// # Keys
//
// Every limit needs a key, which identifies the caller. There is no default key: behind a proxy
// all requests come from the same address, and without a proxy clients can forge every
// forwarding header. Pass [WithKey] a key made by [RemoteIP], [ForwardedIP] (with the addresses
// of your proxies), [Header], [Cookie], [Global] or [FirstOf], or by [KeyFunc] from your own
// function. If the key can't be determined, the request is denied.
//
// # Stores
//
// Counts are kept in a [store.Store]. The default store is in the memory of one process, and is
// exact under any concurrency. [WithStore] sets a store that several processes share, such as a
// store of package redisstore.
//
// # Failure
//
// When the store fails, requests pass without RateLimit fields. The failure is logged and
// reported to observers. To answer such requests with 503 instead, pass [FailClosed] to
// [WithFailurePolicy].
package stint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// This file has what a middleware calls: a Limiter, made by New or With, that decides requests
// (Admit, Serve) and answers them (Serve, Deny).

// Limiter decides requests by its limits. Make a Limiter with New: the methods of a nil or zero
// Limiter panic. A Limiter is safe for concurrent use. Only Update changes its configuration.
type Limiter struct {
	current atomic.Pointer[version]
	family  *family
	parent  *Limiter // the limiter that With extended, or nil
	opts    []Option // of New, With or the last Update; guarded by family.mu

	destinations destinations
	logged       atomic.Pointer[version] // whose limits were logged last

	// installed is current, or nil before the first decision after New or an Update, which waits until
	// the Update has put the versions of the whole family in place.
	installed atomic.Pointer[version]

	storeObserver *store.Observer // gets the notices of its store, which holds it weakly
	storeForgets  atomic.Bool     // its server evicts keys
	degraded      sync.Map        // the parts of its store that don't decide, by addressOf

	// Guarded by family.mu: see updateDestinations.
	observers observers
	logger    *slog.Logger // by WithLogger
	logKeys   bool         // by WithLogKeys
}

// currentVersion returns the version in force. Every method asks for it, or for decidingVersion, so that a nil or
// zero Limiter says what it is.
func (l *Limiter) currentVersion() *version {
	if l != nil {
		if v := l.current.Load(); v != nil {
			return v
		}
	}
	panic("stint: this Limiter is nil or zero and has no limits: make one with stint.New")
}

// decidingVersion returns the version that decides a request or a job. It waits for an Update that is
// putting versions in place, so that nested limiters of a family decide by versions of one Update.
func (l *Limiter) decidingVersion() *version {
	if l != nil {
		if v := l.installed.Load(); v != nil {
			return v
		}
	}
	l.currentVersion()
	l.family.mu.Lock()
	defer l.family.mu.Unlock()
	v := l.current.Load()
	l.installed.Store(v)
	return v
}

// New makes a limiter. If options are wrong, the error reports all problems at once: it is made
// by errors.Join and holds an *OptionError for each problem, with a correction. A limiter needs
// at least one limit, route or WithLimitFunc, and a key for each limit.
//
// New calls none of the application's functions. A limiter has no effect until an adapter
// mounts the limiter or a program calls its methods. An unused limiter isn't reported.
func New(opts ...Option) (*Limiter, error) {
	l := &Limiter{family: newFamily()}
	return l.start(opts)
}

// Check returns the error that [New] would return for opts. Tools use Check to validate options
// without a limiter. Check calls no store.
func Check(opts ...Option) error {
	l := &Limiter{family: newFamily()}
	_, _, err := l.buildFirst(collect(opts, defaultBehavior))
	return err
}

// Must returns l if err is nil, and panics otherwise. Use it for package variables and at
// start-up.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// With makes a limiter that has the limits of l and those in opts, and decides them together.
// The new limiter uses the store, handlers, predicates and defaults of l, unless opts replace
// them. Errors are as in New.
//
// The inherited limits share their counts with l's. If the new limiter is mounted inside l, it
// charges only the limits it adds, in a separate decision: if the new limiter denies a request,
// the charges of l aren't refunded. Mounted alone, it decides all limits together.
//
// An Update of l also changes the new limiter, as if With(opts...) were called again on l. For
// that purpose, l keeps a reference to the new limiter: derive limiters when a program starts,
// not for each request.
func (l *Limiter) With(opts ...Option) (*Limiter, error) {
	l.currentVersion()
	d := &Limiter{family: l.family, parent: l}
	return d.start(opts)
}

// Admit decides a request, waits for its turn if necessary, and calls next once if the request
// is admitted. The request's slots are released when next returns or panics. next must use the
// request and the writer that it is given: the request's context has the Permit, and the writer
// measures or delays the response if a limit requires it.
//
// If Admit returns an error, next hasn't been called, and the request is charged nothing and
// holds no slot. The error is a *DeniedError, or the reason why the request couldn't be
// decided. Pass the error to Deny, which writes the response. Admit sets header fields on w and
// writes nothing. If next was called, Admit returns nil.
//
// Limits that an outer limiter has charged for this request aren't charged again.
//
// If a limit depends on the response or delays it (WithSettle, AdaptiveConcurrency, Bandwidth),
// the writer of next wraps w, otherwise it is w itself. The wrapper is an http.Flusher or
// http.Hijacker if http.ResponseController finds one in w, and an io.ReaderFrom if w is one. Its
// Unwrap method returns w, so http.ResponseController can use the other methods of w. It is never an http.Pusher or
// http.CloseNotifier. Mount http.MaxBytesHandler outside the limiter, because
// http.MaxBytesReader can't close the connection through the wrapper. When next has returned,
// Admit copies Pattern and MultipartForm of next's request to r: loggers read Pattern, and the
// server removes the files of MultipartForm.
//
// Admit and Deny are for adapters to routers with errors or contexts of their own. Other
// adapters call [Limiter.Serve]. Such a router's writer may have these methods, and the wrapper
// has the last one:
//
//   - RequestWithContext(*http.Request) *http.Request returns a copy of the request whose
//     context holds the router's context. Functions of the application, such as a KeyFunc, get
//     that copy. It is called only if the limiter has such functions.
//   - WriteError(error) passes a denial to the router's error handler: see Deny.
//   - NeedsResponse() bool, of the wrapper, reports whether a limit needs the status
//     (WithSettle, AdaptiveConcurrency). If it does, an adapter of a router that turns handlers'
//     errors into responses must write the response before next returns.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) error {
	v := l.decidingVersion()
	if v.showsRequests() {
		r = routerRequest(w, r)
	}
	p, req, err := admit(v, w, r, false)
	if err != nil {
		setFailedFields(w.Header(), err)
		return err
	}
	p.runNext(w, r, req, next)
	return nil
}

// Serve combines Admit and Deny: it calls next if the request is admitted, and writes the
// response otherwise. Adapters call Serve unless their router handles errors. Serve is faster
// than Admit and Deny, because it makes no *DeniedError if the limiter has no deny or error
// handler.
func (l *Limiter) Serve(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) {
	v := l.decidingVersion()
	if v.showsRequests() {
		r = routerRequest(w, r)
	}
	p, req, err := admit(v, w, r, true)
	switch err {
	case nil:
		p.runNext(w, r, req, next)
	case errAnswered:
	default:
		setFailedFields(w.Header(), err)
		answer(v, w, r, err)
	}
}

// Deny writes the response to a request for which Admit, Allow, Take, Wait or Extend has returned err.
// err may be wrapped. The response is written by the handler of WithDenyHandler or
// WithErrorHandler; without one, it is a problem body. Deny sets the same header fields as
// Serve, unless Admit has set them. If the request's context ended while the request waited,
// the status is 503.
//
// If w is the writer that Admit passed to next, or wraps it, and has an Unwrap method, Deny writes
// nothing after the beginning of the response: a denied [Permit.Extend] can't change a response
// that has begun. Other writers are written to in any case.
//
// If w has a method WriteError(error), and the limiter has no deny handler, error handler or
// WithProblem, Deny calls it with err after the header fields are set, and writes no response.
func (l *Limiter) Deny(w http.ResponseWriter, r *http.Request, err error) {
	if respond.Begun(w) {
		return
	}
	v := l.currentVersion()
	setMissingFields(w.Header(), err)
	// The version that denied answers, as far as the error tells: stintecho hands errors to the
	// application, which may pass them to any limiter.
	if denied := denialIn(err); denied != nil && denied.version != nil &&
		denied.version.events.destinations == &l.destinations {
		v = denied.version
	}
	if v.showsRequests() {
		r = routerRequest(w, r)
	}
	answer(v, w, r, err)
}

// Mount returns an error if an adapter can't mount the limiter, because the key of a limit or of
// a WithFairQueue is GivenKey or a Key of another adapter. adapter is the name of the adapter's package, such as
// "stintgin". Adapters call Mount and panic if it returns an error; otherwise every request
// would be denied.
func (l *Limiter) Mount(adapter string) error {
	v := l.currentVersion()
	var errs []error
	check := func(what string, k *keys.Key) {
		if k.Given {
			errs = append(errs, fmt.Errorf("stint: %s: GivenKey, which requests don't have: use another key, or use the limiter with Take", what))
		}
		for _, other := range k.Adapters {
			if other != adapter {
				errs = append(errs, fmt.Errorf("stint: %s: %s.Key, which requests through %s don't have: mount the limiter with %[2]s, or use a stint.KeyFunc of the request", what, other, adapter))
			}
		}
	}
	for e := range v.plans.Entries {
		what := fmt.Sprintf("limit %q", e.Name())
		check(what, e.Key)
		if e.Tenant != nil {
			check(what+": WithFairQueue", e.Tenant)
		}
	}
	for _, f := range v.compiled.Funcs {
		check("limits of a "+f.Option(), f.Defaults.Key)
		if f.Source != nil {
			check("WithLimitSource", f.Source)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return nil
}

// usualRate and usualQuota stand in for the limits of functions, which CheckStore doesn't know.
var (
	usualRate  = usualLimit(store.Spec{Name: "rate", Units: 1, Period: time.Second})
	usualQuota = usualLimit(store.Spec{Name: "quota", Algorithm: store.FixedWindow, Units: 1, Period: time.Second})
)

func usualLimit(s store.Spec) *store.Limit {
	l, err := store.NewLimit(s)
	if err != nil {
		panic(err)
	}
	return l
}

// CheckStore checks that the store's server can decide the current limits. It charges nothing.
// Call CheckStore when a program starts, so that a wrong password or a missing permission makes
// the deployment fail instead of later requests.
//
// With redisstore, CheckStore runs the scripts of the limits on every master, and each command
// that the scripts may use. It uses keys of its own. If a permission is missing or the password
// is wrong, the error names the problem and wraps redisstore.ErrConfiguration. If the server
// can't be reached, the error wraps redisstore.ErrUnavailable. With failover, CheckStore checks
// the primary. With a store in memory, it returns nil.
//
// CheckStore checks the limits of the limiter and of its routes. Limits that a limit function or
// a source returns depend on a request: for these, CheckStore checks a Rate with a token bucket
// and a Quota, and no other algorithm. Call CheckStore again after an Update that adds an
// algorithm. Each call to the server may take 5 seconds: give ctx a deadline if
// that is too long. If the store is neither in memory nor a store.Verifier, the error wraps
// errors.ErrUnsupported.
func (l *Limiter) CheckStore(ctx context.Context) error {
	v := l.currentVersion()
	var limits []*store.Limit
	for e := range v.plans.Entries {
		if e.Needs&limit.Local == 0 && !slices.Contains(limits, e.StoreLimit) {
			limits = append(limits, e.StoreLimit)
		}
	}
	if len(v.plans.Base.Funcs) > 0 {
		limits = append(limits, usualRate, usualQuota)
	}
	s := v.backend.Store
	if verifier, ok := s.(store.Verifier); ok && len(limits) > 0 {
		if err := verifier.Verify(ctx, limits...); err != nil {
			return &StoreError{err}
		}
		return nil
	}
	if len(limits) == 0 || inside.AnswersAtOnce(s) {
		return nil
	}
	return &StoreError{fmt.Errorf("%T can't be checked, as it doesn't implement store.Verifier: %w", s,
		errors.ErrUnsupported)}
}
