package stint

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// Option is what New, With and Update take: a limit, an option that is a default
// of limits, or an option of the limiter as a whole.
type Option interface {
	applyLimiter(*config)
}

// RouteOption is what WithRoute takes: a limit, or an option that is the default
// of that route's limits, of the kinds it goes with. A limit's own option counts
// before its route's, and that before the limiter's.
type RouteOption interface {
	Option
	applyRoute(*routeConfig)
}

// A limit takes the options of its kind: what would mean nothing to it doesn't
// compile.
type (
	// RateOption is what Rate takes.
	RateOption interface {
		applyLimit(*rule)
		ofRate()
	}
	// QuotaOption is what Quota takes.
	QuotaOption interface {
		applyLimit(*rule)
		ofQuota()
	}
	// ConcurrencyOption is what Concurrency takes.
	ConcurrencyOption interface {
		applyLimit(*rule)
		ofConcurrency()
	}
	// AdaptiveOption is what AdaptiveConcurrency takes.
	AdaptiveOption interface {
		applyLimit(*rule)
		ofAdaptive()
	}
	// BandwidthOption is what Bandwidth takes.
	BandwidthOption interface {
		applyLimit(*rule)
		ofBandwidth()
	}
	// BanOption is what Ban takes.
	BanOption interface {
		applyLimit(*rule)
		ofBan()
	}
)

// LimitOption goes with every kind of limit.
type LimitOption interface {
	RateOption
	QuotaOption
	ConcurrencyOption
	AdaptiveOption
	BandwidthOption
	BanOption
}

// Options of several kinds of limit.
type (
	// AlgorithmOption goes with Rate and Quota.
	AlgorithmOption interface {
		RateOption
		QuotaOption
	}
	// BurstOption goes with what lets some through at once: Rate, Quota and
	// Bandwidth.
	BurstOption interface {
		RateOption
		QuotaOption
		BandwidthOption
	}
	// SlotOption goes with what is held: Concurrency and AdaptiveConcurrency.
	SlotOption interface {
		ConcurrencyOption
		AdaptiveOption
	}
	// QueueOption goes with what requests can queue for: Rate, Concurrency and
	// AdaptiveConcurrency.
	QueueOption interface {
		RateOption
		SlotOption
	}
)

// Options that are defaults, too.
type (
	// SharedOption goes with every kind of limit, and is the default of all where
	// New, With or WithRoute takes it.
	SharedOption interface {
		RouteOption
		LimitOption
	}
	// ChargeOption goes with what a request is charged to (Rate, Quota,
	// Concurrency and AdaptiveConcurrency), and is their default where New, With
	// or WithRoute takes it.
	ChargeOption interface {
		RouteOption
		RateOption
		QuotaOption
		SlotOption
	}
	// SettleOption goes with what a charge can be given back to (Rate and Quota),
	// and is their default where New, With or WithRoute takes it.
	SettleOption interface {
		RouteOption
		RateOption
		QuotaOption
	}
)

// WithKey says who is limited: requests for which k gives the same key share
// a limit. There is no default, because none is right: behind a proxy every
// request has the proxy's address.
func WithKey(k KeyFunc) SharedOption {
	if k == nil {
		return sharedOption{setting: func(s *settings) {
			s.errs.bad("WithKey(nil)", "", "write a KeyFunc, such as stint.RemoteIP()")
			s.key = newKeySource(misconfigured()) // a wrong key is a key: that there is none would be no help
		}}
	}
	src := newKeySource(k)
	return sharedOption{setting: func(s *settings) { s.key = src }}
}

// WithCost says how many units a request costs; by default 1. A cost of 0
// charges nothing, is never refused and never waits; a negative cost is an error.
// A handler that learns the true cost later gives it to Permit.Settle.
func WithCost(cost func(*http.Request) int64) ChargeOption {
	if cost == nil {
		return chargeOption{setting: func(s *settings) {
			s.errs.bad("WithCost(nil)", "", "write a function, or leave it out where every request costs 1")
		}}
	}
	return chargeOption{setting: func(s *settings) { s.cost = cost }}
}

