package stint

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/store"
)

// Option is an argument of [New], [Limiter.With] and [Limiter.Update]: a limit, an option that
// is a default for limits ([WithKey], [WithCost], [WithFixedCost], [WithSettle], [WithMaxWait],
// [WithDryRun], [WithFailurePolicy], [WithEmptyKey]), or an option of the limiter as a whole:
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

// RouteOption is an argument of WithRoute: a limit, Only, Exempt, or an option that is a
// default for the limits of that route. WithCost and WithFixedCost set the cost of the route's
// requests for all limits. A default applies to the kinds of limit that take the option; New
// returns an error if the route has no such limit. An option of a limit takes precedence over
// the option of its route, and the option of the route over that of the limiter.
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
	// [LimitOption], a [SharedOption] or a [ChargeOption]. [WithAdaptation], [WithInitialLimit]
	// and [WithSampleWindow] are options of AdaptiveConcurrency only.
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
	// [WithCost], [WithFixedCost] or [WithMaxWait]. [WithSettle] is an option of Rate and Quota
	// only. Given to New, With or WithRoute, a ChargeOption is the default for the limits of
	// these kinds there.
	ChargeOption interface {
		RouteOption
		RateOption
		SlotOption
	}
)

// WithCost sets the function that returns how many units a request costs. The default is 1. A
// request of cost 0 is never charged, denied or delayed. A negative cost is an error: the
// response has status 500. Costs above 2^40 count as 2^40. New returns an error if cost is nil.
// cost is called concurrently. A handler that learns the true cost later passes it to
// Permit.Settle.
//
// Given to New, With or WithRoute, WithCost is the default for rates and quotas there. A
// request takes one slot of a Concurrency or AdaptiveConcurrency unless that limit has a
// WithCost of its own. If a cost can never pass a limit, the limiter logs a warning
// (cost-too-high).
func WithCost(cost func(*http.Request) int64) ChargeOption {
	return checkedSetting(cost != nil, "WithCost(nil)", "write a function, or leave it out if every request costs 1",
		func(s *compile.Settings) { s.Cost, s.Fixed = cost, 0 })
}

// WithFixedCost sets the same cost for all requests, for instance for the requests of a route.
// units is from 1 to 2^40. New returns an error for other values, and for a cost that can never
// pass a limit, or not within its WithMaxWait.
func WithFixedCost(units int64) ChargeOption {
	o := checkedSetting(units >= 1 && units <= store.MaxCost, fmt.Sprintf("WithFixedCost(%d)", units), "write 1 to 2^40",
		func(s *compile.Settings) {
			s.Cost, s.Fixed = func(*http.Request) int64 { return units }, units
		})
	o.name = "WithCost"
	return o
}

// WithDryRun makes a limit report the requests that it would deny, and admit them. The limit is
// decided and counted as if it were enforced, and is in Decision.Limits. Observers get an
// EventDryRunDenied for each request that it would have denied. By default limits are enforced.
//
// A limit in dry run denies nothing, delays nothing, adds no header fields and ignores
// FailClosed. It doesn't affect the decisions of other limits. If the key of the limit can't be
// determined, the request is still denied.
//
// WithDryRun(false) enforces a limit even if the default is a dry run.
func WithDryRun(on bool) SharedOption {
	return settingOption{setting: setting{name: "WithDryRun"}, sharedSetting: func(s *compile.Settings) { s.DryRun, s.DryRunSet = on, true }}
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

const headersToWrite = "write stint.RateLimitHeaders, XRateLimitHeaders, XRateLimitUnixHeaders or NoHeaders"

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
			c.Errs.Add("WithHeaders", "one X-RateLimit-Reset can't be both seconds and a Unix time", "leave XRateLimitHeaders or XRateLimitUnixHeaders out")
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
	valid, write := optionerror.CheckDuration(d, 0 <= d && d <= 24*time.Hour, "write up to 24 hours, such as 5*time.Second")
	return checkedOption(valid, fmt.Sprintf("WithRetryJitter(%v)", d), write,
		func(c *config) { c.retryJitter = d })
}

// setting is what an option sets. Update replaces what was given of the same setting.
type setting struct {
	name   string // of an option
	clears bool   // the option's argument is nil: in an Update, nothing is set any more
}

// sets is a method of every option.
func (s setting) sets() setting { return s }

// limiterOption is an option of the limiter as a whole.
type limiterOption struct {
	setting
	set func(*config)
}

func (o limiterOption) applyLimiter(c *config) { o.set(c) }

// option returns an option of the limiter whose arguments are always valid, or checked by set.
func option(name string, set func(*config)) Option {
	return limiterOption{setting{name: name}, set}
}

