package stint

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Limit is a rule: an algorithm, its numbers, and who it applies to. Make one
// with Rate, Quota, Concurrency, AdaptiveConcurrency or Bandwidth; mistakes are reported by the New, With or
// WithLimitFunc that uses it. A Limit may be used by several limiters and
// routes at once. Within one limiter and those derived from it it is one and
// the same limit wherever it is used.
type Limit struct{ rule *rule }

// rule is what a Limit points to. Its address is the limit's identity.
type rule struct {
	spec      store.Spec
	named     bool  // by WithName
	warms     bool  // by WithWarmUp
	algSet    bool  // by WithAlgorithm
	queue     int64 // of a Concurrency
	queueSet  bool
	shares    *waiting.Shares // of a Concurrency
	shared    settings
	adaptive  *adaptive.Config // of AdaptiveConcurrency
	bandwidth *bandwidth       // of Bandwidth
	errs      []error
	once      sync.Once
	compiled  *store.Limit // under spec.Name, for WithLimitFunc
	err       error
	// resolved is the entry this rule had in the WithLimitFunc that used it
	// last, as nearly always there is but one.
	resolved atomic.Pointer[dynamicEntry]
}

// Algorithm is how a limit counts.
type Algorithm = store.Algorithm

// The algorithms of WithAlgorithm. See package store for what each does.
const (
	TokenBucket    = store.TokenBucket
	IntervalBucket = store.IntervalBucket
	LeakyBucket    = store.LeakyBucket
	FixedWindow    = store.FixedWindow
	SlidingWindow  = store.SlidingWindow
	SlidingLog     = store.SlidingLog
	WarmUp         = store.WarmUp
)

// Never is the RetryAfter of a cost that can't pass however long one waits.
const Never = store.Never

// Window is a span of the calendar.
type Window = store.Window

// The calendar windows of Quota, in UTC; Daily.In(loc) is the day of a time
// zone, 23 or 25 hours long when its clocks change. A week starts on Monday.
var (
	Hourly  = store.Hourly
	Daily   = store.Daily
	Weekly  = store.Weekly
	Monthly = store.Monthly
)

// Every is the window of length d, aligned to the Unix epoch.
func Every(d time.Duration) Window { return store.Every(d) }

// Rate limits a key to n units per period, by default in a TokenBucket that
// holds n. Its default name is "rate".
func Rate(n int64, per time.Duration, opts ...RateOption) Limit {
	l := newLimit(store.Spec{Name: "rate", Units: n, Period: per}, opts)
	switch r := l.rule; {
	case !r.warms:
	case !r.algSet:
		r.spec.Algorithm = WarmUp
	case r.spec.Algorithm != WarmUp:
		r.bad("WithWarmUp beside WithAlgorithm(%v): leave one out", r.spec.Algorithm)
		r.spec.WarmUp = 0
	}
	return l
}

// Quota limits a key to n units per calendar window. Its default name is that
// of the window ("hourly", "daily", "weekly", "monthly"), or "quota" for
// Every. A day's quota can be used up in its first second: put a Rate beside
// it.
func Quota(n int64, w Window, opts ...QuotaOption) Limit {
	name := "quota"
	switch w.In(nil) {
	case Hourly, Daily, Weekly, Monthly:
		name = w.In(nil).String()
	}
	l := newLimit(store.Spec{Name: name, Algorithm: FixedWindow, Units: n, Window: w}, opts)
	if w == (Window{}) {
		l.rule.bad("no window: write stint.Daily, another of the calendar, or stint.Every")
		l.rule.spec.Window = Daily // or it would be a period that is missed
	}
	return l
}

// Concurrency limits a key to n requests in flight at once. A request that
// costs c takes c slots. Its default name is "concurrency".
//
// A slot is given back when the handler returns, also by a panic. A handler
// that hands its connection on (a websocket) calls Permit.Detach.
func Concurrency(n int64, opts ...ConcurrencyOption) Limit {
	return newLimit(store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}, opts)
}

func newLimit[O optionOf](spec store.Spec, opts []O) Limit {
	r := &rule{spec: spec}
	apply(r, opts)
	return Limit{r}
}

// optionOf is an option of some kind of limit.
type optionOf interface{ applyLimit(*rule) }

func apply[O optionOf](r *rule, opts []O) {
	for i, o := range opts {
		if any(o) == nil {
			r.bad("option %d is nil: leave it out", i+1)
			continue
		}
		o.applyLimit(r)
	}
}

func (l Limit) applyLimiter(c *config) {
	if l.rule == nil {
		c.bad("zero Limit: write stint.Rate, Quota or Concurrency")
		return
	}
	c.limits = append(c.limits, l)
}

func (l Limit) applyRoute(rc *routeConfig) {
	if l.rule == nil {
		rc.errs = append(rc.errs, errors.New("zero Limit: write stint.Rate, Quota or Concurrency"))
		return
	}
	rc.limits = append(rc.limits, l)
}

// compile makes the store's limit under a name, or says all that is wrong.
func (r *rule) compile(name string) (*store.Limit, error) {
	spec := r.spec
	spec.Name = name
	l, err := store.NewLimit(spec)
	if err := errors.Join(append(append([]error{err}, r.errs...), r.shared.errs...)...); err != nil {
		return nil, err
	}
	return l, nil
}