// WithMaxWait makes a request wait for its turn rather than be refused, if its
// turn comes within d. The request's own deadline bounds the wait further. On
// a limit that queues by itself (LeakyBucket, or one with WithQueue) d bounds
// the wait in the queue. On a Concurrency as many requests wait for each key as
// it has slots, unless WithQueue says otherwise. By default only limits that queue
// by themselves make a request wait, and a Concurrency with WithQueue, for 5
// seconds. docs/waiting.md says who is next.
//
// An HTTP/1.1 server does not notice that a client has left while the
// request's body is unread: keep d to a few seconds.
func WithMaxWait(d time.Duration) ChargeOption {
	if d <= 0 {
		return chargeOption{setting: func(s *settings) {
			s.errs.bad(fmt.Sprintf("WithMaxWait(%v)", d), "", "write a positive duration, or leave it out where nobody waits")
		}}
	}
	return chargeOption{setting: func(s *settings) { s.maxWait, s.lines = d, newLines }}
}

// WithDryRun makes a limit report only: it is decided and counted as if it
// were enforced, and shows in Decision.Limits and to the observer, which gets a
// DryRunDenied for each request that it would have refused. It refuses nothing,
// delays nothing, adds no fields and ignores FailClosed: the limits beside it that
// are enforced answer as they would without it. If its key can't be determined,
// the request is still refused.
func WithDryRun() SharedOption {
	return sharedOption{setting: func(s *settings) { s.dryRun = true }}
}

// WithFailurePolicy says what happens to a request when the store fails. Of
// the limits of one request the strictest counts. The default is FailOpen.
func WithFailurePolicy(p FailurePolicy) SharedOption {
	if p != FailOpen && p != FailClosed {
		return sharedOption{setting: func(s *settings) {
			s.errs.bad(fmt.Sprintf("WithFailurePolicy(%d)", p), "", "write stint.FailOpen or stint.FailClosed")
		}}
	}
	return sharedOption{setting: func(s *settings) { s.policy = p }}
}

// FailurePolicy is what happens to a request that the store can't decide.
type FailurePolicy uint8

const (
	// FailOpen lets the request pass without RateLimit fields.
	FailOpen FailurePolicy = iota + 1
	// FailClosed answers 503 with a Retry-After.
	FailClosed
)

// EmptyKeyPolicy is what happens to a request with an empty key.
type EmptyKeyPolicy uint8

const (
	// DenyEmptyKey answers 403.
	DenyEmptyKey EmptyKeyPolicy = iota
	// SkipEmptyKey leaves out the limits whose key is empty.
	SkipEmptyKey
)

// limiterOption is an option of the limiter as a whole.
type limiterOption func(*config)

func (o limiterOption) applyLimiter(c *config) { o(c) }

// WithStore keeps the counts in s, such as a redisstore. The default is a store
// in memory that the limiter shares only with limiters derived from it; see
// WithMemory.
//
// Other limiters may use s too, in this process or, on Redis, in others. Limits
// with one name share what a key has consumed there, so every limit needs a
// WithName: a default name such as "rate" would be many limits' name. New, With
// and Update refuse limits without one; those of a WithLimitFunc refuse the
// request.
//
// Limiters of this process that aren't derived from each other may give one name
// different numbers in s. That is logged, once for the name.
func WithStore(s store.Store) Option {
	return limiterOption(func(c *config) {
		if s == nil {
			c.errs.bad("WithStore(nil)", "", "write a store, or leave it out for one in memory")
		}
		c.store = s
	})
}

// WithMemory changes the limiter's own store in memory, which it has unless
// WithStore names another:
//
//	stint.WithMemory(memstore.WithMaxKeys(100_000))
//
// No other limiter uses that store, so names are optional. In Limiter.Update it
// has to say what it said in New: the store stays.
func WithMemory(opts ...memstore.Option) Option {
	return limiterOption(func(c *config) {
		c.memory = append(c.memory, opts...)
		c.memorySet = true
	})
}

