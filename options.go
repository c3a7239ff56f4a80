package stint

import (
	"fmt"
	"reflect"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/store"
)

// Option is an argument of [New], [Limiter.With] and [Limiter.Update]: a limit, an option that
// is a default for limits ([WithKey], [WithCost], [WithFixedCost], [WithSettle], [WithMaxWait],
// [WithNearLimit], [WithDryRun], [WithFailurePolicy], [WithEmptyKey]), or an option of the limiter as a whole:
// [WithRoute], [WithLimitFunc], [WithStore], [WithSkip], [WithBlock], [WithDenyHandler],
// [WithErrorHandler], [WithProblem], [WithHeaders], [WithRetryJitter], [WithPriority],
// [WithObserver], [WithLogger], [WithLogKeys], [WithoutWarnings], [WithLimiterName],
// [WithoutPermit], [WithoutRoutes], [WithoutLimitFuncs], [Complete]. New returns an error for a
// nil Option. If an option is given twice, the later one replaces the earlier one, unless the
// documentation of the option says otherwise.
type Option interface {
	applyLimiter(*config)
	sets() setting
}

// RouteOption is an argument of WithRoute: a limit, Only, Exempt, WithDenyHandler, or an option that is a
// default for the limits of that route. WithCost and WithFixedCost set the cost of the route's requests
// for all rates and quotas that have no cost of their own. A default applies to the kinds of limit that
// take the option; New returns an error if the route has no such limit. An option of a limit takes
// precedence over the option of its route. An option of the route takes precedence over the option of the
// limiter.
type RouteOption interface {
	Option
	applyRoute(*compile.Route)
}

// A limit takes the options of its kind: what would mean nothing to it doesn't
// compile, or New rejects it and says what to write.
type (
	// RateOption is an option of [Rate] and [Quota]: [WithAlgorithm], a [LimitOption], a
	// [SharedOption] or a [ChargeOption]. [WithDebt], [WithWarmUp] and [WithBuckets] are
	// options of Rate only.
	RateOption interface {
		applyLimit(*compile.Rule)
		ofRate()
	}
	// SlotOption is an option of [Concurrency] and [AdaptiveConcurrency]: [WithShare], a
	// [LimitOption], a [SharedOption] or a [ChargeOption]. [WithFairQueue] is an option of
	// Concurrency only. [WithAdaptation], [WithInitialLimit] and [WithSampleWindow] are options of
	// AdaptiveConcurrency only.
	SlotOption interface {
		applyLimit(*compile.Rule)
		ofSlots()
	}
	// BandwidthOption is an option of Bandwidth: [WithDirection], a LimitOption or a SharedOption.
	BandwidthOption interface {
		applyLimit(*compile.Rule)
		ofBandwidth()
	}
	// BanOption is an option of [Ban]: [WithBanFor], a [LimitOption] or a [SharedOption].
	BanOption interface {
		applyLimit(*compile.Rule)
		ofBan()
	}
)

// LimitOption is an option of several kinds of limit: [WithName] of all; [WithHidden] of all
// but Ban and Bandwidth; [WithBurst] of Rate, Quota and Bandwidth; [WithQueue] of Rate,
// Concurrency and AdaptiveConcurrency; or a [SharedOption].
type LimitOption interface {
	RateOption
	SlotOption
	BandwidthOption
	BanOption
}

// Options that are defaults, too.
type (
	// SharedOption is an option of every kind of limit: [WithKey], [WithDryRun],
	// [WithFailurePolicy], [WithSkip] or [WithEmptyKey]. Given to New, With or WithRoute, a
	// SharedOption is the default for all limits there. A WithSkip given to New or With is an
	// exception: it exempts requests from the whole limiter.
	SharedOption interface {
		RouteOption
		LimitOption
	}
	// ChargeOption is an option of [Rate], [Quota], [Concurrency] and [AdaptiveConcurrency]:
	// [WithCost], [WithFixedCost] or [WithMaxWait]. [WithSettle] and [WithNearLimit] are options of
	// Rate and Quota only. Given to New, With or WithRoute, WithMaxWait is the default for the limits of these
	// kinds there, and WithCost and WithFixedCost are the default for its rates and quotas: a
	// request takes one slot of a concurrency limit that has no cost of its own.
	ChargeOption interface {
		RouteOption
		RateOption
		SlotOption
	}
)

