// Package tenants gives each tenant its own limits, which it loads from a slow source, such as
// a database, and caches:
//
//	cache, err := tenants.New(load)
//	if err != nil {
//		log.Fatal(err)
//	}
//	limit := stinthttp.New(
//		stint.WithKey(stint.Header("X-Tenant")),
//		cache.Limits(stint.Header("X-Tenant")))
//
// A tenant's plan is the list of limits that load returns for its key. Mount the limiter behind
// authentication; otherwise each request with a made-up key calls the source.
package tenants

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/optionerror"
)

// Cache stores the limits that a source has returned for each key. Make a Cache with New.
// Several limiters may share a Cache. It is safe for concurrent use, and runs one goroutine for
// each load in progress.
type Cache struct {
	load     func(ctx context.Context, key string) ([]stint.Limit, error)
	ttl      time.Duration
	size     int64
	timeout  time.Duration
	fallback []stint.Limit // by WithDefault

	mu       sync.Mutex
	tenants  recent[*tenant]     // those that have a plan
	failures recent[*failure]    // of last loads
	loads    map[string]*loading // loads under way
	notified map[any]*notified   // by stint.LimitUser.ID
}

// tenant is a key that has a plan.
type tenant struct {
	plan   *plan               // that was loaded last
	usedBy map[any]*limiterUse // by stint.LimitUser.ID
}

// plan is one that was loaded. It doesn't change.
type plan struct {
	limits []stint.Limit
	loaded time.Time
}

// notified is what a limiter has been told of failures, so that its log says once when loads begin to
// fail and once when they succeed again.
type notified struct {
	failing bool
	last    time.Time // of the failures
	ended   time.Time // when it wasn't failing any more
}

// limiterUse is which of a tenant's plans a limiter uses.
type limiterUse struct {
	by      stint.LimitUser // differs after an Update, which may have taken names or changed defaults
	checked *plan           // the last one
	invalid *failure        // with it, or nil
	valid   *plan           // the last valid one, or nil
}

// failure is a load that has failed.
type failure struct {
	err      error
	noPlan   error     // of the last load that has not failed: it has found no plan
	at       time.Time // when it failed
	since    time.Time // when the first failed of the key's loads in a row
	reported bool      // to a limiter that goes on with an earlier plan
}

// loading is a load under way. Its plan or failure is set when done is closed.
type loading struct {
	ctx     context.Context // of the load
	done    chan struct{}
	plan    *plan
	failure *failure
}

// ErrNoPlan is the error that a load function returns, wrapped or not, if the key has no plan.
// The request is then answered with 403.
var ErrNoPlan error = noPlan{}

type noPlan struct{}

func (noPlan) Error() string   { return "tenants: no plan" }
func (noPlan) StatusCode() int { return http.StatusForbidden }

// errEmptyKey is the error for an empty key.
var errEmptyKey error = emptyKey{}

type emptyKey struct{ noPlan }

func (emptyKey) Error() string        { return "tenants: no plan: an empty key" }
func (emptyKey) Is(target error) bool { return target == ErrNoPlan || target == stint.ErrEmptyKey }

const (
	defaultTTL     = time.Minute
	defaultSize    = 10_000
	defaultTimeout = 5 * time.Second
)

// Option changes a default of New.
type Option interface{ apply(*Cache) error }

type option func(*Cache) error

func (set option) apply(x *Cache) error { return set(x) }

// WithTTL sets the time for which a plan counts as current. The default is a minute. d is 1 ms
// or more; New returns an error for any other d.
func WithTTL(d time.Duration) Option {
	return option(func(p *Cache) error {
		p.ttl = d
		return checkDuration("WithTTL", d, defaultTTL)
	})
}

// WithSize sets the size of the cache: it holds up to n plans and, in addition, up to n keys
// without a plan. If there are more, the least recently used are dropped. The default is
// 10,000. n is at least 1; New returns an error for any other n.
func WithSize(n int64) Option {
	return option(func(p *Cache) error {
		p.size = n
		if n < 1 {
			return fmt.Errorf("tenants: WithSize(%d): use 1 or more, or leave it out for the default of %d", n, defaultSize)
		}
		return nil
	})
}

