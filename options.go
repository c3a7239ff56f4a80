package stint

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// Option is what New, With and Update take: a limit, an option that is a default for
// limits, or an option of the limiter as a whole. nil is refused.
type Option interface {
	applyLimiter(*config)
}

// RouteOption is what WithRoute takes: a limit, or an option that is a default for the
// limits of that route. A default applies to the kinds of limit that the option goes
// with. A limit's own option wins over its route's, and that over the limiter's.
type RouteOption interface {
	Option
	applyRoute(*routeConfig)
}

// A limit takes the options of its kind: what would mean nothing to it doesn't
// compile.
type (
	// RateOption is an option of Rate: WithName, WithKey, WithAlgorithm, WithBurst,
	// WithCost, WithSettle, WithMaxWait, WithQueue, WithDebt, WithWarmUp, WithBuckets,
	// WithDryRun or WithFailurePolicy.
	RateOption interface {
		applyLimit(*rule)
		ofRate()
	}
	// QuotaOption is an option of Quota: WithName, WithKey, WithAlgorithm, WithBurst,
	// WithCost, WithSettle, WithMaxWait, WithDryRun or WithFailurePolicy.
	QuotaOption interface {
		applyLimit(*rule)
		ofQuota()
	}
	// ConcurrencyOption is an option of Concurrency: WithName, WithKey, WithCost,
	// WithQueue, WithMaxWait, WithShare, WithDryRun or WithFailurePolicy.
	ConcurrencyOption interface {
		applyLimit(*rule)
		ofConcurrency()
	}
	// AdaptiveOption is an option of AdaptiveConcurrency: WithName, WithKey,
	// WithAdaptation, WithInitialLimit, WithTolerance, WithLatencyTimeout,
	// WithSampleWindow, WithCost, WithQueue, WithMaxWait, WithShare, WithDryRun or
	// WithFailurePolicy.
	AdaptiveOption interface {
		applyLimit(*rule)
		ofAdaptive()
	}
	// BandwidthOption is an option of Bandwidth: WithName, WithKey, WithBurst,
	// WithRequestBytes, WithDryRun or WithFailurePolicy.
	BandwidthOption interface {
		applyLimit(*rule)
		ofBandwidth()
	}
	// BanOption is an option of Ban: WithName, WithKey, WithDryRun or
	// WithFailurePolicy.
	BanOption interface {
		applyLimit(*rule)
		ofBan()
	}
)

// LimitOption is an option of every kind of limit.
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
	// AlgorithmOption is an option of Rate and Quota.
	AlgorithmOption interface {
		RateOption
		QuotaOption
	}
	// BurstOption is an option of Rate, Quota and Bandwidth.
	BurstOption interface {
		RateOption
		QuotaOption
		BandwidthOption
	}
	// SlotOption is an option of Concurrency and AdaptiveConcurrency.
	SlotOption interface {
		ConcurrencyOption
		AdaptiveOption
	}
	// QueueOption is an option of Rate, Concurrency and AdaptiveConcurrency.
	QueueOption interface {
		RateOption
		SlotOption
	}
)

// Options that are defaults, too.
type (
	// SharedOption is an option of every kind of limit. Given to New, With or
	// WithRoute, it is the default for all limits there.
	SharedOption interface {
		RouteOption
		LimitOption
	}
	// ChargeOption is an option of Rate, Quota, Concurrency and AdaptiveConcurrency.
	// Given to New, With or WithRoute, it is the default for those there.
	ChargeOption interface {
		RouteOption
		RateOption
		QuotaOption
		SlotOption
	}
	// SettleOption is an option of Rate and Quota. Given to New, With or WithRoute, it
	// is the default for those there.
	SettleOption interface {
		RouteOption
		RateOption
		QuotaOption
	}
)

// WithCost makes cost return how many units a request costs. A cost of 0 charges
// nothing, is never refused and never waits. A negative cost is an error (500); costs
// above 2^40 count as 2^40. The default is 1. New refuses a nil cost. cost is called
// concurrently. A handler that learns the true cost later passes it to Permit.Settle.
func WithCost(cost func(*http.Request) int64) ChargeOption {
	return checkedSetting(cost != nil, "WithCost(nil)", "write a function, or leave it out if every request costs 1",
		func(s *settings) { s.cost = cost })
}

