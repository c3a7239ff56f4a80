// Package stint limits how much of an HTTP service each caller may use:
// request rates, quotas, concurrency and bandwidth.
//
//	limit := stinthttp.New(
//		stint.Rate(10, time.Second),
//		stint.WithKey(stint.RemoteIP()))
//	http.ListenAndServe(addr, limit(mux))
//
// A [Limiter] holds limits and decides requests: [Limiter.Admit] charges all of
// the limiter's limits for a request at once, or none of them, and [Limiter.Deny]
// answers the requests that are refused. Limiters mounted one inside another
// decide apart. The adapters (stinthttp, stintgin, stintecho) are those two calls
// in the shape of a router; what only adapters need says so. Outside HTTP there are [Limiter.Take] and
// [Limiter.Wait]. [Limiter.Update] changes the limits while requests run.
//
// # Keys
//
// Every limit needs a key that says who is limited, and there is no default:
// behind a proxy all requests share an address, and without one every header
// can be forged. Write WithKey with RemoteIP, ForwardedIP and the addresses of
// your proxies, Header, Cookie, Global, or a KeyFunc of your own.
//
// # Stores
//
// Counts live in a [store.Store]: by default in memory, exact under any
// concurrency, in one process.
//
// # Failure
//
// When the store fails, requests pass without RateLimit fields and observers
// are told; WithFailurePolicy(FailClosed) answers 503 instead. A key that
// can't be told never lets a request pass.
package stint

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/stint-go/stint/internal/field"
)

// Limiter decides requests by its limits. Make one with New; it is safe for
// concurrent use, and only Update changes it.
type Limiter struct {
	now    atomic.Pointer[version]
	family *family
	parent *Limiter                      // that With has extended, or nil
	told   atomic.Pointer[[]func(Event)] // who is told of its events; nil: nobody
	opts   []Option                      // of New, With or the last Update; guarded by family.mu

	// Guarded by family.mu: see enlist.
	given     []func(Event) // by WithObserver
	observers []*observer   // by Observe
}

// New makes a limiter. It reports everything that is wrong with the options at
// once (errors.Join), each as an *OptionError that says what to write instead.
//
// New calls every KeyFunc and predicate once, with a request from 192.0.2.1 for
// /, to find those of this package that were made wrongly; errors and panics
// of others are ignored.
func New(opts ...Option) (*Limiter, error) {
	l := &Limiter{family: newFamily()}
	return l.begin(opts)
}

// Check returns the error that New would, for tools that look at options
// without using them. It makes no limiter and asks no store.
func Check(opts ...Option) error {
	l := &Limiter{family: newFamily()}
	_, _, err := l.try(collect(opts))
	return err
}

// Must returns l, or panics with err. It is for limiters in package variables
// and at start-up.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// With makes a limiter that has l's limits and those in opts, decided together.
// It shares l's store, handlers, predicates and defaults where opts don't say
// otherwise. The limits inherited are l's own, with what has been consumed:
// mounted inside l it charges only what it adds, in a decision apart: if it
// refuses, what l has charged stays charged. Mounted alone it decides all.
//
// The limiter follows l: after an Update of l it is what With(opts...) would
// make of it then. It is remembered for that as long as l is, so derive
// limiters when a program starts, and not for each request.
func (l *Limiter) With(opts ...Option) (*Limiter, error) {
	d := &Limiter{family: l.family, parent: l}
	return d.begin(opts)
}

// ForRequests returns an error if requests through an adapter, such as "stintgin",
// can't have the key of some limit: GivenKey, or the Key of another adapter. It is
// for adapters: Middleware calls it, and panics.
func (l *Limiter) ForRequests(adapter string) error {
	var errs []error
	check := func(limit string, k *keySource) {
		if err := k.unfit(adapter); err != nil {
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

// Admit decides a request. When it returns nil the request may go on, after
// having waited for its turn if it had to; the permit is nil where nothing was
// limited or there is nothing to carry. It is for adapters: the caller passes the
// request of p.Next(r) on and calls p.Done when the next handler has returned or
// panicked.
//
// Otherwise nothing is charged or held, and the error is for Deny: a
// *DeniedError, or the reason why nothing was decided. Fields of both answers
// are set on w; nothing is written.
//
// Limits that a permit in the request's context has charged already are not
// charged again.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request) (*Permit, error) {
	p, err := l.now.Load().admit(w, r, nil)
	if err != nil {
		setFailed(w.Header(), err)
	}
	return p, err
}

// AdmitIn is Admit where a framework has a context of its own for each request. It
// is for adapters with a Key function, whose k is called with in. Where a limit has
// such a key, in is given a copy of r: pass that one to Next, or to Deny.
func (l *Limiter) AdmitIn(w http.ResponseWriter, r *http.Request, in interface{ SetRequest(*http.Request) }) (*Permit, error) {
	p, err := l.now.Load().admit(w, r, in)
	if err != nil {
		setFailed(w.Header(), err)
	}
	return p, err
}

// setFailed sets the fields of an answer to err, unless that is a refusal by limits,
// whose fields are set.
func setFailed(h http.Header, err error) {
	if _, ok := err.(*DeniedError); !ok {
		field.Failed(h, statusOf(err))
	}
}

// sift finds the requests that are exempt, or refused, before their limits are
// looked at.
func (v *version) sift(r *http.Request) (exempt bool, err error) {
	for _, skip := range v.skip {
		if skip(r) {
			return true, nil
		}
	}
	for _, block := range v.block {
		if block(r) {
			err := &requestError{err: ErrBlocked, status: http.StatusForbidden}
			v.observe(Event{Kind: EventBlocked, Request: r, Err: err})
			return false, err
		}
	}
	return false, nil
}

// Deny answers a request that Admit has refused with err, which may be
// wrapped. A request whose context ended while it waited is answered 503: the
// server may have ended it. If the client has left, nobody reads the answer. It is
// for adapters, and for applications to which an adapter leaves its errors.
func (l *Limiter) Deny(w http.ResponseWriter, r *http.Request, err error) {
	if denied := refusalIn(err); denied != nil {
		l.deniedBy(denied).deny(w, r, denied)
		return
	}
	l.now.Load().fail(w, r, err)
}

// Answers reports whether the limiter has been told how Deny answers err: by
// WithDenyHandler for what its limits refuse, by WithErrorHandler for other errors,
// by WithProblem for both. It is for adapters to routers with an error handler of
// their own, which is left the rest.
func (l *Limiter) Answers(err error) bool {
	if denied := refusalIn(err); denied != nil {
		v := l.deniedBy(denied)
		return v.denyHandler != nil || v.problem
	}
	v := l.now.Load()
	return v.errorHandler != nil || v.problem
}

// refusalIn finds the refusal by limits that err is or wraps, or nil.
func refusalIn(err error) *DeniedError {
	if de, ok := err.(*DeniedError); ok { // errors.As allocates
		return de
	}
	if de := (*DeniedError)(nil); errors.As(err, &de) {
		return de
	}
	return nil
}

// deniedBy is the version of l to answer a refusal: the one that refused. A
// refusal of another limiter (stintecho hands errors to the application, which
// may hand them to any) is answered as l would now.
func (l *Limiter) deniedBy(err *DeniedError) *version {
	if err.by != nil && err.by.of == l {
		return err.by
	}
	return l.now.Load()
}
