// Package stint limits how much of an HTTP service each caller may use: request rates,
// quotas, concurrency and bandwidth.
//
//	limit := stinthttp.New(
//		stint.Rate(10, time.Second),
//		stint.WithKey(stint.RemoteIP()))
//	http.ListenAndServe(addr, limit(mux))
//
// A [Limiter] holds limits and decides requests: it charges all of its limits for a
// request at once or none of them. Limiters mounted one inside another decide separately.
// The adapters (stinthttp, stintgin, stintecho) mount a limiter in a router; for another
// router, [Limiter.Serve] is an adapter in one line. Outside HTTP use [Limiter.Allow], [Limiter.Take] and
// [Limiter.Wait]. [Limiter.Update] changes the limits while requests run.
//
// # Limits
//
// [Rate] and [Quota] count requests, [Concurrency] and [AdaptiveConcurrency] those in
// flight, [Bandwidth] bytes, and [Ban] denials. Each takes the options of its kind.
//
// # Keys
//
// Every limit needs a key that says who is limited. There is no default: behind a proxy
// all requests share an address, and without a proxy every forwarding header can be
// forged. Write [WithKey] with [RemoteIP], [ForwardedIP] and the addresses of your proxies,
// [Header], [Cookie], [Global], [FirstOf], or a [KeyFunc] of your own. If the key can't be
// determined, the request is denied.
//
// # Stores
//
// Counts are kept in a [store.Store]. The default is a store in memory, exact under any
// concurrency, for one process. [WithStore] sets one that processes share, such as a
// store of package redisstore.
//
// # Failure
//
// When the store fails, requests pass without RateLimit fields; that is logged, and
// observers are told. [WithFailurePolicy] with [FailClosed] answers 503 instead.
package stint

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// This file has what a middleware calls: a Limiter, made by New or With, that decides requests
// (Admit, Serve) and answers them (Serve, Deny).

// Limiter decides requests by its limits. Make one with New: the methods of a nil or zero
// Limiter panic, and say so. It is safe for concurrent use; only Update changes it.
type Limiter struct {
	now    atomic.Pointer[version]
	family *family
	parent *Limiter // the limiter that With extended, or nil
	opts   []Option // of New, With or the last Update; guarded by family.mu

	recipients recipients
	logged     atomic.Pointer[version] // whose limits the log has

	// ready is the version in force, or nil before the first decision after New or an Update, which
	// waits for the Update.
	ready atomic.Pointer[version]

	storeObserver *store.Observer // gets the notices of its store, which holds it weakly
	storeForgets  atomic.Bool     // its server evicts keys

	// Guarded by family.mu: see enlist.
	observers observers
	logger    *slog.Logger // by WithLogger
	logKeys   bool         // by WithLogKeys
}

// inForce returns the version in force. Every method asks for it, or for deciding, so that a nil or
// zero Limiter says what it is.
func (l *Limiter) inForce() *version {
	if l != nil {
		if v := l.now.Load(); v != nil {
			return v
		}
	}
	panic("stint: this Limiter is nil or zero and has no limits: make one with stint.New")
}

// deciding returns the version that decides a request or a job. It waits for an Update that is
// putting versions in place, so that nested limiters of a family decide by versions of one Update.
func (l *Limiter) deciding() *version {
	if l != nil {
		if v := l.ready.Load(); v != nil {
			return v
		}
	}
	l.inForce()
	l.family.mu.Lock()
	defer l.family.mu.Unlock()
	v := l.now.Load()
	l.ready.Store(v)
	return v
}

// New makes a limiter. The error reports everything that is wrong with the options at
// once: it is made by errors.Join and holds an *OptionError for each problem, which
// says what to write instead. A limiter needs at least one limit, route or
// WithLimitFunc, and a key for each limit.
//
// New calls none of the application's functions. A limiter limits nothing until an adapter mounts
// it or something calls it, and nothing detects that it is forgotten.
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
// it denies, what l has charged stays charged. Mounted alone it decides all limits.
//
// The new limiter follows l: after an Update of l it equals the limiter that With(opts...)
// would then return. l keeps a reference to it for that, so derive limiters when a program starts,
// not for each request.
func (l *Limiter) With(opts ...Option) (*Limiter, error) {
	l.inForce()
	d := &Limiter{family: l.family, parent: l}
	return d.begin(opts)
}

