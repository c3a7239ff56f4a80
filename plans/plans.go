// Package plans caches limits that come from a slow source, such as tenants' plans in a
// database:
//
//	tenants := plans.Must(plans.New(load))
//	limit := stinthttp.New(
//		stint.WithKey(stint.Header("X-Tenant")),
//		tenants.Limits(stint.Header("X-Tenant")))
//
// Mount the limiter behind the authentication: each request with a made-up key would
// ask the source.
package plans

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// Cache remembers the limits that a source has returned for each key. Make one with
// New. It is safe for concurrent use, and runs one goroutine for each load under way
// and no others.
type Cache struct {
	load    func(ctx context.Context, key string) ([]stint.Limit, error)
	ttl     time.Duration
	size    int64
	timeout time.Duration

	mu     sync.Mutex
	plans  map[string]*list.Element // of *kept
	recent list.List                // most recently used first
	loads  map[string]*loads        // of keys that have a load under way
}

// kept is a plan that has been loaded.
type kept struct {
	key     string
	limits  []stint.Limit
	loaded  time.Time
	retryAt time.Time // after a failed load, the earliest time of the next
}

// loads are the loads of a key.
type loads struct {
	latest  *pending // that callers join; nil for none
	running int      // how many are under way
	begun   uint64   // and how many have begun
	void    uint64   // those up to this one don't count any more: a later one has answered, or the plan was dropped
}

// pending is a load under way. Its limits and err are set when done is closed.
type pending struct {
	number  uint64
	began   time.Time
	check   func(...stint.Limit) error
	alone   time.Duration   // the time after which another may be started beside it
	overdue <-chan struct{} // closed at the load timeout, or after done
	done    chan struct{}
	limits  []stint.Limit
	err     error
}

// ErrNoPlan is the error that a load returns, wrapped or not, if its source answers that the key
// has no plan. Such a request is answered with 403.
var ErrNoPlan error = noPlan{}

type noPlan struct{}

func (noPlan) Error() string   { return "plans: no plan" }
func (noPlan) StatusCode() int { return http.StatusForbidden }

// Option changes a default of New.
type Option func(*Cache)

// WithTTL sets how long a plan counts as current. The default is a minute; New rejects
// 0 or less.
func WithTTL(d time.Duration) Option { return func(p *Cache) { p.ttl = d } }

// WithSize sets how many plans are kept. When there are more, the least recently used
// one is dropped. The default is 10,000; New rejects numbers below 1.
func WithSize(n int64) Option { return func(p *Cache) { p.size = n } }

// WithLoadTimeout sets how long a load may take. Its context ends then, and Get stops
// waiting for it whether or not the load heeds its context. The default is 5 seconds;
// New rejects 0 or less.
func WithLoadTimeout(d time.Duration) Option { return func(p *Cache) { p.timeout = d } }

// retry is how long after a failed load a plan that is kept isn't loaded again: not
// every request should ask a source that is down.
const retry = time.Second

