package stint

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/store"
)

// Limit is a rule: an algorithm, its numbers, and who it applies to. Make one with
// Rate, Quota, Concurrency, AdaptiveConcurrency, Bandwidth or Ban. These report nothing
// themselves: mistakes are reported by the New, Check, With or Update that gets
// the Limit, or deny the request if a WithLimitFunc returns it.
//
// A Limit is immutable and safe for concurrent use, and several limiters and routes may
// use it. Within one limiter and those derived from it, it is the same limit wherever
// it is used.
type Limit struct{ rule *compile.Rule }

func (l Limit) applyLimiter(c *config) {
	if l.written(&c.Errs) {
		c.Limits = append(c.Limits, l.rule)
	}
}

func (l Limit) sets() setting { return setting{name: "limits"} }

func (l Limit) applyRoute(rc *compile.Route) {
	switch {
	case l.rule == exempt && rc.Exempt:
		rc.Errs.Bad("Exempt()", "given twice", "leave one out")
	case l.rule == exempt:
		rc.Exempt = true
	case l.written(&rc.Errs):
		rc.Limits = append(rc.Limits, l.rule)
	}
}

// written reports whether l is a limit that an option may be, or adds to errs why it isn't.
func (l Limit) written(errs *mistake.List) bool {
	switch l.rule {
	case nil:
		errs.Bad("", "zero Limit", "write stint.Rate, Quota or Concurrency")
	case exempt:
		errs.Bad("Exempt()", "it exempts a limiter from nothing", "write it in a stint.WithRoute, or return it from a limit function")
	default:
		return true
	}
	return false
}

// exempt is the rule of Exempt.
var exempt = &compile.Rule{Spec: store.Spec{Name: "exempt"}}

// Algorithm says how a Rate or a Quota counts. See WithAlgorithm.
type Algorithm = store.Algorithm

// The algorithms of WithAlgorithm; WithWarmUp is another. See the constants of package store for what each
// does, and docs/algorithms.md for the rules.
const (
	TokenBucket    Algorithm = store.TokenBucket
	IntervalBucket Algorithm = store.IntervalBucket
	LeakyBucket    Algorithm = store.LeakyBucket
	FixedWindow    Algorithm = store.FixedWindow
	SlidingWindow  Algorithm = store.SlidingWindow
	SlidingCounter Algorithm = store.SlidingCounter
	SlidingLog     Algorithm = store.SlidingLog
)

// Window is a span of the calendar: Hourly, Daily, Weekly, Monthly, or one made by
// Every.
type Window = store.Window

// The calendar windows of Quota, in UTC. Daily.In(loc) is the day of a time zone, 23 or
// 25 hours long when its clocks change. A week starts on Monday.
var (
	Hourly  Window = store.Hourly
	Daily   Window = store.Daily
	Weekly  Window = store.Weekly
	Monthly Window = store.Monthly
)

// Every returns the window of length d, aligned to the Unix epoch. d is a multiple of a
// microsecond, from a millisecond to two years; New rejects any other.
func Every(d time.Duration) Window { return store.Every(d) }

// Rate lets n pass at once, and n per period from then on, for each key. WithBurst sets how
// many pass at once. A request costs 1 unit unless WithCost says otherwise. The default
// algorithm is a TokenBucket; WithAlgorithm sets another. The default name is "rate".
//
// n is from 1 to 2^40, and per is a whole number of microseconds, from a millisecond to two
// years.
// New rejects other numbers, and options that the algorithm doesn't use. A Rate
// combines with every other kind of limit. Whether n is too low for what callers do isn't detected:
// try it with WithDryRun.
//
// Every such rate is counted exactly, in ticks of a microsecond, or of up to a
// millisecond where one integer can hold its state that way (store.Limit.Tick). A
// request may pass up to a tick earlier or later than n per period says.
func Rate(n int64, per time.Duration, opts ...RateOption) Limit {
	l := newLimit(&compile.Rule{Kind: limit.Charged, Spec: store.Spec{Name: "rate", Units: n, Period: per}}, opts)
	checkPeriod(l.rule)
	if r := l.rule; r.Spec.WarmUp != 0 {
		if r.AlgSet {
			r.Errs.Bad("WithWarmUp", "%v does not warm up", "leave one of the two out", r.Spec.Algorithm)
		}
		r.Spec.Algorithm = store.WarmUp
	}
	return l
}

// Quota lets n pass in each calendar window, such as Daily, or in each window of fixed
// length (Every), for each key; the next window begins with n again. A request costs 1
// unit unless WithCost says otherwise. The default algorithm is a FixedWindow; an
// IntervalBucket keeps unused units up to its burst. The
// default name is that of the window ("hourly", "daily", "weekly", "monthly"), or
// "quota" for Every.
//
// n is from 1 to 2^40. New rejects other numbers, the zero Window, a time zone on a
// window made by Every, and other algorithms.
//
// A key can use up a day's quota in its first second. Combine the quota with a Rate to
// prevent that.
func Quota(n int64, w Window, opts ...RateOption) Limit {
	name, _, _ := strings.Cut(w.String(), " ") // without a time zone
	if name == "every" || w == (Window{}) {
		name = "quota"
	}
	l := newLimit(&compile.Rule{Kind: limit.Charged, Quota: true, Spec: store.Spec{Name: name, Algorithm: FixedWindow, Units: n, Window: w}}, opts)
	if w == (Window{}) {
		l.rule.Errs.Bad("", "no window", "write stint.Daily, another of the calendar, or stint.Every")
		l.rule.Spec.Window = Daily // or the store's limit would report a missing period
	}
	return l
}

