package stint

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/internal/slots"
	"github.com/stint-go/stint/store"
)

// Limit is a rule: an algorithm, its numbers, and who it applies to. Make one with Rate, Quota,
// Concurrency, AdaptiveConcurrency, Bandwidth or Ban. These functions never fail. New, Check,
// With and Update return an error for a wrong Limit; if a WithLimitFunc returns one, the
// request is denied.
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
		rc.Errs.Add("Exempt()", "given twice", "leave one out")
	case l.rule == exempt:
		rc.Exempt = true
	case l.written(&rc.Errs):
		rc.Limits = append(rc.Limits, l.rule)
	}
}

// written reports whether l is a limit that an option may be, or adds to errs why it isn't.
func (l Limit) written(errs *optionerror.List) bool {
	switch l.rule {
	case nil:
		errs.Add("", "zero Limit", "write stint.Rate, Quota or Concurrency")
	case exempt:
		errs.Add("Exempt()", "it exempts a limiter from nothing", "write it in a stint.WithRoute, or return it from a limit function")
	default:
		return true
	}
	return false
}

// exempt is the rule of Exempt.
var exempt = &compile.Rule{Spec: store.Spec{Name: "exempt"}}

// Algorithm says how a Rate or a Quota counts. See WithAlgorithm.
type Algorithm = store.Algorithm

// The algorithms of WithAlgorithm; WithWarmUp is another. The constants of package store and
// docs/algorithms.md describe them.
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
// microsecond, from a millisecond to two years; New returns an error for any other.
func Every(d time.Duration) Window { return store.Every(d) }

// Rate lets n units pass per key at once, and n per period from then on. WithBurst sets how
// many pass at once. A request costs 1 unit unless WithCost says otherwise. The default
// algorithm is a TokenBucket; WithAlgorithm sets another. The default name is "rate".
//
// n is from 1 to 2^40, and per is a whole number of microseconds, from a millisecond to two
// years. New returns an error for other numbers, and for options that the algorithm doesn't
// use. A Rate combines with every other kind of limit. To find out whether n is too low for
// your callers, try it with WithDryRun.
//
// Every such rate is counted exactly, in ticks of a microsecond, or of up to a millisecond if one
// integer can then hold its state (store.Limit.Tick). So a request may pass up to one tick early or
// late.
func Rate(n int64, per time.Duration, opts ...RateOption) Limit {
	l := newLimit(&compile.Rule{Kind: limit.Charged, Spec: store.Spec{Name: "rate", Units: n, Period: per}}, opts)
	checkPeriod(l.rule)
	if r := l.rule; r.Spec.WarmUp != 0 {
		if r.AlgorithmSet {
			r.Errs.Add("WithWarmUp", "%v does not warm up", "leave one of the two out", r.Spec.Algorithm)
		}
		r.Spec.Algorithm = store.WarmUp
	}
	return l
}

// Quota lets n units pass per key in each calendar window, such as Daily, or in each window of
// fixed length (Every). A request costs 1 unit unless WithCost says otherwise. The default
// algorithm is a FixedWindow; an IntervalBucket keeps unused units up to its burst. The default
// name is that of the window ("hourly", "daily", "weekly", "monthly"), or "quota" for Every.
//
// n is from 1 to 2^40. New returns an error for any other n, the zero Window, a time zone on a
// window made by Every, and any other algorithm.
//
// A key can use up a day's quota in the first second. Combine the quota with a Rate to prevent
// that.
func Quota(n int64, w Window, opts ...RateOption) Limit {
	name, _, _ := strings.Cut(w.String(), " ") // without a time zone
	if name == "every" || w == (Window{}) {
		name = "quota"
	}
	l := newLimit(&compile.Rule{Kind: limit.Charged, Quota: true, Spec: store.Spec{Name: name, Algorithm: FixedWindow, Units: n, Window: w}}, opts)
	if w == (Window{}) {
		l.rule.Errs.Add("", "no window", "write stint.Daily, another of the calendar, or stint.Every")
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
		r.Errs.Add("", fmt.Sprintf("a period of %v", d), write)
	} else if !ok {
		r.Errs.Add(fmt.Sprintf("%s(%v)", option, d), "", write)
	}
	return !ok
}

