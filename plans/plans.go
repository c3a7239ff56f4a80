// Package plans keeps limits that come from somewhere slow, such as tenants' plans
// in a database, for stint.WithLimitFunc:
//
//	tenants := plans.Must(plans.New(load))
//	stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
//		return tenants.Get(r.Context(), r.Header.Get("X-Tenant"))
//	})
package plans

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clock"
)

// Cache keeps what a source has said of each key. It is safe for concurrent use
// and has no goroutine beyond one for each load under way.
type Cache struct {
	load    func(ctx context.Context, key string) ([]stint.Limit, error)
	ttl     time.Duration
	size    int
	timeout time.Duration

	mu     sync.Mutex
	plans  map[string]*list.Element // of *kept
	recent list.List                // most recently used first
	loads  map[string]*pending      // under way: of each key the latest
}

// kept is a plan that has been loaded.
type kept struct {
	key     string
	limits  []stint.Limit
	loaded  time.Time
	retryAt time.Time // not to be loaded before, after a load that failed
}

// pending is a load under way. Its limits and err are set when done is closed.
type pending struct {
	began   time.Time
	alone   time.Duration   // after which another may be started beside it
	overdue <-chan struct{} // closed at the load timeout, or after done
	done    chan struct{}
	limits  []stint.Limit
	err     error
}

// Option changes what New makes.
type Option func(*Cache)

// WithTTL says how long a plan counts as current; by default a minute.
func WithTTL(d time.Duration) Option { return func(p *Cache) { p.ttl = d } }

// WithSize says how many plans are kept; by default 10,000. Beyond that the
// one that was used least recently is forgotten.
func WithSize(n int) Option { return func(p *Cache) { p.size = n } }

// WithLoadTimeout says how long a load may take; by default 5 seconds. The
// context that it is given ends then, and Get doesn't wait for it any longer,
// whether or not the load heeds its context.
func WithLoadTimeout(d time.Duration) Option { return func(p *Cache) { p.timeout = d } }

// retry is how long a plan that is kept isn't loaded again after a load
// failed: a source that is down must not be asked by every request.
const retry = time.Second

// New makes a cache in front of load, which returns the limits of a key; each needs
// a WithName. The error says what is wrong with the options, or that load is nil.
func New(load func(ctx context.Context, key string) ([]stint.Limit, error), opts ...Option) (*Cache, error) {
	p := &Cache{
		load: load, ttl: time.Minute, size: 10_000, timeout: 5 * time.Second,
		plans: map[string]*list.Element{}, loads: map[string]*pending{},
	}
	for _, o := range opts {
		o(p)
	}
	var errs []error
	if p.load == nil {
		errs = append(errs, errors.New("plans: New(nil): write a function that loads a plan"))
	}
	if p.ttl <= 0 || p.size < 1 || p.timeout <= 0 {
		errs = append(errs, fmt.Errorf("plans: TTL %v, size %d, timeout %v: write positive values", p.ttl, p.size, p.timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// Must returns p, or panics with err. It is for variables and at start-up.
func Must(p *Cache, err error) *Cache {
	if err != nil {
		panic(err)
	}
	return p
}

// Get returns the plan of key. There is one load for a key at a time, however
// many ask, and it goes on when the one who asked first leaves.
//
//   - Current plans are returned at once.
//   - For up to a TTL after that the old plan is returned at once as well, and
//     loaded again behind it.
//   - Older ones, and those never loaded, are waited for, up to the load
//     timeout or the end of ctx.
//   - When a load fails or exceeds the load timeout, an old plan is kept and
//     returned, however old; only without one Get returns the error, which wraps
//     context.DeadlineExceeded after a timeout. Errors are not kept.
//   - While a load that ignores its context hangs, Get returns the old plan, or
//     the error, at once. Another load is started beside it when the key is next
//     asked for, at the earliest after the load timeout, then after twice that,
//     and so on; without an old plan Get waits for that one, up to its timeout.
//     A plan that comes late is kept.
//
// A load that returns a wrong limit, or one without a WithName, has failed. The
// slice is shared: don't change it.
func (p *Cache) Get(ctx context.Context, key string) ([]stint.Limit, error) {
	p.mu.Lock()
	now := clock.Now()
	var old *kept
	if e := p.plans[key]; e != nil {
		old = e.Value.(*kept)
		p.recent.MoveToFront(e)
		if now.Sub(old.loaded) < p.ttl || now.Before(old.retryAt) {
			p.mu.Unlock()
			return old.limits, nil
		}
	}
	l := p.start(ctx, key, now)
	p.mu.Unlock()
	if old != nil && (now.Sub(old.loaded) < 2*p.ttl || l.alone > p.timeout) { // or the last load hangs
		return old.limits, nil
	}
	err := l.wait(ctx)
	switch {
	case err == nil:
		return l.limits, nil
	case old == nil || ctx.Err() != nil:
		return nil, err
	}
	return old.limits, nil
}

// wait waits for a load until it is overdue, or ctx ends.
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
// A load that never returns can't be ended. Were it joined for ever, its key
// would never get another plan; were another started at each timeout, they would
// pile up while a source is down. Waiting for twice as long each time, there are
// a dozen or so after a day.
func (p *Cache) start(ctx context.Context, key string, now time.Time) *pending {
	alone := p.timeout
	if l := p.loads[key]; l != nil {
		if now.Sub(l.began) < l.alone {
			return l
		}
		alone = 2 * l.alone
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	l := &pending{
		began: now, alone: alone, overdue: ctx.Done(),
		done: make(chan struct{}), err: errors.New("plans: the load did not return"),
	}
	p.loads[key] = l
	go func() {
		defer cancel()
		p.run(ctx, key, l)
	}()
	return l
}

func (p *Cache) run(ctx context.Context, key string, l *pending) {
	defer func() {
		if v := recover(); v != nil { // on this goroutine it would end the process
			l.err = fmt.Errorf("plans: the load panicked: %v", v)
		}
		p.finish(key, l)
	}()
	limits, err := p.load(ctx, key)
	for _, lim := range limits {
		if err == nil {
			err = lim.Check()
		}
	}
	if l.err = err; err == nil {
		l.limits = limits
	}
}

// finish keeps what a load brought and lets the waiting go on.
func (p *Cache) finish(key string, l *pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(l.done)
	if p.loads[key] == l {
		delete(p.loads, key)
	}
	now := clock.Now()
	e := p.plans[key]
	switch {
	case e != nil && e.Value.(*kept).loaded.After(l.began): // by one that began later
	case l.err != nil && e != nil:
		e.Value.(*kept).retryAt = now.Add(retry)
	case l.err != nil:
	case e != nil:
		// A new value: the old one is in the hands of callers.
		e.Value = &kept{key: key, limits: l.limits, loaded: now}
	default:
		p.plans[key] = p.recent.PushFront(&kept{key: key, limits: l.limits, loaded: now})
		if len(p.plans) > p.size {
			last := p.recent.Back()
			p.recent.Remove(last)
			delete(p.plans, last.Value.(*kept).key)
		}
	}
}