// WithDryRun makes a limit report only. It is decided and counted as if it were
// enforced, and shows in Decision.Limits. Observers get an EventDryRunDenied for each
// request that it would have refused. By default limits are enforced.
//
// The limit refuses nothing, delays nothing, adds no header fields and ignores
// FailClosed: enforced limits beside it answer as they would without it. If its key
// can't be determined, the request is still refused.
func WithDryRun() SharedOption {
	return settingOption{setting: func(s *settings) { s.dryRun = true }}
}

// WithFailurePolicy sets what happens to a request when the store fails. Of the limits
// of one request the strictest policy counts. The default is FailOpen. New refuses
// values other than FailOpen and FailClosed.
func WithFailurePolicy(p FailurePolicy) SharedOption {
	return checkedSetting(p == FailOpen || p == FailClosed, fmt.Sprintf("WithFailurePolicy(%d)", p), "write stint.FailOpen or stint.FailClosed",
		func(s *settings) { s.policy = p })
}

// FailurePolicy says what happens to a request that the store can't decide.
type FailurePolicy uint8

const (
	// FailOpen lets the request pass without RateLimit fields.
	FailOpen FailurePolicy = iota + 1
	// FailClosed answers 503 with a Retry-After.
	FailClosed
)

// limiterOption is an option of the limiter as a whole.
type limiterOption func(*config)

func (o limiterOption) applyLimiter(c *config) { o(c) }

// checkedOption, checkedSetting and checkedChange return an option whose argument is valid,
// or the mistake that it isn't.
func checkedOption(valid bool, option, write string, set limiterOption) Option {
	if valid {
		return set
	}
	return limiterOption(func(c *config) { c.errs.Bad(option, "", write) })
}

func checkedSetting(valid bool, option, write string, set setting) settingOption {
	if valid {
		return settingOption{setting: set}
	}
	return settingOption{setting: func(s *settings) { s.errs.Bad(option, "", write) }}
}

func checkedChange(valid bool, option, write string, set change) changeOption {
	if valid {
		return changeOption{change: set}
	}
	return changeOption{change: func(r *rule) { r.errs.Bad(option, "", write) }}
}

// WithStore keeps the counts in s, such as a store of package redisstore. The default
// is a store in memory that the limiter shares only with limiters derived from it; see
// WithMemory. New refuses a nil s, a store that reports itself as misconfigured, and
// WithMemory beside it.
//
// Other limiters may use s too, in this process or, with Redis, in others. Limits with
// the same name share what a key has consumed there. So every limit needs a WithName: a
// default name such as "rate" would be shared by accident. New, With and Update refuse
// limits without one; a limit without one from a WithLimitFunc refuses the request.
//
// If limiters of this process that aren't derived from each other give one name
// different numbers in s, that is logged, once for the name.
func WithStore(s store.Store) Option {
	return limiterOption(func(c *config) {
		if s == nil {
			c.errs.Bad("WithStore(nil)", "", "write a store, or leave it out for one in memory")
		}
		c.store = s
	})
}

// WithMemory configures the limiter's own store in memory, which it has unless
// WithStore sets another:
//
//	stint.WithMemory(memstore.WithMaxKeys(100_000))
//
// No other limiter uses that store, so names are optional. New refuses it beside
// WithStore. Limiter.Update needs the same options as New, since the store stays.
func WithMemory(opts ...memstore.Option) Option {
	return limiterOption(func(c *config) {
		c.memory = append(c.memory, opts...)
		c.memorySet = true
	})
}