func newLimit[O anyLimitOption](r *compile.Rule, opts []O) Limit {
	apply(r, opts)
	return Limit{r}
}

// WithBurst sets how many units may pass at once, on a Rate or Quota; on a Bandwidth it is in
// bytes (see there). Its meaning depends on the algorithm:
//
//   - TokenBucket, IntervalBucket: the capacity of the bucket. The default is the
//     limit's n.
//   - LeakyBucket: the units beyond the rate that pass without delay. The default is 0.
//   - With WithDebt: the number of units that an idle key saves up. The default is one second's
//     worth of the rate, as in Guava.
//
// n is from 0 to 2^40. New returns an error for other numbers, for 0 on a bucket without debt
// (nothing would pass), and for algorithms without a burst.
func WithBurst(n int64) LimitOption {
	return ruleOption{ruleChange: onlyFor("WithBurst", func(r *compile.Rule) { r.Spec.Burst = orNone(r, n, "WithBurst") }, "Rate", "Quota", "Bandwidth")}
}

// WithAlgorithm sets a limit's algorithm. A Rate takes every algorithm; the default is
// TokenBucket. A Quota takes FixedWindow, the default, and IntervalBucket. New returns an error
// for any other combination. For store.Concurrency, store.Ban and store.WarmUp, write
// stint.Concurrency, stint.Ban or stint.WithWarmUp instead.
func WithAlgorithm(a Algorithm) RateOption {
	valid, write := true, ""
	switch a {
	case store.Concurrency, store.Ban:
		valid, write = false, fmt.Sprintf("write stint.%v, which is a limit of its own", a)
	case store.WarmUp:
		valid, write = false, "write stint.WithWarmUp"
	}
	return checkedRuleOption(valid, fmt.Sprintf("WithAlgorithm(%v)", a), write,
		func(r *compile.Rule) { r.Spec.Algorithm, r.AlgorithmSet = a, true })
}

// WithName names a limit in answers, header fields, problem bodies, logs and the store.
// A name is a letter followed by up to 63 of A-Z a-z 0-9 _ . -; New rejects any other.
// Names must be unique within a limiter and all limiters derived from it.
//
// The default is a name for the kind of limit, with a number if the name is taken ("rate-2").
// The number changes when limits are added before it. So a limit needs a WithName if the
// limiter has a WithStore or a WithLimitFunc returns the limit (both are checked), and if its
// counts are to survive a Limiter.Update.
func WithName(name string) LimitOption {
	return ruleOption{ruleChange: func(r *compile.Rule) { r.Spec.Name, r.Named = name, true }}
}

// WithWarmUp makes a Rate start at a third of its rate and rise to n per period over the period
// d of use. When idle, it cools down again. The curve is that of Guava's SmoothWarmingUp. d is
// a positive multiple of a microsecond, at most two years. New returns an error for any other
// d, and if the limit also has a WithAlgorithm.
//
// Requests are spaced evenly, and an idle key saves up no units: without a WithMaxWait (or
// Limiter.Wait), a request that comes before its turn is denied.
func WithWarmUp(d time.Duration) RateOption {
	valid, write := engine.CheckDuration(d, d > 0, "write how long the rate takes to rise, such as 4*time.Second")
	return checkedRuleOption(valid, fmt.Sprintf("WithWarmUp(%v)", d), write,
		func(r *compile.Rule) { r.Spec.WarmUp = d }, "Rate")
}

