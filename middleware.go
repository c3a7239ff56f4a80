// Package stint limits how much of an HTTP service each caller may use: request rates,
// quotas, concurrency and bandwidth.
//
//	limit := stinthttp.New(
//		stint.Rate(10, time.Second),
//		stint.WithKey(stint.RemoteIP()))
//	http.ListenAndServe(addr, limit(mux))
//
// A [Limiter] holds limits and decides requests: [Limiter.Admit] charges all of the
// limiter's limits for a request at once or none of them, and [Limiter.Deny] answers
// refused requests. Limiters mounted one inside another decide separately. The adapters
// (stinthttp, stintgin, stintecho) make these two calls for a router; the documentation
// marks what only adapters need. Outside HTTP use [Limiter.Allow], [Limiter.Take] and
// [Limiter.Wait]. [Limiter.Update] changes the limits while requests run.
//
// # Keys
//
// Every limit needs a key that says who is limited. There is no default: behind a proxy
// all requests share an address, and without a proxy every forwarding header can be
// forged. Write WithKey with RemoteIP, ForwardedIP and the addresses of your proxies,
// Header, Cookie, Global, FirstOf, or a KeyFunc of your own. If the key can't be determined, the
// request is refused.
//
// # Stores
//
// Counts are kept in a [store.Store]. The default is a store in memory, exact under any
// concurrency, for one process. WithStore sets one that processes share, such as a
// store of package redisstore.
//
// # Failure
//
// When the store fails, requests pass without RateLimit fields; that is logged, and
// observers are told. WithFailurePolicy(FailClosed) answers 503 instead.
package stint

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/stint-go/stint/internal/framework"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// Limiter decides requests by its limits. Make one with New. It is safe for concurrent
// use; only Update changes it.
type Limiter struct {
	now      atomic.Pointer[version]
	family   *family
	parent   *Limiter                 // the limiter that With extended, or nil
	audience atomic.Pointer[audience] // its observers, or nil if there are none
	log      atomic.Pointer[logs.Log] // of failures, refusals and warnings
	opts     []Option                 // of New, With or the last Update; guarded by family.mu

	storeObserver *store.Observer // gets the notices of the store of WithStore, which holds it weakly; or nil

	// Guarded by family.mu: see enlist.
	observers observers
	logger    *slog.Logger // by WithLogger
	logKeys   bool         // by WithLogKeys
}

// New makes a limiter. The error reports everything that is wrong with the options at
// once: it is made by errors.Join and holds an *OptionError for each problem, which
// says what to write instead. A limiter needs at least one limit, route or
// WithLimitFunc, and a key for each limit.
//
// New calls none of the application's functions.
func New(opts ...Option) (*Limiter, error) {
	l := &Limiter{family: newFamily()}
	return l.begin(opts)
}

// Check returns the error that New would return, for tools that check options without
// using them. It makes no limiter and calls no store.
func Check(opts ...Option) error {
	l := &Limiter{family: newFamily()}
	_, _, err := l.try(collect(opts, usual))
	return err
}

// Must returns l, or panics with err. Use it for package variables and at start-up.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// With makes a limiter that has l's limits and those in opts, decided together. It
// shares l's store, handlers, predicates and defaults, unless opts say otherwise.
// Errors are those of New.
//
// The inherited limits are l's own, including what has been consumed. If the new
// limiter is mounted inside l, it charges only what it adds, in a separate decision: if
// it refuses, what l has charged stays charged. Mounted alone it decides all limits.
//
// The new limiter follows l: after an Update of l it equals the limiter that With(opts...)
// would then return. l keeps a reference to it for that, so derive limiters when a program starts,
// not for each request.
func (l *Limiter) With(opts ...Option) (*Limiter, error) {
	d := &Limiter{family: l.family, parent: l}
	return d.begin(opts)
}

