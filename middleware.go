// Package stint limits how much of an HTTP service each caller may use:
// request rates, quotas and concurrency.
//
//	limit := stinthttp.New(
//		stint.Rate(10, time.Second),
//		stint.WithKey(stint.RemoteIP()))
//	http.ListenAndServe(addr, limit(mux))
//
// A [Limiter] holds limits and decides requests: [Limiter.Admit] charges all
// limits of a request at once, or none of them, and [Limiter.Deny] answers the
// ones that are refused. The adapters (stinthttp, stintgin, stintecho) are
// those two calls in the shape of a router. Outside HTTP there are
// [Limiter.Take] and [Limiter.Wait].
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
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// Limiter decides requests by its limits. Make one with New; it is immutable
// and safe for concurrent use.
type Limiter struct {
	family *family
	store  store.Store
	base   *plan
	router *router // nil without routes
	funcs  []*limitFunc

	shared        settings // defaults of the limits that are added by With
	skip, block   []func(*http.Request) bool
	denyHandler   http.Handler
	errorHandler  func(http.ResponseWriter, *http.Request, error)
	headers       headerSet
	observers     []func(Event)
	emptyKey      EmptyKeyPolicy
	withoutPermit bool
}

// New makes a limiter. It reports everything that is wrong with the options at
// once (errors.Join), each error saying what to write instead.
//
// New calls every KeyFunc and predicate once, with a request from 192.0.2.1 for
// /, to find those of this package that were made wrongly; errors and panics
// of others are ignored.
func New(opts ...Option) (*Limiter, error) {
	l := &Limiter{family: newFamily(), headers: draftSet}
	return l.build(nil, opts)
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
// mounted inside l it charges only what it adds.
func (l *Limiter) With(opts ...Option) (*Limiter, error) {
	d := *l
	return d.build(l, opts)
}

func (l *Limiter) build(parent *Limiter, opts []Option) (*Limiter, error) {
	var c config
	c.apply(opts)

	if c.store != nil {
		l.store = c.store
	}
	if l.store == nil {
		l.store = memstore.New()
	}
	l.shared = c.shared.or(l.shared)
	l.shared.errs = nil
	for _, fn := range c.limitFuncs {
		l.funcs = append(l.funcs[:len(l.funcs):len(l.funcs)], &limitFunc{fn: fn, shared: l.shared, family: l.family})
	}
	l.skip = append(l.skip[:len(l.skip):len(l.skip)], c.skip...)
	l.block = append(l.block[:len(l.block):len(l.block)], c.block...)
	l.observers = append(l.observers[:len(l.observers):len(l.observers)], c.observers...)
	if c.denyHandler != nil {
		l.denyHandler = c.denyHandler
	}
	if c.errorHandler != nil {
		l.errorHandler = c.errorHandler
	}
	if c.headers != 0 {
		l.headers = c.headers
	}
	if c.emptyKeySet {
		l.emptyKey = c.emptyKey
	}
	l.withoutPermit = l.withoutPermit || c.withoutPermit

	l.family.mu.Lock()
	defer l.family.mu.Unlock()
	if errs := l.compile(&c, parent); len(errs) > 0 {
		for i, err := range errs {
			errs[i] = fmt.Errorf("stint: %w", err)
		}
		return nil, errors.Join(errs...)
	}
	return l, nil
}

// HasDenyHandler reports whether refusals are answered by a handler given to
// WithDenyHandler. Adapters of routers with an error handler of their own
// leave other refusals to that.
func (l *Limiter) HasDenyHandler() bool { return l.denyHandler != nil }

// HasErrorHandler reports the same of WithErrorHandler.
func (l *Limiter) HasErrorHandler() bool { return l.errorHandler != nil }

// Admit decides a request. When it returns nil the request may go on, after
// having waited for its turn if it had to; the permit is nil where nothing was
// limited or there is nothing to carry. The caller passes p.Request(r) on and
// calls p.Done when the next handler has returned or panicked.
//
// Otherwise nothing is charged or held, and the error is for Deny: a
// *DeniedError, or the reason why nothing was decided. Fields of both answers
// are set on w; nothing is written.
//
// Limits that a permit in the request's context has charged already are not
// charged again.
func (l *Limiter) Admit(w http.ResponseWriter, r *http.Request) (*Permit, error) {
	for _, skip := range l.skip {
		if skip(r) {
			return nil, nil
		}
	}
	for _, block := range l.block {
		if block(r) {
			err := &requestError{err: ErrBlocked, status: http.StatusForbidden}
			l.observe(Event{Kind: Blocked, Request: r, Err: err})
			return nil, err
		}
	}
	p := l.plan(r)
	if p.exempt() {
		return nil, nil
	}
	c := newCall(l, r)
	defer c.free()
	ctx := r.Context()
	c.outer = FromContext(ctx)
	if err := c.gather(p); err != nil {
		return nil, err
	}
	if len(c.charges) == 0 {
		return nil, nil
	}
	if err := c.decide(ctx); err != nil {
		err = c.failed(ctx, err)
		if err != nil && errors.As(err, new(*StoreError)) {
			f := fieldWriter{h: w.Header()}
			f.latest("1", 1)
			f.notStored()
		}
		return nil, err
	}
	if !granted(c.charges, c.results) {
		err := c.denied()
		f := fieldWriter{h: w.Header(), slots: err.fields[:fieldSlots-1]}
		c.writeFields(&f)
		f.notStored()
		l.observeCall(Denied, c, err)
		return nil, err
	}
	return c.admit(ctx, w.Header()), nil
}

// admit sets the fields of a granted call and makes its permit, if anybody
// can ask for one.
func (c *call) admit(ctx context.Context, h http.Header) *Permit {
	var p *Permit
	f := fieldWriter{h: h}
	if !c.lim.withoutPermit || c.holds() {
		p = c.permit(ctx)
		p.carry = !c.lim.withoutPermit
		f.slots = p.fields[:]
	}
	if n := c.lim.headers.values(); n > len(f.slots) {
		f.slots = c.cut(n)
	}
	c.writeFields(&f)
	c.lim.observeCall(Admitted, c, nil)
	return p
}

// failed turns what went wrong in a decision into Admit's or Take's error: nil
// where the request may pass all the same.
func (c *call) failed(ctx context.Context, err error) error {
	if ce := (*canceledError)(nil); errors.As(err, &ce) {
		c.lim.observeCall(Canceled, c, err)
		return err
	}
	if ctxErr := ctx.Err(); ctxErr != nil { // not the store's fault
		err = &canceledError{ctxErr}
		clear(c.results)
		c.lim.observeCall(Canceled, c, err)
		return err
	}
	for _, e := range c.entries {
		if e.closed {
			err := &StoreError{err}
			c.lim.observe(Event{Kind: StoreFailed, Request: c.r, Err: err})
			return err
		}
	}
	c.lim.observe(Event{Kind: StoreFailed, Request: c.r, Err: err})
	return nil
}

// Deny answers a request that Admit has refused with err, which may be
// wrapped. A client that has left is not answered.
func (l *Limiter) Deny(w http.ResponseWriter, r *http.Request, err error) {
	if de, ok := err.(*DeniedError); ok { // errors.As allocates
		l.deny(w, r, de)
		return
	}
	if de := (*DeniedError)(nil); errors.As(err, &de) {
		l.deny(w, r, de)
		return
	}
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return
	}
	l.fail(w, r, err)
}