// WithDebt lets a request pass as soon as earlier requests are paid for; the next request waits
// for the part of its cost that wasn't covered. By default a request's whole cost must be
// available. Permit.Settle and WithSettle don't need WithDebt: an additional cost is owed in
// any case.
//
// It spaces requests: an idle key saves up one second's worth of the rate, not n units. At 1000
// per minute that is 16 at once; at 5 per minute, none. Set WithBurst for more. WithDebt is for
// a Rate with a TokenBucket; New returns an error for other algorithms.
//
// While earlier requests aren't paid for, a request waits up to WithMaxWait, or is denied.
// Remaining and the header fields show the units saved up, without the one request that passes
// on credit: if they show 10, 11 requests pass at once.
func WithDebt() RateOption {
	return ruleOption{ruleChange: onlyFor("WithDebt", func(r *compile.Rule) { r.Spec.Debt = true }, "Rate")}
}

// WithBuckets sets into how many buckets a SlidingWindow divides its period, from 1 to 1000.
// More buckets are more precise and take more memory. The default is 10. New returns an error
// for other numbers, for more buckets than the period has microseconds, and for other
// algorithms.
func WithBuckets(k int64) RateOption {
	return checkedRuleOption(k >= 1, fmt.Sprintf("WithBuckets(%d)", k), "write 1 or more",
		func(r *compile.Rule) { r.Spec.Buckets = k }, "Rate")
}

// WithMaxWait makes a request wait for its turn rather than be denied, if its turn
// comes within d. The request's own deadline bounds the wait further. By default a
// request waits only for limits that queue by themselves: a LeakyBucket, a Rate with
// WithQueue, and for 5 seconds a Concurrency with WithQueue. d is 1 ms or more; New
// rejects any other.
//
// On a limit that queues by itself, d bounds the wait in the queue. On a Concurrency or
// AdaptiveConcurrency, as many requests wait for each key as there are slots, unless WithQueue
// says otherwise. Waiters are served by rank, then in order of arrival; see docs/waiting.md.
//
// An HTTP/1.1 server doesn't notice that a client has left while the request's body is
// unread: keep d to a few seconds.
func WithMaxWait(d time.Duration) ChargeOption {
	valid, write := engine.CheckDuration(d, d > 0, "write a positive duration, or leave it out if nobody waits")
	return checkedSetting(valid, fmt.Sprintf("WithMaxWait(%v)", d), write,
		func(s *compile.Settings) { s.MaxWait = d })
}

// WithQueue sets how many may wait. A request that finds the queue full is denied at once. n is
// 0 or more; 0 means that no request waits.
//
// On a Rate it counts the units that wait for their turn, up to 2^40. The default is the rate's
// n for LeakyBucket and 0 for TokenBucket; New rejects it on other algorithms. The last request
// in a full queue waits n divided by the rate, unless a WithMaxWait bounds the wait. The queue
// bounds Limiter.Wait, too.
//
// On a Concurrency or AdaptiveConcurrency it counts the requests that wait for a slot, for each
// key in this process. Each waits at most 5 seconds, or WithMaxWait. Without WithQueue no
// request waits, or, with a WithMaxWait, as many requests and Takes as the limit has slots.
// Limiter.Wait always waits, however many callers do, unless WithQueue sets a bound. A request
// that finds the queue full may replace another (see WithPriority).
func WithQueue(n int64) LimitOption {
	return ruleOption{ruleChange: onlyFor("WithQueue", func(r *compile.Rule) {
		queue := orNone(r, n, "WithQueue")
		if r.Kind.Traits().WaitsFor == limit.ForSlot {
			r.Line.Room = &n
			return
		}
		r.Spec.Queue = queue
	}, "Rate", "Concurrency", "AdaptiveConcurrency")}
}

// WithPriority sets the order in which requests get slots when some wait: class returns a class
// from 0 to 9, and a higher class goes first. Values outside 0–9 are clamped. Within a class,
// requests are served in order of arrival. By default, and outside HTTP, the class is that of
// the context (ContextWithPriority), or 0. class is called concurrently, once for each request
// that takes a slot.
//
// When the queue is full, a request replaces the last waiter of the lowest class, if that is
// below its own. The replaced request is denied like one that finds the queue full. A request
// of a low class may wait until its WithMaxWait ends; WithShare promises slots to a class.
//
// Priorities apply among waiters for the slots of one concurrency limit, for one key, in this
// process. Turns of a rate are served in order of arrival. New returns an error if class is
// nil, or if requests can wait only for turns: put a Concurrency in front of the rate.
func WithPriority(class func(*http.Request) int) Option {
	return checkedOption(class != nil, "WithPriority(nil)", "write a function, or leave it out if all requests are equal",
		func(c *config) { c.priority = class })
}