// WithRoute gives requests that match pattern their own limits, instead of the
// limiter's. A route without limits is exempt. Patterns are those of http.ServeMux
// ("POST /login", "/files/", "api.example.com/"). The most specific pattern wins; hosts
// match in any case. New refuses invalid and conflicting patterns.
//
// A request that routers can read in several ways gets the limits of every reading,
// each once, and is exempt only if every reading is. The readings are the path as sent,
// decoded, cleaned and without a trailing slash, and the host as sent, in lower case
// without trailing dots, and cut off at any colon. So no spelling slips past a route. A
// path with %2F in an id may be charged for two routes; docs/routes.md has the rules.
//
// In With, a route also replaces the limits of the limiter that is extended. That
// limiter's routes are inherited, with the new limits added.
func WithRoute(pattern string, opts ...RouteOption) Option {
	return limiterOption(func(c *config) {
		rc := routeConfig{pattern: pattern}
		for i, o := range opts {
			if o == nil {
				rc.errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
				continue
			}
			o.applyRoute(&rc)
		}
		c.routes = append(c.routes, rc)
	})
}

// WithLimitFunc adds limits that depend on the request, such as those of a tenant's
// plan. They are decided together with the limiter's other limits, or with its route's;
// a route that is exempt stays exempt. It needs a default WithKey. New refuses a nil f.
// f is called concurrently.
//
// If f returns an error, the request is refused: the error goes to the error handler.
// Its status is that of its StatusCode() int method if it has one, otherwise 500.
//
// Every limit needs a WithName that differs from the others'. A Limit is compiled once
// however often it is returned, so return the same values where possible: package
// variables, or what package plans caches. Limits with the same name in different plans
// share what a key has consumed, so a tenant who changes plans keeps its count.
func WithLimitFunc(f func(*http.Request) ([]Limit, error)) Option {
	return checkedOption(f != nil, "WithLimitFunc(nil)", "write a function, or leave it out",
		func(c *config) {
			c.limitFuncs = append(c.limitFuncs, func(r *http.Request, _ func(...Limit) error) ([]Limit, error) { return f(r) })
		})
}

// WithLimitSource is WithLimitFunc for limits that are read from elsewhere and kept, as
// package plans does. f also gets check, which returns what is wrong with limits returned
// together: all that CheckLimits reports, and names that limits of this limiter have. Call
// it for limits that have just been read, before they replace good ones. It may be kept and
// called later, concurrently.
func WithLimitSource(f func(r *http.Request, check func(...Limit) error) ([]Limit, error)) Option {
	return checkedOption(f != nil, "WithLimitSource(nil)", "write a function, or leave it out",
		func(c *config) { c.limitFuncs = append(c.limitFuncs, f) })
}

// limitSource returns the limits of a request; see WithLimitSource.
type limitSource = func(r *http.Request, check func(...Limit) error) ([]Limit, error)

// WithSkip exempts requests for which skip returns true, before anything else is
// checked. If given several times, any of them exempts. By default nothing is exempt.
// New refuses nil. skip is called concurrently.
func WithSkip(skip func(*http.Request) bool) Option {
	return checkedOption(skip != nil, "WithSkip(nil)", "write a predicate, such as stint.Preflight",
		func(c *config) { c.skip = append(c.skip, skip) })
}

// WithBlock refuses requests for which block returns true with 403 (ErrBlocked),
// without charging anything. If given several times, any of them refuses. By default
// nothing is blocked. New refuses nil. block is called concurrently.
func WithBlock(block func(*http.Request) bool) Option {
	return checkedOption(block != nil, "WithBlock(nil)", "write a predicate, such as stint.FromCIDR(...)",
		func(c *config) { c.block = append(c.block, block) })
}

// WithDenyHandler makes h answer requests that a limit refuses: Redirect, PlainText, or
// any handler. The fields are set before it runs, and DeniedFromContext returns which
// limit refused. New refuses a nil h. h may
//
//   - write a reduced answer, such as a page from a cache. As everywhere in net/http, a
//     body without a status is sent with 200; write DeniedFromContext(ctx).StatusCode()
//     first to refuse with another body.
//   - write nothing, and only log or set fields. Then the request is answered as
//     without h.
//   - send the request to another route of the application. The limiter that refused it
//     lets it pass there; others decide it.
//
// By default the answer is 429 (503 if the concurrency of the whole service is
// exhausted), with an application/problem+json body (RFC 9457) that names the violated
// policies.
func WithDenyHandler(h http.Handler) Option {
	return checkedOption(h != nil, "WithDenyHandler(nil)", "write a handler, or leave it out for a problem body", func(c *config) {
		c.denyHandler = func(w http.ResponseWriter, r *http.Request, _ *DeniedError) bool {
			return respond.Answers(w, r, func(w http.ResponseWriter) { h.ServeHTTP(w, r) })
		}
	})
}