// WithLoadTimeout sets the longest duration of a load. At the timeout, the load's context ends,
// and callers stop waiting. The default is 5 seconds. d is 1 ms or more; New returns an error
// for any other d.
func WithLoadTimeout(d time.Duration) Option {
	return option(func(p *Cache) error {
		p.timeout = d
		return checkDuration("WithLoadTimeout", d, defaultTimeout)
	})
}

// WithDefault sets the limits of a key whose plan can't be loaded and that has no earlier plan.
// They don't apply to a key without a plan (ErrNoPlan). Without this option,
// stint.WithFailurePolicy decides. New returns an error if there are no limits, or if
// stint.LimitUser.Check returns an error.
func WithDefault(limits ...stint.Limit) Option {
	return option(func(p *Cache) error {
		if len(limits) == 0 {
			return errors.New("tenants: WithDefault(): add limits, or stint.Exempt()")
		}
		p.fallback = limits
		if err := (stint.LimitUser{}).Check(limits...); err != nil {
			return invalidDefault{err}
		}
		return nil
	})
}

// invalidDefault is the error of WithDefault, with the problems of its limits.
type invalidDefault struct{ error }

func (e invalidDefault) Error() string {
	return strings.ReplaceAll(e.error.Error(), "stint: ", "tenants: WithDefault: ") // errors.Join has it in each line
}

func (e invalidDefault) Unwrap() error { return e.error }

// checkDuration returns the error of an option's duration, or nil.
func checkDuration(option string, d, standard time.Duration) error {
	instead := "use 1ms or more, or leave it out for the default of " + standard.String()
	if valid, write := optionerror.CheckDuration(d, time.Millisecond, 0, instead); !valid {
		return fmt.Errorf("tenants: %s(%v): %s", option, d, write)
	}
	return nil
}

// retryAfter is how long after a failed load, or one that has found no plan, the key isn't loaded
// again: not every request should ask the source.
const retryAfter = time.Second

// New returns a cache in front of load, which returns the limits of a key: a tenant's plan.
// Each limit needs a stint.WithName. load is called on a goroutine of its own, concurrently for
// different keys; a panic in it is an error of that load. load must return when its context
// ends: a key isn't loaded again before load has returned.
//
// The error reports a nil load and every option that is wrong.
func New(load func(ctx context.Context, key string) ([]stint.Limit, error), opts ...Option) (*Cache, error) {
	p := &Cache{
		load: load, ttl: defaultTTL, size: defaultSize, timeout: defaultTimeout,
		loads: map[string]*loading{}, notified: map[any]*notified{},
	}
	var errs []error
	if load == nil {
		errs = append(errs, errors.New("tenants: New(nil): pass a function that loads the limits of a key"))
	}
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("tenants: New: option %d is nil: leave it out", i+1))
			continue
		}
		errs = append(errs, o.apply(p))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// Limits returns the option that applies the plan of its key to each request, as returned by
// Get. It is a stint.WithLimitSource, so Allow, Take, Peek and Reset use the plan of the key
// that they are given. stint.New returns an error if key is invalid. If key returns an error
// for a request, the request is denied.
//
// Each limiter checks a plan once, and again after an Update (stint.LimitUser.Check). If the plan is invalid for the
// limiter, for instance because it uses the name of one of the limiter's own limits, that
// limiter keeps the last valid plan. Without a valid plan, the load counts as failed.
//
// Observers get an event for each failed load after which an earlier plan stays in force, and
// for each request whose plan can't be loaded: EventSourceFailed, or EventLimitsFailed if the
// request is denied. For a key without a plan, it is an EventLimitsFailed whose error wraps
// ErrNoPlan. When loads succeed again, they get an EventSourceFailed without an error.
//
// For a plan without limits, return stint.Exempt(). If load returns neither limits nor an
// error, only the limiter's other limits apply; without any, the request is denied with
// stint.ErrNoLimits. An empty key has no plan (an error that wraps ErrNoPlan and
// stint.ErrEmptyKey). A key longer than 4 KiB is an error (stint.ErrKeyTooLong). Both are
// answered with 403.
func (p *Cache) Limits(key stint.Key) stint.Option { return stint.WithLimitSource(key, p.get) }