// WithShare promises a class of requests (WithPriority, ContextWithPriority) a percentage of a
// concurrency limit's slots. While the class holds less than its share, its requests rank above
// all others: they get the next slots, and places in a full queue. Unused share is lent to
// other classes and reclaimed as slots are released; requests are never interrupted. By default
// no class has a share. class is from 0 to 9 and percent from 1 to 100; give the option once
// for each class. New returns an error for other values, a second share for a class, shares
// that add up to more than 100, and shares of a limit for whose slots no request waits: with
// WithQueue(0), or without both WithQueue and WithMaxWait.
//
// The percentage applies to the slots that this process holds for the key, including the next,
// and is at least one slot. So shares hold in a fleet too, except for rounding: if a process
// holds only a few slots for a key, a small share is rounded up to one slot.
//
// When a class has used its share, its requests rank by class, a higher class first. Classes
// without a share get the slots that the shares leave: none, if the shares add up to 100 and
// are all used. An Update that adds a share applies to slots already taken and to requests that
// already wait.
func WithShare(class, percent int) SlotOption {
	return ruleOption{ruleChange: func(r *compile.Rule) {
		bad := func(problem, write string) {
			r.Errs.Add(fmt.Sprintf("WithShare(%d, %d)", class, percent), problem, write)
		}
		switch {
		case class < 0 || class >= slots.Classes:
			bad("", "write a class from 0 to 9")
			return
		case percent < 1 || percent > 100:
			bad("", "write a share of 1 to 100 percent")
			return
		}
		shares := r.Line.Shares
		if shares == nil {
			shares = new(slots.Shares)
			r.Line.Shares = shares
		}
		sum := percent
		for _, p := range shares {
			sum += int(p)
		}
		switch {
		case shares[class] != 0:
			bad("the class has a share already", "leave one out")
		case sum > 100:
			bad(fmt.Sprintf("the shares add up to %d percent", sum), "write at most 100 in total")
		default:
			shares[class] = uint8(percent)
		}
	}}
}

// ContextWithPriority returns a context whose requests, Takes and Waits have a class
// from 0 to 9; other values are clamped. A WithPriority of the limiter takes precedence
// for requests.
func ContextWithPriority(ctx context.Context, class int) context.Context {
	return read.WithPriority(ctx, class)
}

// Concurrency lets n requests of a key run at once. A request takes one slot, or as many as the
// limit's own WithCost returns; a WithCost of the limiter or the route doesn't apply. The
// default name is "concurrency". n is from 1 to 2^40; New returns an error for other numbers.
// It combines with every other kind of limit.
//
// A request that finds no free slot is denied, or waits if there is a WithQueue or WithMaxWait.
// The time until a slot comes free is unknown, so Decision.RetryAfter and the Retry-After field
// of a denial are 1 second. The slot is released when the handler returns or panics. A handler
// whose work goes on after it has returned calls Permit.Detach. A WithSettle of the limiter or
// the route doesn't apply.
func Concurrency(n int64, opts ...SlotOption) Limit {
	return newLimit(&compile.Rule{Kind: limit.Concurrent, Spec: store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}}, opts)
}