// WithErrorHandler makes h answer requests that are refused for another reason than a
// limit. The error is one of these:
//
//   - The key can't be determined: an error of a KeyFunc, ErrEmptyKey or ErrKeyTooLong.
//   - A predicate blocks the request: ErrBlocked.
//   - A WithLimitFunc fails: its error.
//   - The store fails under FailClosed: a *StoreError.
//   - The request's context ends during the decision or the wait: the error wraps
//     context.Canceled or context.DeadlineExceeded.
//
// By default the answer has the error's StatusCode, 503 if a context has ended, or 500,
// and a problem body that doesn't show the error's text. That is also the answer if h
// writes nothing. New refuses a nil h.
func WithErrorHandler(h func(http.ResponseWriter, *http.Request, error)) Option {
	return checkedOption(h != nil, "WithErrorHandler(nil)", "write a function, or leave it out for a problem body", func(c *config) {
		c.errorHandler = func(w http.ResponseWriter, r *http.Request, err error) bool {
			return respond.Answers(w, r, func(w http.ResponseWriter) { h(w, r, err) })
		}
	})
}

// WithProblem makes the limiter answer refusals with its own problem body (RFC 9457),
// through every adapter, unless a WithDenyHandler or WithErrorHandler answers. By
// default stintecho leaves refusals to the application's HTTPErrorHandler; the other
// adapters answer this way anyway.
func WithProblem() Option {
	return limiterOption(func(c *config) { c.problem = true })
}

// WithObserver passes the limiter's events to f from the start, as Limiter.Observe
// does. If given several times, all functions are called in order. An Update without it
// keeps the existing ones; an Update with it replaces them. New refuses nil. f is
// called concurrently.
func WithObserver(f func(Event)) Option {
	return checkedOption(f != nil, "WithObserver(nil)", "write a function, or leave it out",
		func(c *config) { c.observers = append(c.observers, f) })
}

// WithLogger sets the logger for what goes wrong: failures of the store and its
// recovery, of key functions and limit functions, empty keys, charges and slots that
// could not be settled or released, lost leases, bans, and reloaded policies. Each
// message is logged at most once a minute, with the number suppressed since. The last line
// about a store or a policy says how it is, if need be when the minute is over. Refusals
// are logged at debug level, every one, if the handler is enabled for it.
// docs/observing.md lists the messages.
//
// The default is slog.Default(), and for a limiter made by With the logger of the one
// it extends. An Update without WithLogger and WithLogKeys keeps both. To log nothing,
// write slog.New(slog.DiscardHandler); New refuses nil.
func WithLogger(logger *slog.Logger) Option {
	return checkedOption(logger != nil, "WithLogger(nil)", "write slog.New(slog.DiscardHandler) for no log, or leave it out",
		func(c *config) { c.logger = logger })
}

// WithLogKeys makes the log show the keys of refusals, bans, lost leases and failures of
// the store, in the form that stores see. They may be addresses or credentials. By default
// no key is logged, but the text of an error of your own KeyFunc is logged as it is.
func WithLogKeys() Option {
	return limiterOption(func(c *config) { c.logKeys = true })
}

// WithLimiterName names a limiter in events, logs and metrics. A name is a letter
// followed by up to 63 of A-Z a-z 0-9 _ . -; New refuses any other. By default a
// limiter has no name, and a limiter derived by With has that of the one it extends.
func WithLimiterName(name string) Option {
	return checkedOption(store.ValidName(name), fmt.Sprintf("WithLimiterName(%.80q)", name), "write a letter, then up to 63 of A-Z a-z 0-9 _ . -",
		func(c *config) { c.name = name })
}

// WithoutPermit declares that handlers don't use their Permit: FromContext returns nil,
// Settle can't be called, and a limiter that is mounted twice charges twice. It saves
// the request's context value: both allocations of a plain request, or one if somebody
// observes.
func WithoutPermit() Option {
	return limiterOption(func(c *config) { c.withoutPermit = true })
}