// Get returns the plan of key. Use it in a stint.WithLimitFunc of your own if Limits isn't
// enough. However many callers ask, a key has one load at a time, which continues when the
// caller that started it leaves.
//
//   - A current plan is returned at once.
//   - A plan that is less than one TTL out of date is returned at once, and loaded again in the
//     background.
//   - If the plan is older or was never loaded, Get waits until it is loaded, up to the load
//     timeout or the end of ctx.
//   - If a load returns ErrNoPlan, the old plan is dropped and Get returns the error, until a
//     later load returns a plan. If later loads fail, it still returns the error.
//   - If a load fails or exceeds the load timeout, Get returns the old plan, whatever its age;
//     only limiters with Limits report the failure. Without an old plan, Get returns the
//     default plan (WithDefault) or, without one, a *stint.SourceError, which wraps
//     context.DeadlineExceeded after a timeout.
//   - After a load has failed or found no plan, the key isn't loaded again for a second.
//
// A plan is checked as a whole (stint.LimitUser.Check) before it replaces another: a load that
// returns an invalid limit, a limit without a name, or two limits with the same name counts as
// failed. Don't change the slice that Get returns: it is shared.
func (p *Cache) Get(ctx context.Context, key string) ([]stint.Limit, error) {
	limits, err := p.get(ctx, key, stint.LimitUser{})
	if limits != nil {
		return limits, nil
	}
	return nil, err
}