// checkedOption, checkedSetting and checkedRuleOption return an option that sets its argument if that is
// valid, and otherwise reports it. written is the option with the wrong argument, and write what to write
// instead.
func checkedOption(valid bool, written, write string, set func(*config)) Option {
	if valid {
		return limiterOption{settingOf(written, false), set}
	}
	return limiterOption{settingOf(written, true), func(c *config) { c.Errs.Add(written, "", write) }}
}

func checkedSetting(valid bool, written, write string, set sharedSetting) settingOption {
	if valid {
		return settingOption{setting: settingOf(written, false), sharedSetting: set}
	}
	return settingOption{setting: settingOf(written, true), sharedSetting: func(s *compile.Settings) { s.Errs.Add(written, "", write) }}
}

// settingOf returns the setting of an option, written with its argument. Of the invalid arguments, nil clears
// the setting.
func settingOf(written string, invalid bool) setting {
	name, argument, _ := strings.Cut(written, "(")
	return setting{name, invalid && argument == "nil)"}
}

// checkedRuleOption returns an option of the limits that these constructors make, or of all that may have it
// by its type.
func checkedRuleOption(valid bool, written, write string, set ruleChange, constructors ...string) ruleOption {
	if !valid {
		set = func(r *compile.Rule) { r.Errs.Add(written, "", write) }
	}
	if constructors != nil {
		name, _, _ := strings.Cut(written, "(")
		set = onlyFor(name, set, constructors...)
	}
	return ruleOption{ruleChange: set}
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
			c.Errs.Add("WithStore", fmt.Sprintf("a nil %T", s), "write a store that its package's New has made")
			return
		}
		if s == nil {
			c.Errs.Add("WithStore(nil)", "", "write a store, or leave it out for one in memory")
		}
		c.Store = s
	})
}

// WithLimiterName sets the name of a limiter in events, logs and metrics. A name is a letter
// followed by up to 63 of A-Z a-z 0-9 _ . -; New returns an error for any other. By default a
// limiter has no name, and a limiter made by With has the name of the limiter that it extends.
func WithLimiterName(name string) Option {
	return checkedOption(algorithm.ValidName(name), fmt.Sprintf("WithLimiterName(%.80q)", name), "write a letter, then up to 63 of A-Z a-z 0-9 _ . -",
		func(c *config) { c.name = name })
}

// WithoutPermit leaves the Permit out of the request's context: FromContext returns nil,
// handlers can't call Settle, and a limiter that is mounted twice charges twice. The option
// saves the allocation of a context value, the only allocation of a plain request through
// stinthttp without observers. stintgin and stintecho still allocate a context value of their
// own.
func WithoutPermit() Option {
	return option("WithoutPermit", func(c *config) { c.withoutPermit = true })
}

// config is the sum of the options of one New or With.
type config struct {
	compile.Config // of limits
	behavior

	observers []func(Event)
	logger    *slog.Logger
	logKeys   bool

	opts []Option // from which it was collected
}

// collect adds up options. inherited is the behavior as far as they don't change it.
func collect(opts []Option, inherited behavior) *config {
	c := &config{behavior: inherited, opts: slices.Clone(opts)} // an Update applies them again
	for i, o := range opts {
		if o == nil {
			o = nilOption(i)
		}
		o.applyLimiter(c)
	}
	return c
}

// nilOption returns an option that reports that the option with index i is nil.
func nilOption(i int) Option {
	return option("", func(c *config) { c.Errs.Add("", fmt.Sprintf("option %d is nil", i+1), "leave it out") })
}

// anyLimitOption is an option of some kind of limit.
type anyLimitOption interface{ applyLimit(*compile.Rule) }