// AdaptiveConcurrency lets as many requests of a key (commonly Global) run at once as the
// service can handle, estimated from their latency. The limit rises while latency is as usual
// and at least half of the limit is in use, and falls when requests take longer or fail. It
// starts at 20 (WithInitialLimit) and stays between min and max. The default name is
// "adaptive".
//
// min is at least 1, and max from min to 1,000,000; New rejects other numbers. It combines with
// every other kind of limit. Requests may wait for its slots as for the slots of a Concurrency
// (WithQueue, WithMaxWait). A request that costs more than the current limit, but no more than
// max, is admitted when no other is in flight.
//
// The algorithms are those of Netflix's concurrency-limits
// (https://github.com/Netflix/concurrency-limits), with its numbers; see WithAdaptation. They
// measure the time from a request's admission, after any wait, to Permit.Done:
//
//   - A status of 500 or above is a drop, and so are a handler's panic and a request whose
//     deadline passed. The status is only known if the adapter passes on the writer of
//     Limiter.Admit.
//   - A request whose client left counts only if it has already taken longer than
//     others do.
//   - A request is ignored if its connection was hijacked or its permit detached, if an inner
//     limiter denied it, if it panics with http.ErrAbortHandler, or if it takes less than 100
//     µs, even if it fails.
//   - Outside HTTP (Take, Wait) the context is ignored: it may only have bounded the
//     wait.
//   - Permit.Drop and Permit.Ignore take precedence over all of this.
//
// The limit and its slots belong to this process, whatever the store, because each process has
// its own capacity. A slot is taken before the store decides the other limits, and released if
// one of them denies, so either all limits are charged or none. While the store is down, the
// limit continues to work. In Decision.Limits it comes after the store's limits, with the
// current limit as Capacity.
//
// A limiter and the limiters derived from it remember 10,000 keys without requests in flight,
// for all their adaptive limits together. Beyond that, the least recently used keys start anew.
// So do the keys of a limit that an Update has removed.
func AdaptiveConcurrency(min, max int64, opts ...SlotOption) Limit {
	c := &adaptive.Config{Min: min, Max: max, Window: adaptive.DefaultWindow}
	Gradient2(adaptive.DefaultTolerance).set(c)
	r := &compile.Rule{Kind: limit.Adaptive, Adaptive: c, Spec: store.Spec{Name: "adaptive", Algorithm: store.Concurrency, Units: max}}
	if min < 1 || max < min || max > mostAdaptive {
		r.Errs.Add(fmt.Sprintf("AdaptiveConcurrency(%d, %d)", min, max), "",
			fmt.Sprintf("write a min of 1 or more, and a max of no less, up to %d", mostAdaptive))
		r.Spec.Units = 1 // or the store's limit would be reported too
	}
	apply(r, opts)
	switch {
	case c.Start == 0:
		c.Start = adaptive.StartIn(min, max)
	case c.Start < min || c.Start > max:
		r.Errs.Add(fmt.Sprintf("WithInitialLimit(%d)", c.Start), "", fmt.Sprintf("write %d to %d, the range of the limit", min, max))
	}
	return Limit{r}
}

// mostAdaptive is the largest max: far more than a process has in flight.
const mostAdaptive = 1_000_000

// configures returns an option that sets part of the configuration, unless its argument is
// wrong.
func configures(valid bool, option, write string, set func(*adaptive.Config)) SlotOption {
	return checkedRuleOption(valid, option, write, func(r *compile.Rule) { set(r.Adaptive) }, "AdaptiveConcurrency")
}

// Adaptation is the algorithm by which an AdaptiveConcurrency follows the latency: Gradient2,
// Vegas or AIMD. Pass it to WithAdaptation. It is immutable and safe for concurrent use.
type Adaptation struct {
	set     func(*adaptive.Config) // nil if the arguments are wrong
	written string                 // with wrong arguments, and what to write instead
	write   string
}

// Gradient2 compares latency with its long-term average, and lowers the limit when latency
// exceeds tolerance times the average. It tolerates requests of mixed durations. Latency alone
// doesn't lower the limit below 8. The default of an AdaptiveConcurrency is Gradient2(1.5).
//
// tolerance is from 1 to 100; New rejects other values. With a tolerance of 1 and many requests
// of similar duration, the limit stays within a few requests of the number that the service can
// handle at once. With 1.5, the limit is about half above that number and rises further during
// a long overload, but requests of mixed durations aren't mistaken for overload.
func Gradient2(tolerance float64) Adaptation {
	return adaptation(tolerance >= 1 && tolerance <= 100, // NaN is neither
		fmt.Sprintf("Gradient2(%v)", tolerance), "write 1 or more, up to 100",
		func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.Gradient2, tolerance, 0 })
}