// get returns the limits of a key's plan for a limiter; the zero LimitUser is an unknown one. An error
// beside limits is only reported. It is for stint.WithLimitSource.
func (p *Cache) get(ctx context.Context, key string, by stint.LimitUser) ([]stint.Limit, error) {
	switch {
	case key == "":
		return nil, errEmptyKey
	case len(key) > keytext.MaxRaw:
		return nil, stint.ErrKeyTooLong
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, f, now := p.tenants.get(key), p.failures.get(key), time.Now()
	if t != nil && now.Sub(t.plan.loaded) < p.ttl {
		return p.limits(t, nil, by)
	}
	if f != nil && now.Sub(f.at) < retryAfter {
		return p.limits(t, f, by)
	}
	c := p.startLoad(ctx, key)
	if t != nil && now.Sub(t.plan.loaded) < 2*p.ttl {
		return p.limits(t, f, by) // the failure of the load before this one
	}
	p.mu.Unlock()
	plan, f := c.wait(ctx)
	p.mu.Lock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t = p.tenants.get(key); t == nil && plan != nil { // it was forgotten meanwhile
		t = &tenant{plan: plan}
	}
	if f != nil && f.noPlan == nil { // it takes longer than its timeout
		f.follow(p.failures.get(key))
	}
	return p.limits(t, f, by)
}

// limits returns the limits of a tenant for a limiter. The tenant is nil without a plan. f is the failure of the
// last load, or nil. The caller holds p.mu.
func (p *Cache) limits(t *tenant, f *failure, by stint.LimitUser) ([]stint.Limit, error) {
	if f != nil && f.noPlan != nil {
		return nil, f.noPlan
	}
	if t == nil {
		return p.standIn(f, by)
	}
	valid, since, invalid := t.validPlan(by)
	switch {
	case valid == nil:
		return p.standIn(invalid, by)
	case invalid != nil:
		return valid.limits, p.failed(invalid, earlierLimits, by)
	case f == nil && p.answers(since, by):
		return valid.limits, &stint.SourceError{}
	case f == nil || f.reported:
		return valid.limits, nil
	}
	f.reported = true
	return valid.limits, p.failed(f, earlierLimits, by)
}

// standIn returns the default limits, if there are any, beside the error of a failure. The caller holds p.mu.
func (p *Cache) standIn(f *failure, by stint.LimitUser) ([]stint.Limit, error) {
	inForce := ""
	if p.fallback != nil {
		inForce = "requests get the default limits"
	}
	return p.fallback, p.failed(f, inForce, by)
}

const earlierLimits = "requests get their earlier limits"

// reported is the error of a load with what the limiter's log says of it.
type reported struct {
	error
	inForce      string // which limits hold instead, or ""
	ofKey, known bool
}

// InForce says which limits hold instead.
func (e reported) InForce() string { return e.inForce }

// OfKey reports whether the loads of one key fail while others succeed.
func (e reported) OfKey() bool { return e.ofKey }

// Known reports whether loads have succeeded since.
func (e reported) Known() bool { return e.known }

func (e reported) Unwrap() error { return e.error }

// failed returns the error of a failure for a limiter. The caller holds p.mu.
func (p *Cache) failed(f *failure, inForce string, by stint.LimitUser) error {
	e := reported{error: f.err, inForce: inForce}
	if id := by.ID(); id != nil {
		n := p.notified[id]
		if n == nil {
			n = new(notified)
			p.notified[id] = n
		}
		switch {
		case !f.at.After(n.ended):
			e.known = true
		case !n.failing && !f.since.After(n.ended):
			e.ofKey = true
		default:
			n.failing, n.last = true, f.at
		}
	}
	return &stint.SourceError{Err: e}
}

// answers reports whether a limiter has to be told that loads succeed again, since a plan has become valid.
// The caller holds p.mu.
func (p *Cache) answers(valid time.Time, by stint.LimitUser) bool {
	n := p.notified[by.ID()]
	if n == nil || !n.failing || !valid.After(n.last) {
		return false
	}
	n.failing, n.ended = false, valid
	return true
}

// validPlan returns the last plan that is valid for a limiter since its last Update, or nil, and since when
// it is. If a later plan is invalid, it returns the failure, but beside a valid plan only once.
func (t *tenant) validPlan(by stint.LimitUser) (valid *plan, since time.Time, invalid *failure) {
	id := by.ID()
	if id == nil {
		return t.plan, t.plan.loaded, nil
	}
	u := t.usedBy[id]
	switch {
	case u == nil:
		if t.usedBy == nil {
			t.usedBy = map[any]*limiterUse{}
		}
		u = new(limiterUse)
		t.usedBy[id] = u
	case u.by == by && u.checked == t.plan && u.valid != nil:
		return u.valid, u.valid.loaded, nil
	case u.by == by && u.checked == t.plan:
		return nil, since, u.invalid
	}
	updated, before := u.by != by, u.invalid
	u.by, u.checked, u.invalid = by, t.plan, nil
	if err := invalidPlan(by.Check(t.plan.limits...)); err == nil {
		u.valid = t.plan
	} else {
		now := time.Now()
		u.invalid = &failure{err: err, at: now, since: now}
		u.invalid.follow(before)
		if updated && u.valid != nil && by.Check(u.valid.limits...) != nil {
			u.valid = nil
		}
	}
	if before != nil && u.invalid == nil {
		return u.valid, time.Now(), nil
	}
	return u.valid, t.plan.loaded, u.invalid
}

// Forget drops the plan of key: the next Get waits for a load that begins after Forget.
// Call it when a plan has changed and the change can't wait for the TTL, in each process
// that has a cache. Calls of Get under way may still return the old plan.
func (p *Cache) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tenants.drop(key)
	p.failures.drop(key)
	delete(p.loads, key)
}

// startLoad starts a load, or joins the one under way. The caller holds p.mu.
func (p *Cache) startLoad(ctx context.Context, key string) *loading {
	if c := p.loads[key]; c != nil {
		return c
	}
	key = strings.Clone(key) // it may be a part of a long Cookie field
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	c := &loading{ctx: ctx, done: make(chan struct{})}
	p.loads[key] = c
	go func() {
		defer cancel()
		p.runLoad(key, c)
	}()
	return c
}