// WithRoute gives requests that match pattern limits of their own, in place
// of the limiter's. Without a limit the route is exempt. Patterns are those of
// http.ServeMux ("POST /login", "/files/", "api.example.com/"); the most
// specific one counts, and a host matches in any case.
//
// A request that routers can read in several ways has the limits of every
// reading, each once, and is exempt only if all readings are: the path as sent,
// decoded, cleaned and without a trailing slash, the host as sent and in lower
// case without a trailing dot. So no spelling slips past a route. A path with
// %2F in an id may be charged for two routes; docs/routes.md has the rules.
//
// In With, a route replaces the limits of the limiter extended as well; the
// routes of that one are inherited, with the new limits added.
func WithRoute(pattern string, opts ...RouteOption) Option {
	return limiterOption(func(c *config) {
		rc := routeConfig{pattern: pattern}
		for i, o := range opts {
			if o == nil {
				rc.errs.bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
				continue
			}
			o.applyRoute(&rc)
		}
		c.routes = append(c.routes, rc)
	})
}

// WithLimitFunc adds limits that depend on the request, such as those of a
// tenant's plan. They are decided together with the limiter's other limits, or
// its route's; a route that is exempt stays exempt. An error goes to the error
// handler and never lets the request pass; its StatusCode() int method, if it
// has one, says the status, by default 500.
//
// A Limit is compiled once however often it is returned, so return the same
// values where possible: package variables, or what package plans keeps. Names have
// to differ from each other and from those of the limiter's other limits;
// limits of one name in different plans share what a key has consumed, so that
// a tenant who changes plans keeps its count.
func WithLimitFunc(f func(*http.Request) ([]Limit, error)) Option {
	return limiterOption(func(c *config) {
		if f == nil {
			c.errs.bad("WithLimitFunc(nil)", "", "write a function, or leave it out")
			return
		}
		c.limitFuncs = append(c.limitFuncs, f)
	})
}

// WithSkip exempts requests for which skip is true, before anything else is
// looked at. Given several times, any of them exempts.
func WithSkip(skip func(*http.Request) bool) Option {
	return limiterOption(func(c *config) {
		if skip == nil {
			c.errs.bad("WithSkip(nil)", "", "write a predicate, such as stint.Preflight")
			return
		}
		c.skip = append(c.skip, skip)
	})
}

// WithBlock refuses requests for which block is true with 403 (ErrBlocked),
// without charging anything. Given several times, any of them refuses.
func WithBlock(block func(*http.Request) bool) Option {
	return limiterOption(func(c *config) {
		if block == nil {
			c.errs.bad("WithBlock(nil)", "", "write a predicate, such as stint.FromCIDR(...)")
			return
		}
		c.block = append(c.block, block)
	})
}

// WithDenyHandler has h answer requests that a limit refuses: Redirect,
// PlainText, or any handler. The fields are set before it runs, and
// DeniedFromContext tells it which limit refused. It may
//
//   - write a lesser answer, such as a page from a cache. As everywhere in
//     net/http, a body without a status is 200; write
//     DeniedFromContext(ctx).StatusCode() first to refuse in other words.
//   - write nothing, and only log or set fields. Then the request is answered
//     as without h.
//
// The default answers 429 (503 if the concurrency of the whole service is
// exhausted) with an application/problem+json body that names the violated
// policies.
func WithDenyHandler(h http.Handler) Option {
	return limiterOption(func(c *config) {
		if h == nil {
			c.errs.bad("WithDenyHandler(nil)", "", "write a handler, or leave it out for a problem body")
		}
		c.denyHandler = func(w http.ResponseWriter, r *http.Request, err *DeniedError) bool {
			return answers(w, r, func(w http.ResponseWriter) {
				h.ServeHTTP(w, r.WithContext(&deniedContext{r.Context(), err}))
			})
		}
	})
}