// Admit decides a request, waits for its turn if it has to, and runs next once if the
// request is admitted. What the request holds is given back when next returns or panics.
// next gets the request and the writer that it has to use: a request whose context
// carries the Permit, and a writer that limits look at or pace, if any does.
//
// If Admit returns an error, it hasn't run next, and nothing is charged or held. The
// error is a *DeniedError, or the reason why the request couldn't be decided; Deny
// answers it. Admit sets header fields on w and writes nothing. It returns nil once next
// has run, whatever next has answered.
//
// Limits that a limiter further out has charged for this request aren't charged again.
//
// A router that keeps a context of its own may pass a w with a method
// Lead(*http.Request) *http.Request, which returns a copy of the request that leads to that
// context. Admit, Serve and Deny call it only if a function of the application will see the
// request, and give it what Lead returns: most limiters have no such function, and the copy
// is then never made.
//
// The writer is w itself unless a limit looks at the response or paces it (WithSettle,
// AdaptiveConcurrency, Bandwidth). Then it is an http.Flusher, http.Hijacker or
// io.ReaderFrom exactly if w is, and its Unwrap method returns w, so that
// http.ResponseController finds everything else. Its method NeedsResponse() bool reports
// whether a limit decides by the response; a router that turns errors into responses
// after its handlers have returned does so before next returns then. It isn't an http.Pusher or
// http.CloseNotifier, and http.MaxBytesReader can't make the server close the connection
// through it, so mount http.MaxBytesHandler outside. When next has returned,
// r.Pattern and r.MultipartForm are those of the request that next got: loggers look at
// the one, and the server removes the files of the other.
//
// Admit and Deny are for adapters to routers that have errors or a context of their own.
// [Limiter.Serve] is both.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) error {
	v := l.deciding()
	if v.showsRequests() {
		r = lead(w, r)
	}
	p, req, err := admit(v, w, r, false)
	if err != nil {
		setFailed(w.Header(), err)
		return err
	}
	p.pass(w, r, req, next)
	return nil
}

// Serve runs next as Admit does, or answers the request as Deny does. It is all that an
// adapter needs, unless its router handles errors. If no handler of the limiter looks at a
// denial, it is answered without making a *DeniedError, which costs less than Admit and Deny.
func (l *Limiter) Serve(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) {
	v := l.deciding()
	if v.showsRequests() {
		r = lead(w, r)
	}
	p, req, err := admit(v, w, r, true)
	switch err {
	case nil:
		p.pass(w, r, req, next)
	case errAnswered:
	default:
		setFailed(w.Header(), err)
		answer(v, w, r, err)
	}
}

// Deny answers a request that Admit, Allow, Take or Wait has denied with err, which may be
// wrapped: by WithDenyHandler or WithErrorHandler if the limiter has them, otherwise with a
// problem body. It sets the header fields that Serve would, where Admit hasn't. A request whose context ended while it waited gets 503, since it may be
// the server that ended it; if the client has left, the answer is discarded.
//
// If w is an [ErrorWriter] and the limiter isn't configured to answer, w gets the error
// instead.
func (l *Limiter) Deny(w http.ResponseWriter, r *http.Request, err error) {
	v := l.inForce()
	setUnset(w.Header(), err)
	// The version that denied answers, as far as the error tells: stintecho hands errors to the
	// application, which may pass them to any limiter.
	if denied := denialIn(err); denied != nil && denied.by != nil && denied.by.events.to == &l.recipients {
		v = denied.by
	}
	if v.showsRequests() {
		r = lead(w, r)
	}
	answer(v, w, r, err)
}