// Vegas estimates the queue from the smallest latency seen, and keeps it to a few requests.
// With many requests of similar duration, the limit stays close to the number that the service
// can handle at once. If durations vary at random, Vegas mistakes the variation for a queue and
// denies requests that the service could handle.
func Vegas() Adaptation {
	return adaptation(true, "Vegas()", "", func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.Vegas, 0, 0 })
}

// AIMD (additive increase, multiplicative decrease) raises the limit by one while requests take
// no longer than timeout, and cuts it by a tenth when one in twenty takes longer or fails. No
// request is interrupted. AIMD doesn't learn a baseline latency, so it never adapts to an
// overload, and processes in front of one service converge to equal limits. The service's queue
// may grow until requests take timeout.
//
// timeout is a millisecond or more; New rejects other values. Start with twice the duration of
// the slowest requests when nothing queues. If more than one request in twenty exceeds timeout
// even without a queue, the limit falls to its min.
func AIMD(timeout time.Duration) Adaptation {
	valid, write := engine.CheckDuration(timeout, timeout > 0, "write 1ms or more")
	return adaptation(valid, fmt.Sprintf("AIMD(%v)", timeout), write,
		func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.AIMD, 0, timeout })
}

func adaptation(valid bool, written, write string, set func(*adaptive.Config)) Adaptation {
	if valid {
		return Adaptation{set: set}
	}
	return Adaptation{written: written, write: write}
}

// WithAdaptation sets how an AdaptiveConcurrency follows the latency: Gradient2, Vegas
// or AIMD.
//
//	stint.WithAdaptation(stint.AIMD(150 * time.Millisecond))
//
// The default is Gradient2(1.5). New returns an error if the arguments of the Adaptation are
// out of range, and for the zero Adaptation.
func WithAdaptation(a Adaptation) SlotOption {
	written := cmp.Or(a.written, "WithAdaptation(Adaptation{})")
	write := cmp.Or(a.write, "write stint.Gradient2, stint.Vegas or stint.AIMD")
	return configures(a.set != nil, written, write, a.set)
}

// WithInitialLimit sets the limit at which an AdaptiveConcurrency starts, from its min to its
// max. The default is 20, or the nearer of min and max if 20 is out of range. New returns an
// error for other values.
func WithInitialLimit(n int64) SlotOption {
	return configures(n >= 1, fmt.Sprintf("WithInitialLimit(%d)", n), "write 1 or more",
		func(c *adaptive.Config) { c.Start = n })
}

// WithSampleWindow sets how long an AdaptiveConcurrency averages latency before it changes its
// limit. d is 100 ms or more. The default is a second. New returns an error for shorter
// windows. A window is extended until it has ten requests. Shorter windows react faster, and
// are more easily misled by random variation.
func WithSampleWindow(d time.Duration) SlotOption {
	valid, write := engine.CheckDuration(d, d >= 100*time.Millisecond, "write 100ms or more")
	return configures(valid, fmt.Sprintf("WithSampleWindow(%v)", d), write,
		func(c *adaptive.Config) { c.Window = d })
}