// apply applies options to a limit.
func apply[O anyLimitOption](r *compile.Rule, opts []O) {
	for i, o := range opts {
		if any(o) == nil {
			r.Errs.Add("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
			continue
		}
		o.applyLimit(r)
	}
}

// orNone translates a number from the API to the store's, where 0 means the default.
func orNone(r *compile.Rule, n int64, option string) int64 {
	switch {
	case n == 0:
		return store.None
	case n < 0:
		r.Errs.Add(fmt.Sprintf("%s(%d)", option, n), "", "write 0 or more")
		return 0
	}
	return n
}

// ruleChange is the effect of an option on a limit.
type ruleChange func(*compile.Rule)

func (f ruleChange) applyLimit(r *compile.Rule) { f(r) }

// onlyFor returns set for limits that these constructors make. Other limits may have the option by its type:
// for them it reports a problem.
func onlyFor(option string, set ruleChange, constructors ...string) ruleChange {
	return func(r *compile.Rule) {
		made := constructorOf(r)
		if slices.Contains(constructors, made) {
			set(r)
			return
		}
		last := len(constructors) - 1
		alternatives := strings.TrimPrefix(strings.Join(constructors[:last], ", ")+" or "+constructors[last], " or ")
		r.Errs.Add(option, withArticle(made)+" doesn't take it", "leave it out, or write it in "+withArticle(alternatives))
	}
}

// withArticle returns a noun after its indefinite article.
func withArticle(noun string) string {
	if noun[0] == 'A' {
		return "an " + noun
	}
	return "a " + noun
}

// constructorOf returns the name of the function that has made a limit.
func constructorOf(r *compile.Rule) string {
	switch r.Kind {
	case limit.Concurrent:
		return "Concurrency"
	case limit.Adaptive:
		return "AdaptiveConcurrency"
	case limit.Bandwidth:
		return "Bandwidth"
	case limit.Banning:
		return "Ban"
	}
	if r.Quota {
		return "Quota"
	}
	return "Rate"
}

// sharedSetting is the effect of an option on a limit, or on the defaults of several.
type sharedSetting func(*compile.Settings)

func (f sharedSetting) applyLimiter(c *config) { f(&c.Defaults) }

func (f sharedSetting) applyLimit(r *compile.Rule) { f(&r.Settings) }

func (f sharedSetting) applyRoute(rc *compile.Route) { f(&rc.Defaults) }

// marks has the marks of all kinds of limit. An option has all of them: the interface
// that its function returns says which kinds it goes with.
type marks struct{}

func (marks) ofRate() {}

func (marks) ofSlots() {}

func (marks) ofBandwidth() {}

func (marks) ofBan() {}

// The options of limits, by what they do.
type (
	ruleOption struct {
		ruleChange
		marks
	}
	settingOption struct {
		setting
		sharedSetting
		marks
	}
	// settleOption is a settingOption that slots don't have.
	settleOption struct{ settingOption }
)

func (o settleOption) applyLimit(r *compile.Rule) {
	onlyFor("WithSettle", o.settingOption.applyLimit, "Rate", "Quota")(r)
}

// behavior is a limiter's configuration apart from its limits. A limiter derived from it has
// the same, unless its options say otherwise.
type behavior struct {
	denyHandler   http.Handler
	errorHandler  func(http.ResponseWriter, *http.Request, error)
	problem       bool
	styles        field.Styles
	retryJitter   time.Duration
	name          string // of WithLimiterName
	withoutPermit bool
	priority      func(*http.Request) int // or nil
	ignored       mistakes.Kinds          // by WithoutWarnings
}

// handles reports whether a handler of the limiter answers denials.
func (c *behavior) handles() bool { return c.denyHandler != nil || c.errorHandler != nil }

// defaultBehavior is the behavior of a limiter without options.
var defaultBehavior = behavior{styles: field.RateLimit}

// OptionError is one problem with options. New, Check, With and Update join all problems in one
// error (errors.Join). Each joined error is, or wraps, an *OptionError.
type OptionError struct {
	// Limit is the name of the limit that the problem is about; empty for none.
	Limit string
	// Route is the pattern of the WithRoute that contains it; empty for none.
	Route string
	// Option is the wrong option, with its argument if only the argument is wrong:
	// "WithBurst(-1)", "WithKey(Header(\"a b\"))", "WithQueue". Option is empty if the limit's
	// own numbers are wrong, or if an option is missing.
	Option string
	// Problem describes the problem. It is empty if Option alone shows the problem.
	Problem string
	// Write is the correction: "write 0 or more", "leave it out".
	Write string

	named *store.SpecError // Problem and Write, if they contain names
}

// Names returns the Go identifiers in Problem and then in Write, in order, such as
// "TokenBucket" or "time.Second". Tools whose users write something other than Go, such as a
// configuration file, replace them.
func (e *OptionError) Names() []string {
	if e.named == nil {
		return nil
	}
	return slices.Clone(e.named.Names)
}

// Error returns the fields that are set: route, limit, option, problem and correction.
func (e *OptionError) Error() string {
	return optionerror.Text(e.Route, e.Limit, e.Option, e.Problem, e.Write)
}

// optionError returns a problem as an error.
func optionError(p *optionerror.Problem) *OptionError {
	return &OptionError{p.Limit, p.Route, p.Option, p.What, p.Write, p.Named}
}

// optionErrors returns problems as the elements of one error, each with a heading.
func optionErrors(all optionerror.List, heading string) []error {
	errs := make([]error, len(all))
	for i, m := range all {
		errs[i] = fmt.Errorf("%s%w", heading, optionError(m))
	}
	return errs
}

// joinProblems returns one error for all problems, or nil.
func joinProblems(all optionerror.List) error { return errors.Join(optionErrors(all, "stint: ")...) }