// runLoad loads a plan, stores it unless the key was forgotten meanwhile, and wakes the waiting callers.
func (p *Cache) runLoad(key string, c *loading) {
	var limits []stint.Limit
	err := errors.New("tenants: the load did not return")
	defer func() {
		if v := recover(); v != nil { // on this goroutine a panic would end the process
			err = fmt.Errorf("tenants: the load panicked: %v", v)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		defer close(c.done)
		now := time.Now()
		if err == nil {
			c.plan = &plan{limits: limits, loaded: now}
		} else {
			c.failure = &failure{err: err, at: now, since: now}
			if errors.Is(err, ErrNoPlan) {
				c.failure.noPlan = err
			}
		}
		if p.loads[key] == c {
			delete(p.loads, key)
			p.store(key, c)
		}
	}()
	limits, err = p.load(c.ctx, key)
	switch {
	case err == nil:
		err = invalidPlan(stint.LimitUser{}.Check(limits...))
	case errors.Is(err, context.DeadlineExceeded) && c.ctx.Err() != nil: // waiting callers get the same error
		err = errOverdue
	case !errors.Is(err, ErrNoPlan):
		err = &loadError{"the plan could not be loaded: ", err}
	}
}

// invalidPlan returns the error of a plan that can't be used, or nil for a valid plan.
func invalidPlan(err error) error {
	if err == nil {
		return nil
	}
	return &loadError{"the plan is invalid: ", err}
}

// loadError is an error of a load, after what is wrong.
type loadError struct {
	what string
	err  error
}

func (e *loadError) Error() string {
	return "tenants: " + e.what + strings.ReplaceAll(e.err.Error(), "stint: ", "") // errors.Join has it in each line
}

func (e *loadError) Unwrap() error { return e.err }

// wait waits for a load until it exceeds its timeout or the caller's context ends.
func (c *loading) wait(ctx context.Context) (*plan, *failure) {
	select {
	case <-c.done:
	case <-c.ctx.Done():
	case <-ctx.Done():
	}
	select {
	case <-c.done:
		return c.plan, c.failure
	default:
		now := time.Now()
		return nil, &failure{err: errOverdue, at: now, since: now}
	}
}

var errOverdue = fmt.Errorf("tenants: the load takes longer than its timeout: %w", context.DeadlineExceeded)

// store stores the outcome of a load. The caller holds p.mu.
func (p *Cache) store(key string, c *loading) {
	if f := c.failure; f != nil {
		if f.noPlan != nil {
			p.tenants.drop(key)
		} else {
			f.follow(p.failures.get(key))
		}
		p.failures.put(key, f, p.size) // made-up keys don't drop plans
		return
	}
	p.failures.drop(key)
	if t := p.tenants.get(key); t != nil {
		t.plan = c.plan
		return
	}
	p.tenants.put(key, &tenant{plan: c.plan}, p.size)
}

// follow sets what a failure knows by the one of the key's load before, or nil.
func (f *failure) follow(before *failure) {
	if before != nil && before != f {
		f.noPlan, f.since = before.noPlan, before.since
	}
}

// recent has the values of the keys that were used last.
type recent[V any] struct {
	elements map[string]*list.Element
	order    list.List // of keyed[V], the most recently used first
}

type keyed[V any] struct {
	key   string
	value V
}

// get returns the value of a key, which is then the most recently used one, or the zero value.
func (r *recent[V]) get(key string) (v V) {
	e := r.elements[key]
	if e == nil {
		return v
	}
	r.order.MoveToFront(e)
	return e.Value.(keyed[V]).value
}

// put sets the value of a key, and drops the least recently used one if there are more than size.
func (r *recent[V]) put(key string, v V, size int64) {
	r.drop(key)
	if r.elements == nil {
		r.elements = map[string]*list.Element{}
	}
	r.elements[key] = r.order.PushFront(keyed[V]{key, v})
	if int64(len(r.elements)) > size {
		r.drop(r.order.Back().Value.(keyed[V]).key)
	}
}

func (r *recent[V]) drop(key string) {
	if e := r.elements[key]; e != nil {
		r.order.Remove(e)
		delete(r.elements, key)
	}
}