// Bandwidth paces the responses of a key (or its request bodies, or both: WithDirection)
// to a number of bytes per second, over all its connections and, with a shared
// store, all processes. The default name is "bandwidth".
//
//	stint.Bandwidth(1_000_000, stint.WithKey(stint.Header("X-API-Key"))) // 8 Mbit/s for each customer
//
// bytesPerSecond is from 1024 to 2^36 (64 GiB). New returns an error for other numbers, and for
// a WithBurst below 4096. A Bandwidth combines with every other kind of limit and with other
// Bandwidths. A WithCost, WithMaxWait or WithSettle of the limiter or the route doesn't apply
// to it.
//
// The first WithBurst bytes pass at full speed, so that pages and small answers aren't delayed.
// The default burst is a quarter of a second's worth, at least 16 KiB; a burst below a
// millisecond's worth counts as that. Beyond the burst, bytes are charged before they are
// written, in chunks of a sixteenth of a second's worth (at least 4 KiB, at most the burst). So
// a stream calls the store about 16 times a second, however small its writes. Streams of one
// key take turns, one chunk at a time.
//
// Bandwidth never denies a request: it makes the handler's writes, and reads of the
// body, take longer. That has these consequences:
//
//   - Bytes that have been charged are flushed before a pause. If the request's context ends
//     during a pause, the write returns the context's error, and an incomplete response is cut
//     off, so that no client mistakes it for a complete one.
//   - http.Server's WriteTimeout and ReadTimeout include pauses. Leave them 0 where responses
//     are long, or set deadlines by http.ResponseController. Deadlines, Flush, Hijack,
//     io.ReaderFrom and HTTP/2 work as usual: the kernel still sends a file, chunk by chunk, if
//     its Content-Length is set.
//   - Bytes that were charged but not sent, because the client left, are passed to other
//     waiting streams of this process, or refunded when the handler returns. If another process
//     has reserved turns behind them, the refund is up to a chunk smaller.
//   - A request's body is charged as it arrives, with one call for each read: a stream may be
//     ahead by one read of at most a chunk, and a client that stalls delays no other stream.
//   - Only bodies count. A response to HEAD and bytes written after a Hijack don't count.
//   - If the store fails, the response goes on unpaced, and the store is asked again after a
//     second. Under FailClosed the response is cut off, even if it hasn't begun.
//   - After a Limiter.Update, a stream keeps the limit it began with. If the numbers change, up
//     to a burst may be counted twice or not at all.
//   - Under several Bandwidths, a response is as slow as the slowest requires. A Bandwidth in
//     dry run neither delays writes nor changes their size.
//
// A paced handler holds its resources (memory, a slot of a Concurrency) longer: add a
// Concurrency to bound their number.
//
// A Bandwidth adds no header fields and is in no Decision. Allow, Take, Wait and Peek ignore
// it. Observers get an EventPaced when a response has ended.
func Bandwidth(bytesPerSecond int64, opts ...BandwidthOption) Limit {
	b := &read.Bytes{Responses: true}
	r := &compile.Rule{Kind: limit.Bandwidth, Bytes: b, Spec: store.Spec{Name: "bandwidth", Units: 1, Period: time.Second}}
	apply(r, opts)
	s := &r.Spec
	if bytesPerSecond < respond.Slowest || bytesPerSecond > respond.Fastest {
		r.Errs.Add(fmt.Sprintf("Bandwidth(%d)", bytesPerSecond), "",
			fmt.Sprintf("write bytes per second, %d to %d", respond.Slowest, respond.Fastest))
	}
	burst := s.Burst
	s.Burst = 0 // or the store's limit would report a wrong one too
	if burst != 0 && (burst < respond.LeastPiece || burst > store.MaxCost) {
		r.Errs.Add(fmt.Sprintf("WithBurst(%d)", max(burst, 0)),
			"smaller pieces of a response would each cost a call to the store",
			fmt.Sprintf("write %d or more, up to %d", respond.LeastPiece, int64(store.MaxCost)))
	}
	if len(r.Errs) == 0 {
		rate := respond.NewRate(bytesPerSecond, burst)
		s.Units, s.Period, s.Burst = rate.Units, rate.Period, rate.Burst
		b.Block, b.Piece = rate.Block, rate.Piece
	}
	return Limit{r}
}

// Direction selects the bodies that a Bandwidth counts: see WithDirection.
type Direction uint8

const (
	Responses Direction = iota // the default
	Requests
	Both // of one rate: uploads and downloads share it
)