// Check reports what is wrong with a limit that shall come from a WithLimitFunc, so
// that who reads limits from elsewhere can refuse them when they are read: the zero
// Limit, wrong numbers or options, and a limit without a WithName, as what a key has
// consumed goes by the name.
func (l Limit) Check() error {
	if l.rule == nil {
		return errZeroLimit
	}
	if _, err := l.rule.compileOnce(); err != nil {
		return fmt.Errorf("stint: limit %q: %w", l.rule.spec.Name, err)
	}
	if !l.rule.named {
		return fmt.Errorf("stint: limit %q has a default name, and what a key has consumed goes by the name: write stint.WithName", l.rule.spec.Name)
	}
	return nil
}

var errZeroLimit = errors.New("stint: zero Limit: return stint.Rate, Quota or Concurrency")

// compileOnce is compile under the limit's own name, for limits that come
// from a WithLimitFunc.
func (r *rule) compileOnce() (*store.Limit, error) {
	r.once.Do(func() { r.compiled, r.err = r.compile(r.spec.Name) })
	return r.compiled, r.err
}

// WithBurst says how many units may pass at once: the capacity of a bucket, by
// default n. For LeakyBucket it is what passes without delay beyond the rate,
// by default 0. With WithDebt it is what an idle key saves up, by default one
// second's worth.
func WithBurst(n int64) BurstOption {
	return burstOption{change: func(r *rule) { r.spec.Burst = r.orNone(n, "WithBurst") }}
}

// WithQueue says how many may wait. Whoever finds the queue full is refused at
// once.
//
// Of a rate they are units that wait for their turn: by default n for
// LeakyBucket, and none for TokenBucket. The last in a full queue waits for as
// long as the rate takes for all of it: a WithMaxWait beside it bounds that.
//
// Of a Concurrency they are requests that wait for a slot, for each key in this
// process, and each waits for 5 seconds at the most, or WithMaxWait. Without
// WithQueue nobody waits, or, with a WithMaxWait, as many requests and Takes as
// the limit has slots. Limiter.Wait always waits, however many do, unless
// WithQueue says otherwise; with WithQueue(0) nobody waits.
func WithQueue(n int64) QueueOption {
	return queueOption{change: func(r *rule) {
		if r.spec.Algorithm != store.Concurrency {
			r.spec.Queue = r.orNone(n, "WithQueue")
			return
		}
		r.orNone(n, "WithQueue")
		r.queue, r.queueSet = n, true
	}}
}

// orNone turns a number somebody wrote into the store's spelling, in which 0
// asks for the default.
func (r *rule) orNone(n int64, option string) int64 {
	switch {
	case n == 0:
		return store.None
	case n < 0:
		r.bad("%s(%d): write 0 or more", option, n)
		return 0
	}
	return n
}

// WithAlgorithm says how a limit counts. The default is TokenBucket for a
// Rate, and FixedWindow for a Quota.
func WithAlgorithm(a Algorithm) AlgorithmOption {
	return algorithmOption{change: func(r *rule) {
		if a == store.Concurrency || a == store.Ban {
			r.bad("WithAlgorithm(%v): write stint.%v, which is a limit of its own", a, a)
			return
		}
		r.spec.Algorithm, r.algSet = a, true
	}}
}

// WithName names a limit in answers, fields, problem bodies and the store: a
// letter, then up to 63 of A-Z a-z 0-9 _ . - Names are unique within a limiter
// and all derived from it. Without WithName a limit has a default name, and a
// number if that is taken ("rate-2"), which changes when limits are added before
// it. With WithStore every limit needs a WithName, and so do those that a
// Limiter.Update is to find again.
func WithName(name string) LimitOption {
	return limitOption{change: func(r *rule) { r.spec.Name, r.named = name, true }}
}

// WithWarmUp makes a rate start at a third and rise to n per period while it
// is used for d; idle, it cools down again. It implies the WarmUp algorithm.
// Requests are spaced out, not saved up: without a WithMaxWait (or
// Limiter.Wait) one that comes before its turn is refused.
func WithWarmUp(d time.Duration) RateOption {
	return rateOption{change: func(r *rule) { r.spec.WarmUp, r.warms = d, true }}
}

// WithDebt lets a request pass as soon as those before it are paid for; its
// own cost is paid by the next. Without it a request needs its own cost to be
// there. What isn't paid for yet is waited for within WithMaxWait, or refused.
// Remaining, and the fields, count what has been saved up and not the one more
// that passes on credit: 11 pass at once where they say 10.
func WithDebt() RateOption {
	return rateOption{change: func(r *rule) { r.spec.Debt = true }}
}

// WithBuckets says into how many parts a SlidingWindow is cut; by default 10.
// More parts forget sooner and cost more memory.
func WithBuckets(k int64) RateOption {
	return rateOption{change: func(r *rule) {
		if k < 1 {
			r.bad("WithBuckets(%d): write 1 or more", k)
			return
		}
		r.spec.Buckets = k
	}}
}