// WithErrorHandler answers requests that are refused for another reason than a
// limit: the key can't be determined (an error of a KeyFunc, ErrEmptyKey,
// ErrKeyTooLong), ErrBlocked, an error of a WithLimitFunc, a *StoreError under
// FailClosed, and a wait that ended with the request's context: the error then
// wraps context.Canceled or context.DeadlineExceeded. The default answers the
// error's StatusCode, 503 where a context has ended, or 500, with a problem body
// that doesn't show the error's text. If h writes nothing, so does the limiter.
func WithErrorHandler(h func(http.ResponseWriter, *http.Request, error)) Option {
	return limiterOption(func(c *config) {
		if h == nil {
			c.errs.bad("WithErrorHandler(nil)", "", "write a function, or leave it out for a problem body")
		}
		c.errorHandler = func(w http.ResponseWriter, r *http.Request, err error) bool {
			return answers(w, r, func(w http.ResponseWriter) { h(w, r, err) })
		}
	})
}

// WithProblem has refusals answered by the limiter's own problem body (RFC 9457)
// where no WithDenyHandler or WithErrorHandler answers them, through every
// adapter. By default stintecho leaves them to the application's
// HTTPErrorHandler; the others answer so anyway.
func WithProblem() Option {
	return limiterOption(func(c *config) { c.problem = true })
}

// WithObserver has f told of the limiter's events from the start, as by
// Limiter.Observe. Given several times, all are called in order. An Update without
// it leaves those there are; one with it puts its own in their place.
func WithObserver(f func(Event)) Option {
	return limiterOption(func(c *config) {
		if f == nil {
			c.errs.bad("WithObserver(nil)", "", "write a function, or leave it out")
			return
		}
		c.observers = append(c.observers, f)
	})
}

// WithLogger says where the limiter's log goes: failures of the store and its
// recovery, of key functions and limit functions, empty keys, what could not be
// settled or released, lost leases, bans, and policies that were reloaded. Each message is written
// at most once a minute, with how many were suppressed since; refusals are written at
// debug, each of them, if the handler is enabled for it. docs/observing.md lists them.
//
// The default is slog.Default(), and for a limiter made by With, the logger of the
// one it extends. An Update without WithLogger and WithLogKeys leaves both as they
// are. For no log write slog.New(slog.DiscardHandler).
func WithLogger(logger *slog.Logger) Option {
	return limiterOption(func(c *config) {
		if logger == nil {
			c.errs.bad("WithLogger(nil)", "", "write slog.New(slog.DiscardHandler) for no log, or leave it out")
			return
		}
		c.logger = logger
	})
}

// WithLogKeys has the log show the keys that were refused or banned, as stores see
// them. They may be addresses or credentials. By default no key is logged; what an
// error of a KeyFunc of yours says is logged as it is.
func WithLogKeys() Option {
	return limiterOption(func(c *config) { c.logKeys = true })
}

// WithLimiterName names a limiter in events, logs and figures: a letter, then up to
// 63 of A-Z a-z 0-9 _ . - A limiter derived by With has the name of the one that it
// extends unless it has its own. The default is none.
func WithLimiterName(name string) Option {
	return limiterOption(func(c *config) {
		if !store.ValidName(name) {
			c.errs.bad(fmt.Sprintf("WithLimiterName(%.80q)", name), "", "write a letter, then up to 63 of A-Z a-z 0-9 _ . -")
			return
		}
		c.name = name
	})
}

// WithEmptyKey says what happens to a request whose key is empty. The default
// is DenyEmptyKey: an empty key never becomes a bucket that strangers share.
func WithEmptyKey(p EmptyKeyPolicy) Option {
	return limiterOption(func(c *config) {
		if p > SkipEmptyKey {
			c.errs.bad(fmt.Sprintf("WithEmptyKey(%d)", p), "", "write stint.DenyEmptyKey or stint.SkipEmptyKey")
		}
		c.emptyKey, c.emptyKeySet = p, true
	})
}

// WithoutPermit says that handlers don't ask for their Permit: FromContext
// gives nil, Settle can't be called, and a limiter that is mounted twice
// charges twice. It saves the request's context value, two allocations of
// three.
func WithoutPermit() Option {
	return limiterOption(func(c *config) { c.withoutPermit = true })
}
