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
// Header, Cookie, Global, or a KeyFunc of your own. If the key can't be determined, the
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
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/stint-go/stint/internal/keyfunc"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Limiter decides requests by its limits. Make one with New. It is safe for concurrent
// use; only Update changes it.
type Limiter struct {
	now    atomic.Pointer[version]
	family *family
	parent *Limiter                 // the limiter that With extended, or nil
	told   atomic.Pointer[audience] // its observers, or nil if there are none
	log    atomic.Pointer[logs.Log] // of failures, refusals and warnings
	opts   []Option                 // of New, With or the last Update; guarded by family.mu

	hears *store.Observer // hears from the store of WithStore, which holds it weakly; or nil

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
// New calls every KeyFunc and predicate once, with a request from 192.0.2.1 for /, to
// find those of this package that were made with wrong arguments. It ignores errors and
// panics of others.
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
// The new limiter follows l: after an Update of l it is what With(opts...) would then
// return. l keeps a reference to it for that, so derive limiters when a program starts,
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
	check := func(limit string, k *keyfunc.Source) {
		if err := k.Unfit(adapter); err != nil {
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

// ErrHolds is the error of Allow on a limiter with a Concurrency or an
// AdaptiveConcurrency. Their slots are held until they are released, and Allow returns
// nothing to release them with. Use Take, and call Done on its permit.
var ErrHolds = errors.New("stint: Allow: the limiter has a limit with slots: use Take, and call Done")

// Allow charges cost to all of the limiter's limits (not those of its routes) for one
// key. It is Take for jobs, queues and RPCs that are charged once and hold nothing. It
// returns nil if all limits let the charge pass, a *DeniedError if one refuses, and
// otherwise the errors of Take; unless it returns nil, nothing is charged. Keys and
// costs are those of Take.
//
// It returns ErrHolds if a limit of the limiter has slots, even in a dry run. It
// ignores a Bandwidth and WithSettle, which are about responses. If a limit makes
// callers wait (WithMaxWait, WithQueue, a LeakyBucket), Allow blocks until its turn has
// come. If the store fails, it returns nil unless a limit is FailClosed.
//
// It allocates nothing if it returns nil from a store in memory and nothing waits or
// observes.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) error {
	if l.told.Load() == nil && l.now.Load().allows(ctx, key, cost) {
		return nil
	}
	c := calls.Get().(*call)
	defer c.end(ctx)
	v := l.now.Load()
	for _, e := range v.base.entries {
		if e.wait.Way == waiting.ForSlot {
			return ErrHolds
		}
	}
	if decided, err := c.outside(v, ctx, key, cost); err != nil || !decided {
		return err
	}
	c.observe(EventAdmitted, nil)
	if told := c.telling(); told != untold && !v.over(told, c.below) {
		c.Took = 0 // that was for the decision
		c.tell(&Event{Kind: EventEnded, Waited: c.Waited, plain: told >= plainly})
	}
	c.Granted = false // nothing is given back
	return nil
}

// allows is Allow for one limit in memory. It uses no call: getting and filling one takes
// more than half as long as the decision. If it returns false, nothing is charged, and
// Allow asks again to find out why.
func (v *version) allows(ctx context.Context, key string, cost int64) bool {
	e := v.base.alone
	if e == nil || v.allower == nil || cost < 1 || ctx.Err() != nil {
		return false
	}
	under, err := e.key.Under(keytext.Encode(key))
	if err != nil {
		return false
	}
	ok, err := v.allower.Allow(ctx, under, e.limit, cost)
	return ok && err == nil
}

// Take charges cost, from 1 to 2^40, to all of the limiter's limits (not those of its
// routes) for one key: jobs, queues, RPCs. Call Done on the permit when the work is
// over. If no limit has slots and nothing is settled, Allow does the same for less.
//
// If a limit refuses, the error is a *DeniedError; if ctx has already ended, it wraps
// ctx's error; if the cost is out of range, it wraps store.ErrCost. In each case
// nothing is charged. If the store fails, the permit is an empty one, or the error a
// *StoreError if a limit is FailClosed.
//
// Limits with a constant key (Global, and Join or Hash of such keys) are charged under
// that key, as for requests; all others under the key given. If there are others, a key
// that is empty or too long is an error (ErrEmptyKey, ErrKeyTooLong). Predicates, other
// key functions and WithCost are about requests and are ignored; WithMaxWait applies.
// For a limiter that is used only this way, write WithKey(GivenKey()).
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, false)
}