// ForRequests returns an error if requests through an adapter, such as "stintgin",
// can't have the key of some limit: GivenKey, or the Key of another adapter. It is for
// adapters: their Middleware calls it and panics with the error.
func (l *Limiter) ForRequests(adapter string) error {
	var errs []error
	check := func(limit string, k *keys.Key) {
		err := framework.Unfit(k, adapter)
		if k.Given {
			err = errors.New("GivenKey, which requests don't have: write another WithKey, or use the limiter with Take")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("stint: %s: %w", limit, err))
		}
	}
	v := l.now.Load()
	for e := range v.entries() {
		check(fmt.Sprintf("limit %q", e.limit.Name()), e.key)
	}
	for _, f := range v.funcs {
		check("limits of a WithLimitFunc", f.shared.key)
	}
	return errors.Join(errs...)
}

// Admit decides a request, and waits for its turn if it has to. It is for adapters.
//
// If it returns no error, the request may go on. The permit is nil if nothing was
// limited or there is nothing to carry. The caller passes on the request returned by
// p.Next(r), and calls p.Done when the next handler has returned or panicked.
//
// If it returns an error, nothing is charged or held. The error is for Deny: a
// *DeniedError, or the reason why nothing was decided. In both cases Admit sets the
// header fields on w; it writes nothing.
//
// Limits that a permit in the request's context has already charged aren't charged
// again.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request) (*Permit, error) {
	p, err := l.now.Load().admit(w, r, nil, false)
	if err != nil {
		setFailed(w.Header(), err)
	}
	return p, err
}

// AdmitIn is Admit for frameworks that have a context of their own for each request. It
// is for adapters with a Key function, whose k is called with in. If a limit has such a
// key, in is given a copy of r: pass that copy to Next or Deny.
//
// If problem is set or the limiter is WithProblem, AdmitIn answers refusals by limits
// itself and returns ErrAnswered, unless there is a WithDenyHandler. That costs less than
// a *DeniedError and Deny.
func (l *Limiter) AdmitIn(w http.ResponseWriter, r *http.Request, in interface{ SetRequest(*http.Request) }, problem bool) (*Permit, error) {
	p, err := l.now.Load().admit(w, r, in, problem)
	if err != nil && err != ErrAnswered {
		setFailed(w.Header(), err)
	}
	return p, err
}

// AdmitOrDeny is Admit, and Deny if that returns an error. It is for adapters that have
// nothing to do in between. A refusal by limits costs less than with Admit and Deny: its
// *DeniedError is made only for a WithDenyHandler.
func (l *Limiter) AdmitOrDeny(w http.ResponseWriter, r *http.Request) (p *Permit, admitted bool) {
	p, err := l.now.Load().admit(w, r, nil, true)
	if err != nil && err != ErrAnswered {
		setFailed(w.Header(), err)
		l.Deny(w, r, err)
	}
	return p, err == nil
}

// Deny answers a request that Admit has refused with err, which may be wrapped. A
// request whose context ended while it waited gets 503, since it may be the server that
// ended it; if the client has left, the answer is discarded. Deny is for adapters, and
// for applications to which an adapter passes its errors.
func (l *Limiter) Deny(w http.ResponseWriter, r *http.Request, err error) {
	if denied := refusalIn(err); denied != nil {
		l.versionOf(denied).deny(w, r, denied)
		return
	}
	l.now.Load().fail(w, r, err)
}

// Answers reports whether Deny answers err in a way that the limiter was configured
// for: by WithDenyHandler for refusals by limits, by WithErrorHandler for other errors,
// by WithProblem for both. It is for adapters to routers with an error handler of their
// own, which answers the rest.
func (l *Limiter) Answers(err error) bool {
	if denied := refusalIn(err); denied != nil {
		v := l.versionOf(denied)
		return v.denyHandler != nil || v.problem
	}
	v := l.now.Load()
	return v.errorHandler != nil || v.problem
}

// ErrAnswered is the error of AdmitIn for a request that it has refused and answered.
// Nothing is left to do.
var ErrAnswered = errors.New("stint: refused and answered")