// WithDryRun makes a limit report the requests that it would deny, and admit them. The limit is
// decided and counted as if it were enforced, and is in Decision.Limits. Observers get an
// EventDryRunDenied for each request that it would have denied. By default limits are enforced.
//
// A limit in dry run denies nothing, delays nothing, adds no header fields and ignores
// FailClosed. It doesn't affect the decisions of other limits. A request with an empty key passes,
// and observers get an EventEmptyKey with a nil Err. If a request's
// key function returns an error, or its key is longer than 4 KiB, the request is still denied.
//
// on is false to enforce a limit although its route or limiter has WithDryRun(true).
func WithDryRun(on bool) SharedOption {
	return settingOption{setting: setting{name: "WithDryRun"},
		sharedSetting: func(s *compile.Settings) { s.DryRun, s.DryRunSet = on, true }}
}

// HeaderStyle is a set of header fields that describe the limits of a response to its client.
type HeaderStyle uint8

const (
	// RateLimitHeaders sends RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, one item for each limit. In RateLimit-Policy, q
	// is the number of units allowed in w seconds. In RateLimit, r is the number of units left,
	// and t the number of seconds until another unit becomes available. The fields have the
	// limits of all nested limiters. If two limits have the same name, the fields show the
	// limit with fewer units left.
	//
	// r may exceed q if the limit has a burst. For a calendar window, w is the length of the
	// longest window: 31 days for Monthly, 25 hours for Daily where clocks are set back by an
	// hour.
	RateLimitHeaders HeaderStyle = iota
	// XRateLimitHeaders sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
	// for the limit with the fewest units left, including limits of nested limiters.
	// X-RateLimit-Limit is the capacity of that limit, such as the burst of a bucket
	// (LimitStatus.Capacity). X-RateLimit-Reset is in seconds from now.
	XRateLimitHeaders
	// XRateLimitUnixHeaders is like XRateLimitHeaders, but X-RateLimit-Reset is a Unix time in
	// seconds by this process's clock, as in GitHub, httprate and ulule/limiter. It can't be
	// combined with XRateLimitHeaders.
	XRateLimitUnixHeaders
	// NoHeaders sends none of these fields. It can't be combined with other styles.
	NoHeaders
)

const headersToWrite = "use stint.RateLimitHeaders, XRateLimitHeaders, XRateLimitUnixHeaders or NoHeaders"

// WithHeaders sets which header fields describe limits to clients. The default is
// RateLimitHeaders. In every style, denials have a Retry-After, unless the request can never
// pass. New returns an error for an empty list, an unknown style, NoHeaders combined with
// another style, and XRateLimitHeaders combined with XRateLimitUnixHeaders.
func WithHeaders(styles ...HeaderStyle) Option {
	return option("WithHeaders", func(c *config) {
		c.styles = 0
		none := false
		for _, s := range styles {
			switch s {
			case RateLimitHeaders:
				c.styles |= field.RateLimit
			case XRateLimitHeaders:
				c.styles |= field.XRateLimit
			case XRateLimitUnixHeaders:
				c.styles |= field.XRateLimitUnix
			case NoHeaders:
				none = true
			default:
				c.Errs.Add("WithHeaders", fmt.Sprintf("unknown style %d", s), headersToWrite)
			}
		}
		switch {
		case len(styles) == 0:
			c.Errs.Add("WithHeaders()", "", headersToWrite)
		case none && c.styles != 0:
			c.Errs.Add("WithHeaders", "NoHeaders beside another style", "leave one out")
		case c.styles&field.XRateLimit != 0 && c.styles&field.XRateLimitUnix != 0:
			c.Errs.Add("WithHeaders", "one X-RateLimit-Reset can't be both seconds and a Unix time",
				"leave XRateLimitHeaders or XRateLimitUnixHeaders out")
		}
	})
}

// WithHidden hides a limit from the RateLimit and X-RateLimit fields, for instance a limit that
// protects a server and doesn't concern clients. The limit is still enforced: its denials have
// a Retry-After, and the problem body has the limit's name. By default the fields show all
// limits except a Ban, a Bandwidth and dry runs. New returns an error for WithHidden on a Ban
// or a Bandwidth.
func WithHidden() LimitOption {
	return ruleOption{ruleChange: func(r *compile.Rule) { r.Hidden = true }}
}