// checkPeriod reports a period that lacks its unit.
func checkPeriod(r *compile.Rule) {
	if lacksUnit(r, "", r.Spec.Period) {
		r.Spec.Period = time.Second // or the store's limit may report it too
	}
}

// lacksUnit reports whether a duration that option was given lacks its unit, and adds that to
// what is wrong with the rule.
func lacksUnit(r *compile.Rule, option string, d time.Duration) bool {
	ok, write := engine.CheckDuration(d, true, "")
	if !ok && option == "" {
		r.Errs.Bad("", fmt.Sprintf("a period of %v", d), write)
	} else if !ok {
		r.Errs.Bad(fmt.Sprintf("%s(%v)", option, d), "", write)
	}
	return !ok
}

func newLimit[O optionOf](r *compile.Rule, opts []O) Limit {
	apply(r, opts)
	return Limit{r}
}

// WithBurst sets how many units may pass at once, on a Rate or Quota; on a Bandwidth it
// is in bytes (see there). What it means depends on the algorithm:
//
//   - TokenBucket, IntervalBucket: the capacity of the bucket. The default is the
//     limit's n.
//   - LeakyBucket: the units beyond the rate that pass without delay. The default is 0.
//   - With WithDebt: what an idle key saves up. The default is one second's worth of
//     the rate, as in Guava.
//
// n is from 0 to 2^40. New rejects other numbers, 0 on a bucket without debt (nothing
// would pass), and algorithms without a burst.
func WithBurst(n int64) LimitOption {
	return changeOption{change: on("WithBurst", func(r *compile.Rule) { r.Spec.Burst = orNone(r, n, "WithBurst") }, "Rate", "Quota", "Bandwidth")}
}

// WithAlgorithm sets how a limit counts. A Rate takes every algorithm; the default is
// TokenBucket. A Quota takes FixedWindow, the default, and IntervalBucket. New rejects
// any other combination. store.Concurrency and store.Ban are limits of their own, and store.WarmUp
// is an option: write stint.Concurrency, stint.Ban or stint.WithWarmUp.
func WithAlgorithm(a Algorithm) RateOption {
	valid, write := true, ""
	switch a {
	case store.Concurrency, store.Ban:
		valid, write = false, fmt.Sprintf("write stint.%v, which is a limit of its own", a)
	case store.WarmUp:
		valid, write = false, "write stint.WithWarmUp"
	}
	return checkedChange(valid, fmt.Sprintf("WithAlgorithm(%v)", a), write,
		func(r *compile.Rule) { r.Spec.Algorithm, r.AlgSet = a, true })
}

// WithName names a limit in answers, header fields, problem bodies, logs and the store.
// A name is a letter followed by up to 63 of A-Z a-z 0-9 _ . -; New rejects any other.
// Names must be unique within a limiter and all limiters derived from it.
//
// The default is a name for the kind of limit, with a number if that is taken
// ("rate-2"). The number changes when limits are added before it. So every limit needs
// a WithName if the limiter has a WithStore (New rejects it otherwise), if a
// WithLimitFunc returns it, and if a Limiter.Update shall find it again.
func WithName(name string) LimitOption {
	return changeOption{change: func(r *compile.Rule) { r.Spec.Name, r.Named = name, true }}
}

// WithWarmUp makes a Rate start at a third of its rate and rise to n per period while
// it is used for d. When idle it cools down again. The
// curve is that of Guava's SmoothWarmingUp. d is a positive multiple of a microsecond,
// at most two years. New rejects any other, and a WithAlgorithm beside it.
//
// Requests are spaced out, not saved up: without a WithMaxWait (or Limiter.Wait), a
// request that comes before its turn is denied.
func WithWarmUp(d time.Duration) RateOption {
	valid, write := engine.CheckDuration(d, d > 0, "write how long the rate takes to rise, such as 4*time.Second")
	return checkedChange(valid, fmt.Sprintf("WithWarmUp(%v)", d), write,
		func(r *compile.Rule) { r.Spec.WarmUp = d }, "Rate")
}

// WithDebt lets a request pass as soon as earlier requests are paid for; the next
// request waits for the part of its cost that wasn't covered. By default a request's whole
// cost must be available. Permit.Settle and WithSettle don't need WithDebt: what a
// request costs beyond its charge is owed in any case.
//
// It spaces requests: an idle key saves up one second's worth of the rate, not n units.
// At 1000 per minute that is 16 at once; at 5 per minute, none. Set WithBurst for more.
// It is for a Rate in a TokenBucket; New rejects it on other algorithms.
//
// While earlier requests aren't paid for, a request waits up to WithMaxWait, or is
// denied. Remaining and the header fields count what has been saved up, without the
// one request that passes on credit: 11 pass at once where they say 10.
func WithDebt() RateOption {
	return changeOption{change: on("WithDebt", func(r *compile.Rule) { r.Spec.Debt = true }, "Rate")}
}

// WithBuckets sets how many buckets a SlidingWindow is cut into, from 1 to 1000. More
// buckets forget sooner and cost more memory. The default is 10. New rejects other
// numbers, more buckets than the period has microseconds, and other algorithms.
func WithBuckets(k int64) RateOption {
	return checkedChange(k >= 1, fmt.Sprintf("WithBuckets(%d)", k), "write 1 or more",
		func(r *compile.Rule) { r.Spec.Buckets = k }, "Rate")
}