// Wait is Take, but blocks until it is key's turn or ctx ends. If ctx ends, nothing is
// charged and the error wraps ctx's error. A turn that comes after ctx's deadline, or
// after an hour if ctx has none, is refused at once with a *DeniedError, and so is a
// cost that can never pass. For slots of a concurrency limit it waits that long too, if
// their WithQueue has room; if none comes free by the deadline, the error is also a
// *DeniedError.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, true)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, patient bool) (*Permit, error) {
	c := calls.Get().(*call)
	defer c.end(ctx)
	c.Patient, c.walked = patient, patient
	decided, err := c.outside(l.now.Load(), ctx, key, cost)
	switch {
	case err != nil:
		return nil, err
	case !decided:
		return &Permit{}, nil
	}
	p := c.permit(ctx)
	c.observe(EventAdmitted, nil)
	c.Granted = false // the permit gives it back
	return p, nil
}

// outside decides a call outside HTTP. If decided is false and err is nil, the store has
// failed and no limit is FailClosed.
func (c *call) outside(v *version, ctx context.Context, key string, cost int64) (decided bool, err error) {
	if cost < 1 || cost > store.MaxCost {
		return false, fmt.Errorf("stint: %w: %d: write 1 to 2^40, or use Peek", store.ErrCost, cost)
	}
	if err := c.gatherKey(v, key, cost); err != nil {
		return false, err
	}
	if err := c.decide(ctx); err != nil {
		return false, c.failed(ctx, err)
	}
	if !c.Granted {
		err := c.denied()
		c.observe(EventDenied, nil)
		return false, err
	}
	return true, nil
}

// gatherKey adds the charges of one key, to all of the limiter's own limits.
func (c *call) gatherKey(v *version, key string, cost int64) error {
	c.lim, c.Store = v, v.store
	encoded, unfit := keytext.Encode(key)
	for _, e := range v.base.entries {
		if e.needs&paces != 0 {
			continue
		}
		under, err := e.key.Under(encoded, unfit)
		if err != nil {
			return err
		}
		c.add(e, under, cost)
	}
	if len(c.Charges) == 0 {
		return errUncharged
	}
	if c.needs&local != 0 {
		c.decideLocally()
	}
	return nil
}

// Peek returns how key stands with the limiter's limits, and charges nothing.
// Decision.Allowed reports whether each enforced limit has a unit left; RetryAfter is
// the time until every limit has one.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	c := calls.Get().(*call)
	defer c.end(ctx)
	if err := c.gatherKey(l.now.Load(), key, 0); err != nil {
		return Decision{}, err
	}
	return c.peek(ctx)
}

// PeekAll returns how key stands with all of the limiter's limits, including those of
// its routes, and charges nothing. Decision.Limits has each limit once; the rest of the
// Decision is of all of them together, which no request meets. Limits that a
// WithLimitFunc returns are left out, and so is a Bandwidth.
func (l *Limiter) PeekAll(ctx context.Context, key string) (Decision, error) {
	c := calls.Get().(*call)
	defer c.end(ctx)
	if err := c.gatherAll(l.now.Load(), key); err != nil {
		return Decision{}, err
	}
	return c.peek(ctx)
}

// gatherAll adds a charge of cost 0 for each limit that applies to key.
func (c *call) gatherAll(v *version, key string) error {
	c.lim, c.Store = v, v.store
	encoded, unfit := keytext.Encode(key)
	for e := range v.entries() {
		if e.needs&paces != 0 {
			continue
		}
		under, err := e.key.Under(encoded, unfit)
		if err != nil {
			return err
		}
		known := func(ch store.Charge) bool { return ch.Limit == e.limit && ch.Key == under }
		if !slices.ContainsFunc(c.Charges, known) {
			c.add(e, under, 0)
		}
	}
	if len(c.Charges) == 0 {
		return errUncharged
	}
	if c.needs&local != 0 {
		c.decideLocally()
	}
	return nil
}

// peek decides the charges, all of cost 0.
func (c *call) peek(ctx context.Context) (Decision, error) {
	c.walked = true
	if err := c.lim.lines.Peek(ctx, &c.Call, (*caller)(c)); err != nil {
		return Decision{}, &StoreError{err}
	}
	for i := range c.Results {
		r := &c.Results[i]
		if r.OK = c.entries[i].kind.free(r); !r.OK {
			r.RetryAfter, _ = c.Charges[i].Limit.MoreAfter(r)
		}
	}
	var d Decision
	d.decide(c.entries, c.Charges, c.Results, make([]LimitStatus, len(c.Results)))
	return d, nil
}

// errUncharged is the error of a limiter with no limit that a key can be charged for. A
// call that charges nothing must not look as if it had been let through.
var errUncharged = errors.New("stint: the limiter has nothing to charge a key for (a Bandwidth, the limits of a WithLimitFunc and, except for PeekAll, those of a WithRoute are left out): add a limit to New, such as a stint.Rate")