// WithDirection sets whose bodies a Bandwidth counts: Responses (the default), Requests, or Both,
// which then share the rate. New rejects any other value.
func WithDirection(d Direction) BandwidthOption {
	return ruleOption{ruleChange: func(r *compile.Rule) {
		if d > Both {
			r.Errs.Add(fmt.Sprintf("WithDirection(%d)", d), "", "write stint.Responses, stint.Requests or stint.Both")
			return
		}
		r.Bytes.Responses, r.Bytes.Requests = d != Requests, d != Responses
	}}
}

// Ban denies all requests of a key for the time of WithBanFor, once other limits have denied
// the key n times within the period within. The ban holds in every process that shares the
// store. The default name is "ban".
//
//	stint.New(
//		stint.Rate(5, time.Minute),
//		stint.Ban(20, time.Minute, stint.WithBanFor(time.Hour)),
//		stint.WithKey(stint.RemoteIP()))
//
// n is from 1 to 1000, because the time of each denial is kept. within is a whole number of
// microseconds, at most two years. New returns an error for other numbers, if WithBanFor is
// missing, or if no other limit with the same key has denials that count: a Rate, a Quota, or a
// Concurrency without a queue.
//
// Denials by any limit in the same decision with the same key count. So no key is banned
// because the whole service is full (Global, AdaptiveConcurrency), or because it waited for a
// slot in vain. Denials by limits in dry run don't count. To count the denials of several
// routes together, use the same Limit in each.
//
// A banned request charges no other limit and doesn't prolong the ban. RetryAfter says when the
// ban ends, Limiter.Reset ends it, and the problem body has the type abnormal-usage-detected.
// With WithDryRun the ban itself only reports. The ban has no cost and no RateLimit fields. It
// is looked up in the same store call as the other limits. If a store in memory is full,
// denials of keys that it has no room for aren't counted.
func Ban(n int64, within time.Duration, opts ...BanOption) Limit {
	l := newLimit(&compile.Rule{Kind: limit.Banning, Spec: store.Spec{Name: "ban", Algorithm: store.Ban, Units: n, Period: within}}, opts)
	checkPeriod(l.rule)
	if l.rule.Spec.Ban == 0 {
		l.rule.Errs.Add("", "no time for which the ban lasts", "write stint.WithBanFor(time.Hour)")
		l.rule.Spec.Ban = time.Hour // or the store's limit would report it too
	}
	return l
}

// WithBanFor sets how long a Ban lasts. d is a whole number of microseconds, from a
// millisecond to a year; New rejects any other. Every Ban needs it.
func WithBanFor(d time.Duration) BanOption {
	return ruleOption{ruleChange: func(r *compile.Rule) {
		if r.Spec.Ban = d; lacksUnit(r, "WithBanFor", d) {
			r.Spec.Ban = time.Hour // or the store's limit may report it too
		}
	}}
}

// FailurePolicy is the treatment of requests that the store can't decide.
type FailurePolicy uint8

const (
	// FailOpen lets the request pass without RateLimit fields.
	FailOpen FailurePolicy = iota + 1
	// FailClosed answers 503 with a Retry-After.
	FailClosed
)

// WithFailurePolicy sets what happens to a request when the store fails. If the limits of a
// request have different policies, the strictest applies. The limiter's policy also applies
// when a source of limits fails (see SourceError): the request passes without these limits, or
// is answered with 503. The default is FailOpen. New returns an error for values other than
// FailOpen and FailClosed.
func WithFailurePolicy(p FailurePolicy) SharedOption {
	return checkedSetting(p == FailOpen || p == FailClosed, fmt.Sprintf("WithFailurePolicy(%d)", p), "write stint.FailOpen or stint.FailClosed",
		func(s *compile.Settings) { s.FailureSet, s.Closed = true, p == FailClosed })
}

// StoreError reports that the store failed. Requests get it under FailClosed; Permit.Settle
// always returns it.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "stint: store: " + e.Err.Error() }

// Unwrap returns the store's own error.
func (e *StoreError) Unwrap() error { return e.Err }

// StatusCode returns 503.
func (e *StoreError) StatusCode() int { return http.StatusServiceUnavailable }