// WithRetryJitter adds a random duration of up to d to the Retry-After of each denial by a
// limit, so that clients that were denied at the same time don't retry at the same time.
// Decision.RetryAfter and the other header fields aren't changed. The default is 0. d is 0, or
// from a millisecond to 24 hours; New returns an error for other values.
func WithRetryJitter(d time.Duration) Option {
	valid, write := optionerror.CheckDuration(d, 0, 24*time.Hour, "use 0, or 1ms to 24h, such as 5*time.Second")
	return checkedOption(valid, fmt.Sprintf("WithRetryJitter(%v)", d), write,
		func(c *config) { c.retryJitter = d })
}

// WithStore keeps the counts in s, such as a store of package redisstore. The default is a
// store in memory that is shared only by the limiter and limiters derived from it. Limits in
// the default store need no names. New returns an error if s is nil or misconfigured.
//
// To set the size of the store in memory, pass a memstore and name the limits:
//
//	stint.WithStore(memstore.New(memstore.WithMaxKeys(100_000)))
//
// Several limiters may use s, in this process or, with Redis, in several processes. In s,
// limits with the same name share one count per key. So every limit needs a WithName, because
// default names such as "rate" would be shared by accident. New, With and Update return an
// error for a limit without a name; if a WithLimitFunc returns one, the request is denied.
//
// If limiters that aren't derived from each other use the same name with different numbers in
// s, the limiter logs the warning name-conflict. Limiters of other processes aren't compared.
// If one of two such limiters is mounted inside the other, a request is charged twice under
// that name, without a warning: derive the inner limiter by Limiter.With.
func WithStore(s store.Store) Option {
	return option("WithStore", func(c *config) {
		if v := reflect.ValueOf(s); v.IsValid() && v.Kind() == reflect.Pointer && v.IsNil() {
			c.Errs.Add("WithStore", fmt.Sprintf("a nil %T", s),
				"pass a store that memstore.New, redisstore.New or the like has returned")
			return
		}
		if s == nil {
			c.Errs.Add("WithStore(nil)", "", "pass a store, or leave it out for one in memory")
		}
		c.Store = s
	})
}

// WithLimiterName sets the name of a limiter in events, logs and metrics. A name is a letter
// followed by up to 63 characters of A-Z a-z 0-9 _ . -; New returns an error for any other name.
// By default a limiter has no name, and a limiter made by With has the name of the limiter that
// it extends.
func WithLimiterName(name string) Option {
	return checkedOption(algorithm.ValidName(name), fmt.Sprintf("WithLimiterName(%.80q)", name),
		"use a letter, followed by up to 63 of A-Z a-z 0-9 _ . -",
		func(c *config) { c.name = name })
}

// WithoutPermit leaves the Permit out of the request's context: FromContext returns nil,
// handlers can't call Settle or Extend, and a limiter that is mounted twice charges twice. The option
// saves the allocation of a context value, the only allocation of a plain request through
// stinthttp without observers. stintgin and stintecho still allocate a context value of their
// own.
func WithoutPermit() Option {
	return option("WithoutPermit", func(c *config) { c.withoutPermit = true })
}

// FailurePolicy sets how requests are handled when the store fails.
type FailurePolicy uint8

const (
	// FailOpen lets the request pass without RateLimit fields.
	FailOpen FailurePolicy = iota + 1
	// FailClosed answers 503 with a Retry-After.
	FailClosed
)

// WithFailurePolicy sets how requests are handled when the store fails. If the limits of a
// request have different policies, FailClosed applies. The limiter's policy also applies when a
// source of limits fails (see SourceError): the request passes without these limits, or is
// answered with 503. The default is FailOpen. New returns an error for values other than
// FailOpen and FailClosed.
func WithFailurePolicy(p FailurePolicy) SharedOption {
	return checkedSetting(p == FailOpen || p == FailClosed, fmt.Sprintf("WithFailurePolicy(%d)", p),
		"use stint.FailOpen or stint.FailClosed",
		func(s *compile.Settings) { s.FailureSet, s.Closed = true, p == FailClosed })
}