// New returns a cache in front of load, which returns the limits of a key. Each limit
// needs a stint.WithName. load is called on a goroutine of its own, concurrently for
// different keys; a panic in it is an error of that load.
//
// The error reports a nil load and every option out of range.
func New(load func(ctx context.Context, key string) ([]stint.Limit, error), opts ...Option) (*Cache, error) {
	p := &Cache{
		load: load, ttl: time.Minute, size: 10_000, timeout: 5 * time.Second,
		plans: map[string]*list.Element{}, loads: map[string]*loads{},
	}
	var errs []error
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("plans: New: option %d is nil: leave it out", i+1))
			continue
		}
		o(p)
	}
	if p.load == nil {
		errs = append(errs, errors.New("plans: New(nil): write a function that loads the limits of a key"))
	}
	if p.ttl <= 0 || p.size < 1 || p.timeout <= 0 {
		errs = append(errs, fmt.Errorf("plans: TTL %v, size %d, timeout %v: write positive values", p.ttl, p.size, p.timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// Must returns p, or panics with err. Use it for package variables and at start-up.
func Must(p *Cache, err error) *Cache {
	if err != nil {
		panic(err)
	}
	return p
}

// Limits returns the option that gives each request the plan of its key. It gets the plan
// as Get does, and a plan that the limiter can't take, because one of the limiter's own
// limits has the name of one of the plan's, also counts as a failed load: the old plan stays
// in force.
//
// A plan of no limits is stint.Exempt(). A load that returns nothing and no error leaves the
// request to the limiter's other limits; without one that holds it is stint.ErrNoLimits.
//
// An empty key has no plan: the request is answered with 403, as for ErrNoPlan. The option is
// a stint.WithLimitSource: stint.New reports a wrong key, and an error of key denies the
// request.
func (p *Cache) Limits(key stint.Key) stint.Option {
	return stint.WithLimitSource(key, func(ctx context.Context, key string, check func(...stint.Limit) error) ([]stint.Limit, error) {
		if key == "" {
			return nil, fmt.Errorf("%w: an empty key", ErrNoPlan)
		}
		return p.get(ctx, key, check)
	})
}

// Get returns the plan of key, for a stint.WithLimitFunc that does more than Limits. However
// many callers ask, a key has one load at a time, which continues when the caller that
// started it leaves.
//
//   - A current plan is returned at once.
//   - For another TTL the old plan is also returned at once, and is loaded again in the
//     background.
//   - For an older plan, or one never loaded, Get waits until it is loaded, up to the
//     load timeout or the end of ctx.
//   - If a load returns ErrNoPlan, the old plan is dropped and Get returns the error.
//   - If a load fails or exceeds the load timeout, the old plan is kept and returned,
//     however old. Without an old plan Get returns the error, which wraps
//     context.DeadlineExceeded after a timeout. Errors aren't cached.
//   - While a load that ignores its context hangs, Get returns the old plan, or the
//     error, at once. When the key is next asked for, another load is started beside
//     it: after the load timeout at the earliest, then after twice that, and so on.
//     Without an old plan Get waits for that load, up to its timeout. A plan that
//     arrives late is kept.
//
// A plan is checked as a whole (stint.CheckLimits) before it replaces one: a load that
// returns an invalid limit, one without a name, or two of one name counts as failed. Don't
// change the slice that Get returns: it is shared.
func (p *Cache) Get(ctx context.Context, key string) ([]stint.Limit, error) {
	return p.get(ctx, key, stint.CheckLimits)
}

// get is Get for a limiter that has its own check.
func (p *Cache) get(ctx context.Context, key string, check func(...stint.Limit) error) ([]stint.Limit, error) {
	p.mu.Lock()
	now := time.Now()
	var old *kept
	if e := p.plans[key]; e != nil {
		old = e.Value.(*kept)
		p.recent.MoveToFront(e)
		if now.Sub(old.loaded) < p.ttl || now.Before(old.retryAt) {
			p.mu.Unlock()
			return old.limits, nil
		}
	}
	l := p.start(ctx, key, now, check)
	p.mu.Unlock()
	if old != nil && (now.Sub(old.loaded) < 2*p.ttl || l.alone > p.timeout) { // or the last load hangs
		return old.limits, nil
	}
	err := l.wait(ctx)
	switch {
	case err == nil:
		return l.limits, nil
	case old == nil || ctx.Err() != nil || errors.Is(err, ErrNoPlan):
		return nil, err
	}
	return old.limits, nil
}

// Forget drops the plan of key: the next Get waits for a load that begins after Forget.
// Call it when a plan has changed and the change can't wait for the TTL, in each process
// that has a cache. Calls of Get under way may still return the old plan.
func (p *Cache) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(key)
	if of := p.loads[key]; of != nil {
		of.latest, of.void = nil, of.begun
	}
}

// wait waits for a load until it is overdue or ctx ends.
func (l *pending) wait(ctx context.Context) error {
	select {
	case <-l.done:
	case <-l.overdue:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-l.done:
		return l.err
	default:
		return errOverdue
	}
}

var errOverdue = fmt.Errorf("plans: the load takes longer than its timeout: %w", context.DeadlineExceeded)

// start starts a load, or joins the one under way. The caller holds p.mu.
//
// A load that never returns can't be stopped. If callers joined it for ever, its key
// would never get another plan. If another were started at each timeout, loads would
// pile up while a source is down. Waiting twice as long each time leaves about a dozen
// after a day.
func (p *Cache) start(ctx context.Context, key string, now time.Time, check func(...stint.Limit) error) *pending {
	of := p.loads[key]
	if of == nil {
		of = new(loads)
		p.loads[key] = of
	}
	alone := p.timeout
	if l := of.latest; l != nil {
		if now.Sub(l.began) < l.alone {
			return l
		}
		alone = 2 * l.alone
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	of.begun++
	of.running++
	l := &pending{
		number: of.begun, began: now, check: check, alone: alone, overdue: ctx.Done(),
		done: make(chan struct{}), err: errors.New("plans: the load did not return"),
	}
	of.latest = l
	go func() {
		defer cancel()
		p.run(ctx, key, l)
	}()
	return l
}

func (p *Cache) run(ctx context.Context, key string, l *pending) {
	defer func() {
		if v := recover(); v != nil { // on this goroutine a panic would end the process
			l.err = fmt.Errorf("plans: the load panicked: %v", v)
		}
		p.finish(key, l)
	}()
	limits, err := p.load(ctx, key)
	if err == nil {
		err = l.check(limits...)
	}
	if l.err = err; err == nil {
		l.limits = limits
	}
}

// finish keeps what a load returned and wakes those who wait for it.
func (p *Cache) finish(key string, l *pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(l.done)
	of := p.loads[key]
	if of.latest == l {
		of.latest = nil
	}
	if of.running--; of.running == 0 {
		delete(p.loads, key)
	}
	if l.number <= of.void {
		return
	}
	now := time.Now()
	switch e := p.plans[key]; {
	case l.err == nil:
		of.void = l.number
		p.keep(&kept{key: key, limits: l.limits, loaded: now})
	case errors.Is(l.err, ErrNoPlan):
		of.void = l.number
		p.drop(key)
	case e != nil:
		e.Value.(*kept).retryAt = now.Add(retry)
	}
}

// keep replaces a key's plan: by a new value, because callers may still hold the old one.
// The caller holds p.mu.
func (p *Cache) keep(k *kept) {
	if e := p.plans[k.key]; e != nil {
		e.Value = k
		return
	}
	p.plans[k.key] = p.recent.PushFront(k)
	if int64(len(p.plans)) > p.size {
		p.drop(p.recent.Back().Value.(*kept).key)
	}
}

// drop forgets a key's plan. The caller holds p.mu.
func (p *Cache) drop(key string) {
	if e := p.plans[key]; e != nil {
		p.recent.Remove(e)
		delete(p.plans, key)
	}
}
