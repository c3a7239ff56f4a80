package stint

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// Limit is a rule: an algorithm, its numbers, and the key that it applies to. Make a Limit with
// Rate, Quota, Concurrency, AdaptiveConcurrency, Bandwidth or Ban. These functions never fail:
// New, Check, With and Update return an error for an invalid Limit. If a WithLimitFunc returns
// an invalid Limit, the request is denied.
//
// A Limit is immutable and safe for concurrent use. Several limiters and routes may use the
// same Limit. Within a limiter and the limiters derived from it, all uses of a Limit share one
// count.
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
		*errs = append(*errs, errZeroLimit)
	case exempt:
		errs.Add("Exempt()", "it has no effect outside a route or a limit function",
			"put it in a stint.WithRoute, or return it from a limit function")
	default:
		return true
	}
	return false
}

// exempt is the rule of Exempt.
var exempt = &compile.Rule{Spec: store.Spec{Name: "exempt"}}

// Algorithm is the algorithm by which a [Rate] or a [Quota] counts. See [WithAlgorithm].
type Algorithm = store.Algorithm

// The algorithms for [WithAlgorithm]. [WithWarmUp] selects one more. The constants of package
// store and docs/algorithms.md describe the algorithms.
const (
	TokenBucket    Algorithm = store.TokenBucket
	IntervalBucket Algorithm = store.IntervalBucket
	LeakyBucket    Algorithm = store.LeakyBucket
	FixedWindow    Algorithm = store.FixedWindow
	SlidingWindow  Algorithm = store.SlidingWindow
	SlidingCounter Algorithm = store.SlidingCounter
	SlidingLog     Algorithm = store.SlidingLog
)

// Window is a period of the calendar: Hourly, Daily, Weekly, Monthly, Yearly, or a window made by
// Every.
type Window = store.Window

// The calendar windows for Quota, in UTC. Daily.In(loc) is a day in a time zone, which has 23
// or 25 hours when clocks change. A week starts on Monday. Monthly.From(t) is a billing month that
// starts on the day of t. A key whose window is changed, also to another day, gets a fresh quota.
var (
	Hourly  Window = store.Hourly
	Daily   Window = store.Daily
	Weekly  Window = store.Weekly
	Monthly Window = store.Monthly
	Yearly  Window = store.Yearly
)

// Every returns the window of length d, aligned to the Unix epoch or to From. d is a multiple of a
// microsecond, from a millisecond to two years; New returns an error for any other.
func Every(d time.Duration) Window { return store.Every(d) }

// Rate lets n units pass per key and period. Up to n units may pass at once; WithBurst sets
// another number. A request costs 1 unit unless WithCost says otherwise. The default algorithm
// is a TokenBucket; WithAlgorithm sets another. The default name is "rate".
//
// n is from 1 to 2^40, and per is a whole number of microseconds, from a millisecond to two
// years. New returns an error for other numbers, and for options that the algorithm doesn't
// use. A Rate combines with every other kind of limit. To find out whether n is too low for
// your callers, use WithDryRun first.
//
// Some rates are rounded down, by less than 1 in 10,000, so that a state is one integer. Rates up
// to 14,272 per second, minute, hour or day are exact, and so are round numbers below ten million
// per second. New returns an error for rates above about 14 million per second. Time is counted in
// ticks of one microsecond, or of up to ten milliseconds (store.Limit.Tick): a request may pass up
// to one tick late, and in any span of time the units of one more tick may pass.
func Rate(n int64, per time.Duration, opts ...RateOption) Limit {
	l := newLimit(&compile.Rule{Kind: limit.Charged, Spec: store.Spec{Name: "rate", Units: n, Period: per}}, opts)
	checkPeriod(l.rule)
	if r := l.rule; r.Spec.WarmUp != 0 {
		if r.AlgorithmSet {
			r.Errs.Add("WithWarmUp", "%v doesn't warm up", "leave %v or %v out",
				r.Spec.Algorithm, "WithAlgorithm", "WithWarmUp")
		}
		r.Spec.Algorithm = store.WarmUp
	}
	return l
}

// Quota lets n units pass per key in each calendar window, such as Daily, or in each window of
// fixed length (Every). A request costs 1 unit unless WithCost says otherwise. The default
// algorithm is a FixedWindow; an IntervalBucket keeps unused units up to its burst. The default
// name is the name of the window ("hourly", "daily", "weekly", "monthly", "yearly"), or "quota"
// for Every.
//
// n is from 1 to 2^40. New returns an error for any other n, for the zero Window, for a time
// zone on a window made by Every, for From with the zero Time, and for any other algorithm.
//
// A key can use up a day's quota in the first second. Combine the quota with a Rate to prevent
// that.
func Quota(n int64, w Window, opts ...RateOption) Limit {
	name, _, _ := strings.Cut(w.String(), " ") // without a time zone
	if name == "every" || w == (Window{}) {
		name = "quota"
	}
	l := newLimit(&compile.Rule{Kind: limit.Charged, Quota: true,
		Spec: store.Spec{Name: name, Algorithm: FixedWindow, Units: n, Window: w}}, opts)
	if w == (Window{}) {
		l.rule.Errs.Add("", "the quota has no window",
			"use a window such as stint.Daily, stint.Monthly or stint.Every(6*time.Hour)")
		l.rule.Spec.Window = Daily // or the store's limit would report a missing period
	}
	return l
}

// checkPeriod reports a period that lacks its unit.
func checkPeriod(r *compile.Rule) {
	d := r.Spec.Period
	if valid, write := optionerror.CheckDuration(d, time.Millisecond, 0, "use 1ms or more"); !valid {
		r.Errs.Add("", fmt.Sprintf("a period of %v", d), write)
		r.Spec.Period = time.Second // or the store's limit may report it too
	}
}

func newLimit[O anyLimitOption](r *compile.Rule, opts []O) Limit {
	apply(r, opts)
	return Limit{r}
}

// WithBurst sets the number of units of a Rate or Quota that may pass at once, or the number of
// bytes of a [Bandwidth]. For a Rate or Quota, the meaning of n depends on the algorithm (WithAlgorithm):
//
//   - TokenBucket, IntervalBucket: n is the capacity of the bucket. The default is the number of
//     units of the Rate or Quota.
//   - LeakyBucket: n is the number of units beyond the rate that pass without delay. The default
//     is 0.
//   - TokenBucket with WithDebt: n is the number of units that an idle key saves up. The default
//     is the number of units in one second, as in Guava.
//
// n is from 0 to 2^40. New returns an error for other numbers, and for algorithms without a
// burst. New also returns an error for 0 on an IntervalBucket and on a TokenBucket without
// WithDebt, since nothing would pass.
func WithBurst(n int64) LimitOption {
	return ruleOption{ruleChange: onlyFor("WithBurst", func(r *compile.Rule) { r.Spec.Burst = orNone(r, n, "WithBurst") },
		"Rate", "Quota", "Bandwidth")}
}

// WithAlgorithm sets the algorithm of a Rate or Quota. By default, a Rate has TokenBucket and a
// Quota FixedWindow. a is any algorithm for a Rate, and FixedWindow or IntervalBucket for a
// Quota; New returns an error for any other combination. Instead of store.Concurrency, store.Ban
// and store.WarmUp, use stint.Concurrency, stint.Ban and stint.WithWarmUp.
func WithAlgorithm(a Algorithm) RateOption {
	valid, write := true, ""
	switch a {
	case store.Concurrency, store.Ban:
		valid, write = false, fmt.Sprintf("use stint.%v, which is a limit of its own", a)
	case store.WarmUp:
		valid, write = false, "use stint.WithWarmUp in a Rate"
	}
	return checkedRuleOption(valid, fmt.Sprintf("WithAlgorithm(%v)", a), write,
		func(r *compile.Rule) { r.Spec.Algorithm, r.AlgorithmSet = a, true })
}

// WithName sets the name of a limit in decisions, header fields, problem bodies, logs and the
// store. A name is a letter followed by up to 63 characters of A-Z a-z 0-9 _ . -; New returns an
// error for any other name. Names must be unique within a limiter and all limiters derived from
// it.
//
// The default name depends on the kind of limit, and has a number if the name is taken
// ("rate-2"). The number changes when limits are added before the limit. So if the limiter has a
// WithStore, each limit needs a WithName, also those that a WithLimitFunc returns: without a
// name, it is an error. A limit also needs a name if its counts must survive a Limiter.Update.
func WithName(name string) LimitOption {
	return ruleOption{ruleChange: func(r *compile.Rule) { r.Spec.Name, r.Named = name, true }}
}

// WithWarmUp makes a Rate start at a third of its rate and, while the Rate is in use, rise to
// the full rate within the time d. While the Rate is idle, it falls again. The curve is that of
// Guava's SmoothWarmingUp. By default a Rate has no warm-up. d is a positive multiple of a
// microsecond, at most two years. New returns an error for any other d, and if the limit also
// has a WithAlgorithm.
//
// Requests are spaced evenly, and an idle key saves up no units: without a WithMaxWait (or
// Limiter.Wait), a request that comes before its turn is denied.
func WithWarmUp(d time.Duration) RateOption {
	valid, write := optionerror.CheckDuration(d, time.Millisecond, 0,
		"use 1ms or more, the time that the rate takes to rise")
	return checkedRuleOption(valid, fmt.Sprintf("WithWarmUp(%v)", d), write,
		func(r *compile.Rule) { r.Spec.WarmUp = d }, "Rate")
}

// WithDebt lets a request pass if the bucket isn't in debt, even if the tokens don't cover its
// cost. The uncovered part is a debt, which delays the next request. By default the bucket must
// have tokens for a request's whole cost. Permit.Settle and WithSettle don't need WithDebt: an
// additional cost always becomes a debt.
//
// WithDebt also changes the default burst, so that requests are spaced: an idle key saves up
// the units of one second, not n units. At 1000 per minute, an idle key saves up 16 units; at 5
// per minute, none. WithBurst sets another number. WithDebt is for a Rate with a TokenBucket;
// New returns an error for other algorithms.
//
// While the bucket is in debt, a request waits up to WithMaxWait, or is denied. Remaining and
// the header fields show the units saved up, without the one request that may pass on credit:
// if they show 10, 11 requests may pass at once.
func WithDebt() RateOption {
	return ruleOption{ruleChange: onlyFor("WithDebt", func(r *compile.Rule) { r.Spec.Debt = true }, "Rate")}
}

// WithBuckets sets the number of buckets into which a SlidingWindow (WithAlgorithm) divides its period, from 1
// to 1000. With more buckets, the limit is more precise and takes more memory. The default is
// 10. New returns an error for other numbers, for more buckets than the period has microseconds,
// and for other algorithms. New also returns an error for buckets that can't be counted exactly,
// which happens only if the period isn't a multiple of 100 ms.
func WithBuckets(k int64) RateOption {
	return checkedRuleOption(k >= 1, fmt.Sprintf("WithBuckets(%d)", k), "use 1 to 1000",
		func(r *compile.Rule) { r.Spec.Buckets = k }, "Rate")
}

// WithMaxWait makes a request wait for its turn, instead of being denied, if the turn is
// expected within d. If the turn hasn't come after d, or by the deadline of the request's
// context, the request is denied. By default a request waits only for limits with a queue: a
// LeakyBucket, a Rate with WithQueue, and, for up to 5 seconds, a Concurrency with WithQueue. d
// is 1 ms or more; New returns an error for any other d.
//
// On a limit with a queue, d is the longest wait in the queue. On a Concurrency or
// AdaptiveConcurrency, the number of requests that may wait for each key is the number of
// slots, unless WithQueue sets another. Requests of one limit and key that wait in this process
// are served by class (WithPriority), and within a class in order of arrival; WithFairQueue serves
// them by tenant. A waiting request holds no slots and no units. A request that may not wait is
// denied while others wait. See docs/waiting.md.
//
// Keep d to a few seconds: an HTTP/1.1 server doesn't detect that a client has disconnected
// while the request's body is unread.
func WithMaxWait(d time.Duration) ChargeOption {
	valid, write := optionerror.CheckDuration(d, time.Millisecond, 0, "use 1ms or more, or leave it out for the default")
	return checkedSetting(valid, fmt.Sprintf("WithMaxWait(%v)", d), write,
		func(s *compile.Settings) { s.MaxWait = d })
}

// WithNearLimit announces that a key has nearly used up a rate or quota: observers get an
// EventNearLimit when a decision, an Extend or a Settle raises the key's use of the limit from
// below one of the percentages to that percentage or more. Each percentage is announced at most
// once in a period for each key and limit, in this process. By default nothing is announced.
//
//	stint.Quota(10_000, stint.Monthly, stint.WithNearLimit(80, 95))
//
// These rules say when a percentage is announced:
//
//   - The use is a percentage of LimitStatus.Capacity: of the burst of a bucket, or of n of a
//     window. On a TokenBucket with a queue, it is a percentage of the burst alone.
//   - The period is the window, or the per of a Rate. In a later period, a percentage is announced
//     again once the use has been below it.
//   - If a charge takes the use to several percentages, the event has the highest, and the lower
//     ones count as announced.
//   - Use that other processes have charged counts. So in a fleet, each process that serves the key
//     may announce a percentage: at its first charge of the key after the percentage is reached.
//   - A limit whose numbers change announces the percentages of the new numbers.
//   - A dry run announces, too: LimitStatus.DryRun of the event is set. A denied request charges
//     nothing and announces nothing.
//   - A request that has waited for a later window announces nothing. The next request in that
//     window announces what both have reached.
//
// A limiter and the limiters derived from it remember up to 100,000 keys that have reached a
// percentage, until their period is over. If there are more, further events are left out, and the
// log says how many for each limit.
//
// percent has one or more percentages from 1 to 100, in any order. New returns an error for other
// values and for an empty list, on a Concurrency or AdaptiveConcurrency, and on a limit that saves
// up no units: with WithWarmUp, or with WithDebt and a burst of 0. As a default of a limiter or route,
// WithNearLimit applies to its other rates and quotas.
func WithNearLimit(percent ...int) ChargeOption {
	all := slices.Compact(slices.Sorted(slices.Values(percent)))
	valid := len(all) > 0 && all[0] >= 1 && all[len(all)-1] <= 100
	written := "WithNearLimit(" + strings.ReplaceAll(strings.Trim(fmt.Sprint(percent), "[]"), " ", ", ") + ")"
	return unitsOption{checkedSetting(valid, written, "use percentages from 1 to 100, such as 80, 95",
		func(s *compile.Settings) { s.Marks = all })}
}

// WithQueue sets the length of the queue: the number of requests that may wait for each key in
// this process. In a fleet of P processes, P times n requests may wait. If the queue is full, a
// request is denied at once, unless it replaces a waiting request of a lower class (see
// WithPriority) or of a tenant with more requests (see WithFairQueue). n is 0 or more; with 0, no
// request waits.
//
// On a Rate, requests wait for their turn, and n is at most 2^40. For a LeakyBucket, the
// default is the number of units of the Rate. For a TokenBucket, the default is 0. New returns
// an error for a Rate with another algorithm. The last of n requests of cost 1 waits for n
// divided by the rate, unless WithMaxWait is shorter. The queue also bounds Limiter.Wait.
//
// On a Concurrency or AdaptiveConcurrency, requests wait for a slot, at most 5 seconds or
// WithMaxWait. For a Concurrency or AdaptiveConcurrency, the default is 0 or, with a
// WithMaxWait, the number of slots. Calls of Limiter.Wait always wait, unless WithQueue sets a
// bound.
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

// WithPriority sets the order in which waiting requests get turns and slots: class returns the
// class of a request, from 0 to 9, and higher classes are served first. Values outside 0–9 are
// clamped. Within a class, requests are served in order of arrival. By default, and outside
// HTTP, the class comes from the context (ContextWithPriority), or is 0. class is called
// concurrently, once for each request that takes a slot or has to wait.
//
// If the queue is full, a new request replaces the last waiting request of the lowest class, if
// that class is below its own. The replaced request is denied because the queue is full. A
// request of a low class may wait until its WithMaxWait ends. To reserve slots for a class, use
// WithShare. A Concurrency with WithFairQueue ignores classes.
//
// Priorities apply to requests that wait for the same limit and key in this process. New
// returns an error if class is nil.
func WithPriority(class func(*http.Request) int) Option {
	return checkedOption(class != nil, "WithPriority(nil)", "pass a function, or leave it out if all requests are equal",
		func(c *config) { c.priority = class })
}

// WithShare promises a class of requests (WithPriority, ContextWithPriority) a percentage of a
// concurrency limit's slots. While the class holds less than its share, its requests rank above
// all other requests: they get the next free slots, and replace other requests in a full queue.
// Unused share is lent to other classes and reclaimed as slots are released; requests are never
// interrupted. By default no class has a share. class is from 0 to 9 and percent from 1 to 100;
// pass the option once for each class. New returns an error for other values, for a second share
// of a class, for shares that add up to more than 100, on a limit with WithQueue(0), and on a
// limit of a route without WithQueue and WithMaxWait, since no request waits for the slots of such
// a limit. For other limits without WithQueue and WithMaxWait, only calls of Limiter.Wait wait.
//
// A share is a percentage of the slots that this process holds for the key, including the next
// slot. A share is at least one slot. So shares are kept across processes, except for rounding:
// if a process holds only a few slots for a key, a small share is rounded up to one slot.
//
// When a class has used its share, its requests rank by class, a higher class first. Classes
// without a share get the slots that remain. If the shares add up to 100 and are all used, no
// slots remain. A share that an Update adds also applies to slots already taken and to requests
// already waiting.
func WithShare(class, percent int) SlotOption {
	return ruleOption{ruleChange: func(r *compile.Rule) {
		bad := func(problem, write string) {
			r.Errs.Add(fmt.Sprintf("WithShare(%d, %d)", class, percent), problem, write)
		}
		switch {
		case class < 0 || class >= lines.Classes:
			bad("", "use a class from 0 to 9")
			return
		case percent < 1 || percent > 100:
			bad("", "use a share of 1 to 100 percent")
			return
		}
		shares := r.Line.Shares
		if shares == nil {
			shares = new(lines.Shares)
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
			bad(fmt.Sprintf("the shares add up to %d percent", sum), "use at most 100 in total")
		default:
			shares[class] = uint8(percent)
		}
	}}
}

// WithFairQueue divides the slots of a Concurrency fairly among tenants, however many requests
// each of them sends. key is the Key that identifies the tenant of a request. By default,
// waiting requests get slots by class and in order of arrival, so a tenant with more requests
// gets more slots.
//
//	stint.Concurrency(20, stint.WithQueue(20), stint.WithKey(stint.Global()),
//		stint.WithFairQueue(stint.Header("X-Tenant"))) // which the gateway sets
//
// A free slot goes to the tenant that holds the fewest slots in this process. If several
// tenants hold the fewest slots, the slot goes to the tenant that has waited longest for its
// next slot. Within a tenant, it goes to the oldest request. A tenant that is alone gets all
// slots, and no request is interrupted.
//
// If the queue is full, a new request replaces the newest request of the tenant that has the
// most requests, running and waiting, if that tenant has at least two more than the tenant of
// the new request. The replaced request is denied because the queue is full. A request that
// takes several slots (WithCost) counts as many. The class of a request (WithPriority) has no
// effect on this limit.
//
// Clients must not be able to make up the tenant, because a client with many names would be many
// tenants. Use what authentication has set. If the key is empty or an error, the request belongs
// to one tenant that all such requests share. Take and Wait use the key that they are given. key
// is called concurrently, at most once for each request.
//
// Tenants are compared among the requests of one key of the limit, which is commonly Global.
// Each process counts the slots that it holds itself, so a fleet is less fair than one process;
// see docs/waiting.md. If an Update adds a fair queue, requests that came before belong to no
// tenant.
//
// New returns an error for the zero Key and for a key that is the same for all requests, such as
// Global, on an AdaptiveConcurrency, together with WithShare, and on a limit without WithQueue and
// WithMaxWait, for which no request waits.
func WithFairQueue(key Key) SlotOption {
	k := key.described()
	return ruleOption{ruleChange: onlyFor("WithFairQueue", func(r *compile.Rule) {
		r.Line.Tenant = k
		r.Errs = append(r.Errs, k.Problems.Within("WithFairQueue")...)
	}, "Concurrency")}
}

// ContextWithPriority returns a context that sets the priority class of its requests, and of
// its calls of Allow, Take and Wait, for those that wait for a turn or a slot. class is clamped
// to 0–9. For requests, the limiter's [WithPriority] takes precedence.
func ContextWithPriority(ctx context.Context, class int) context.Context {
	return read.WithPriority(ctx, class)
}

// Concurrency lets n requests of a key run at once. A request takes one slot, or the number
// that the limit's own WithCost returns. A WithCost of the limiter or the route doesn't apply.
// The default name is "concurrency". n is from 1 to 2^40; New returns an error for other
// numbers. A Concurrency combines with every other kind of limit.
//
// If no slot is free, the request is denied, or waits if the limit has a WithQueue or
// WithMaxWait. Decision.RetryAfter and the Retry-After field of a denial are 1 second, because
// the time until a slot is released is unknown. The slot is released when the handler returns
// or panics. A handler whose work continues after it has returned calls Permit.Detach. A
// WithSettle of the limiter or the route doesn't apply.
func Concurrency(n int64, opts ...SlotOption) Limit {
	return newLimit(&compile.Rule{Kind: limit.Concurrent,
		Spec: store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}}, opts)
}

// AdaptiveConcurrency limits the requests of a key (commonly Global) that run at once to the
// number that the service can handle, which it estimates from their latency. The limit rises
// while latency is as usual and at least half of the limit is in use. The limit falls when
// requests take longer or fail. It starts at 20 (WithInitialLimit) and stays between min and
// max. The default name is "adaptive".
//
// min is at least 1, and max is from min to 1,000,000; New returns an error for other numbers.
// An AdaptiveConcurrency combines with every other kind of limit. WithQueue and WithMaxWait let
// requests wait for slots, as in a Concurrency. A request that costs more than the current
// limit, but no more than max, is admitted when no other is in flight.
//
// The algorithms are those of Netflix's concurrency-limits
// (https://github.com/Netflix/concurrency-limits), with its numbers; see WithAdaptation. The
// algorithms measure the time from a request's admission, after any wait, to Permit.Done:
//
//   - A request counts as dropped if its status is 500 or above, its handler panics, or its
//     deadline passes. The status is known only if the adapter passes on the writer of
//     Limiter.Admit.
//   - A request whose client disconnects is measured only if it has already taken longer than
//     usual.
//   - A request isn't measured if its connection is hijacked, its permit is detached, an inner
//     limiter denies it, its handler panics with http.ErrAbortHandler, or it takes less than
//     100 µs.
//   - Outside HTTP (Take, Wait), the end of the context isn't counted, because the context may
//     be meant for the wait only.
//   - Permit.Drop and Permit.Ignore take precedence over these rules.
//
// The limit and its slots belong to this process even if the store is shared, because each
// process has its own capacity. A slot is taken before the store decides the other limits, and
// released if one of them denies, so either all limits are charged or none. While the store is
// down, the limit continues to work. In Decision.Limits, an AdaptiveConcurrency comes after the
// limits of the store. LimitStatus.Capacity is its current limit.
//
// A limiter and the limiters derived from it store the state of up to 10,000 keys without
// requests in flight, for all their adaptive limits together. If there are more, the states of
// the least recently used keys are dropped. An Update that removes a limit drops all its
// states.
func AdaptiveConcurrency(min, max int64, opts ...SlotOption) Limit {
	c := &adaptive.Config{Min: min, Max: max, Window: adaptive.DefaultWindow}
	Gradient2(adaptive.DefaultTolerance).set(c)
	r := &compile.Rule{Kind: limit.Adaptive, Adaptive: c,
		Spec: store.Spec{Name: "adaptive", Algorithm: store.Concurrency, Units: max}}
	if !validRange(c) {
		r.Errs.Add(fmt.Sprintf("AdaptiveConcurrency(%d, %d)", min, max), "",
			fmt.Sprintf("use a min of 1 or more, and a max from min to %d", mostAdaptive))
		r.Spec.Units = 1 // or the store's limit would be reported too
	}
	apply(r, opts)
	if c.Start == 0 {
		c.Start = adaptive.StartIn(min, max)
	}
	return Limit{r}
}

// validRange reports whether a min and a max can be those of an AdaptiveConcurrency.
func validRange(c *adaptive.Config) bool {
	return 1 <= c.Min && c.Min <= c.Max && c.Max <= mostAdaptive
}

// mostAdaptive is the largest max: far more than a process has in flight.
const mostAdaptive = 1_000_000

// configures returns an option that sets part of the configuration, unless its argument is
// wrong.
func configures(valid bool, option, write string, set func(*adaptive.Config)) SlotOption {
	return checkedRuleOption(valid, option, write, func(r *compile.Rule) { set(r.Adaptive) }, "AdaptiveConcurrency")
}

// Adaptation is the algorithm by which an AdaptiveConcurrency adapts its limit to latency:
// Gradient2, Vegas or AIMD. Pass an Adaptation to WithAdaptation. It is immutable and safe for
// concurrent use.
type Adaptation struct {
	set     func(*adaptive.Config) // nil if the arguments are wrong
	written string                 // with wrong arguments, and what to write instead
	write   string
}

// Gradient2 compares latency with its long-term average, and lowers the limit when latency
// exceeds tolerance times the average. It tolerates requests of mixed durations. Latency alone
// doesn't lower the limit below 8. The default of an AdaptiveConcurrency is Gradient2(1.5).
//
// tolerance is from 1 to 100; New returns an error for other values. With a tolerance of 1 and
// many requests of similar duration, the limit stays within a few requests of the number that
// the service can handle at once. With a tolerance of 1.5, the limit is about 1.5 times that
// number, and rises further during a long overload. In return, requests of mixed durations
// aren't mistaken for an overload.
func Gradient2(tolerance float64) Adaptation {
	return adaptation(tolerance >= 1 && tolerance <= 100, // NaN is neither
		fmt.Sprintf("Gradient2(%v)", tolerance), "use 1 to 100",
		func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.Gradient2, tolerance, 0 })
}

// Vegas estimates the service's queue by comparing latency with the smallest latency measured.
// It keeps the queue to a few requests. With many requests of similar duration, the limit stays
// close to the number that the service can handle at once. If durations vary at random, Vegas
// mistakes the variation for a queue and denies requests that the service could handle.
func Vegas() Adaptation {
	return adaptation(true, "Vegas()", "",
		func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.Vegas, 0, 0 })
}

// AIMD (additive increase, multiplicative decrease) raises the limit by one while requests take
// no longer than timeout. It cuts the limit by a tenth when one request in twenty takes longer
// or fails. No request is interrupted. AIMD learns no baseline latency, so a long overload
// doesn't raise its threshold. Processes in front of one service converge to equal limits. The
// service's queue may grow until requests take as long as timeout.
//
// timeout is a millisecond or more; New returns an error for other values. Use twice the time in
// which 95 % of the requests end without a queue. If more than one request in twenty exceeds
// timeout even without a queue, the limit falls to its minimum.
func AIMD(timeout time.Duration) Adaptation {
	valid, write := optionerror.CheckDuration(timeout, time.Millisecond, 0, "use 1ms or more")
	return adaptation(valid, fmt.Sprintf("AIMD(%v)", timeout), write,
		func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.AIMD, 0, timeout })
}

func adaptation(valid bool, written, write string, set func(*adaptive.Config)) Adaptation {
	if valid {
		return Adaptation{set: set}
	}
	return Adaptation{written: written, write: write}
}

// WithAdaptation sets the algorithm by which an AdaptiveConcurrency adapts its limit to
// latency: Gradient2, Vegas or AIMD.
//
//	stint.WithAdaptation(stint.AIMD(150 * time.Millisecond))
//
// The default is Gradient2(1.5). New returns an error for the zero Adaptation, or if an
// argument of the Adaptation is out of range.
func WithAdaptation(a Adaptation) SlotOption {
	written := cmp.Or(a.written, "WithAdaptation(Adaptation{})")
	write := cmp.Or(a.write, "use stint.Gradient2, stint.Vegas or stint.AIMD")
	return configures(a.set != nil, written, write, a.set)
}

// WithInitialLimit sets the limit at which an AdaptiveConcurrency starts. n is from min to max
// of the AdaptiveConcurrency. The default is 20, or the nearer of min and max if 20 is out of
// range. New returns an error for other values.
func WithInitialLimit(n int64) SlotOption {
	return ruleOption{ruleChange: onlyFor("WithInitialLimit", func(r *compile.Rule) {
		c := r.Adaptive
		if c.Start = n; validRange(c) && (n < c.Min || n > c.Max) {
			r.Errs.Add(fmt.Sprintf("WithInitialLimit(%d)", n), "",
				fmt.Sprintf("use %d to %d, the range of the limit", c.Min, c.Max))
		}
	}, "AdaptiveConcurrency")}
}

// WithSampleWindow sets how long an AdaptiveConcurrency averages latency before it changes its
// limit. d is 100 ms or more. The default is a second. New returns an error for shorter
// windows. A window is extended until it has ten requests. With a shorter window, the limit
// reacts faster, but also to random variation.
func WithSampleWindow(d time.Duration) SlotOption {
	valid, write := optionerror.CheckDuration(d, 100*time.Millisecond, 0, "use 100ms or more")
	return configures(valid, fmt.Sprintf("WithSampleWindow(%v)", d), write,
		func(c *adaptive.Config) { c.Window = d })
}

// Bandwidth limits the responses of a key to a number of bytes per second, over all connections
// and, with a shared store, all processes. WithDirection selects request bodies instead, or
// both. The default name is "bandwidth".
//
//	stint.Bandwidth(1_000_000, stint.WithKey(stint.Header("X-API-Key"))) // 8 Mbit/s for each customer
//
// bytesPerSecond is from 1024 to 2^36 (64 GiB). New returns an error for other numbers, for a
// WithBurst below 4096, and for the key GivenKey. A Bandwidth combines with every other kind of limit and with other
// Bandwidths. A WithCost, WithMaxWait or WithSettle of the limiter or the route doesn't apply
// to it.
//
// The first WithBurst bytes pass at full speed, so that pages and small responses aren't
// delayed. The default burst is the number of bytes in a quarter of a second, at least 16 KiB.
// The smallest burst is the number of bytes in a millisecond. Beyond the burst, bytes are
// charged before they are written, in chunks of the bytes in a sixteenth of a second (at least
// 4 KiB, at most the burst). So a stream calls the store about 16 times a second, even if its
// writes are small. Streams of one key wait in one line in each process, one chunk at a time.
//
// Bandwidth never denies a request. It makes the handler's writes to the response, and its
// reads of the request body, take longer. The consequences are:
//
//   - Bytes that have been charged are flushed before a pause. If the request's context ends
//     during a pause, the write returns the context's error, and an incomplete response is cut
//     off, so that no client mistakes it for a complete one.
//   - http.Server's WriteTimeout and ReadTimeout include pauses. Leave these timeouts 0 if
//     responses are long, or set deadlines by http.ResponseController. Deadlines, Flush,
//     Hijack, io.ReaderFrom and HTTP/2 work as usual: a file is still sent by the kernel, chunk
//     by chunk, if the response has a Content-Length.
//   - Bytes that were charged but not sent, because the client disconnected, go to the next
//     waiting stream of this process if they suffice for its chunk. Otherwise they are refunded
//     when the handler returns, except while turns are reserved for waiting streams. A stream
//     that leaves while it waits loses at most the chunk that it waits for.
//   - A request's body is charged as it arrives, with one store call for each read. So a stream
//     may exceed the rate by one read, which is at most a chunk. A client that stalls delays no
//     other stream.
//   - Only bodies count. A response to HEAD and bytes written after a Hijack don't count.
//   - If the store fails, the response continues at full speed, and the store is called again
//     after a second. Under FailClosed the response is cut off, even if no byte has been
//     written.
//   - After a Limiter.Update, a stream keeps the limit that it began with. If the limit's
//     numbers change, up to a burst of bytes may be counted twice or not at all.
//   - If several Bandwidths apply to a response, the slowest decides. A Bandwidth in dry run
//     neither delays writes nor changes their size.
//
// A slowed handler holds memory and other resources longer: add a Concurrency to bound the
// number of such handlers.
//
// A Bandwidth adds no header fields and isn't part of a Decision. Allow, Take, Wait and Peek
// ignore Bandwidths. Observers get an EventPaced when a response has ended.
func Bandwidth(bytesPerSecond int64, opts ...BandwidthOption) Limit {
	b := &read.Bytes{Responses: true}
	r := &compile.Rule{Kind: limit.Bandwidth, Bytes: b, Spec: store.Spec{Name: "bandwidth", Units: 1, Period: time.Second}}
	apply(r, opts)
	s := &r.Spec
	if bytesPerSecond < respond.Slowest || bytesPerSecond > respond.Fastest {
		r.Errs.Add(fmt.Sprintf("Bandwidth(%d)", bytesPerSecond), "",
			fmt.Sprintf("use %d to %d bytes per second", respond.Slowest, respond.Fastest))
	}
	burst := s.Burst
	s.Burst = 0 // or the store's limit would report a wrong one too
	if burst != 0 && (burst < respond.LeastPiece || burst > store.MaxCost) {
		var problem string
		if burst < respond.LeastPiece {
			problem = "a burst this small splits a body into many chunks, and each costs a call of the store"
		}
		r.Errs.Add(fmt.Sprintf("WithBurst(%d)", max(burst, 0)), problem,
			fmt.Sprintf("use %d to %d", respond.LeastPiece, int64(store.MaxCost)))
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

// WithDirection sets which bodies a [Bandwidth] counts: [Responses], [Requests], or [Both]. The
// default is Responses. With Both, requests and responses share the rate. New returns an error
// for any other value.
func WithDirection(d Direction) BandwidthOption {
	return ruleOption{ruleChange: func(r *compile.Rule) {
		if d > Both {
			r.Errs.Add(fmt.Sprintf("WithDirection(%d)", d), "", "use stint.Responses, stint.Requests or stint.Both")
			return
		}
		r.Bytes.Responses, r.Bytes.Requests = d != Requests, d != Responses
	}}
}

// Ban denies all requests of a key once rates and quotas have denied the key n times within the
// period within. The ban lasts for the time of WithBanFor, and applies in every process that
// shares the store. The default name is "ban".
//
//	stint.New(
//		stint.Rate(5, time.Minute),
//		stint.Ban(20, time.Minute, stint.WithBanFor(time.Hour)),
//		stint.WithKey(stint.RemoteIP()))
//
// n is from 1 to 1000, because the store keeps the time of each denial. within is a whole
// number of microseconds, at most two years. New returns an error for other numbers, or if
// WithBanFor is missing. It also returns an error if the limiter has no Rate or Quota with the
// same key.
//
// A denied request is counted once, if a Rate or Quota with the same key denies it in the same
// decision, or at the end of its wait. Denials by a Concurrency or AdaptiveConcurrency aren't
// counted: a client that obeys their Retry-After of a second must not be banned. To ban clients
// that flood the service with connections, put a Rate beside the Concurrency. Also not counted
// are denials by limits in dry run, requests of cost 0, and waits that end in a denial because
// the caller's context has a deadline. To count the denials of several routes together, use the
// same Limit in each route.
//
// A request during a ban charges no other limit and doesn't prolong the ban. RetryAfter is the
// time until the ban ends. Limiter.Reset ends the ban early. The problem body has the type
// abnormal-usage-detected. With WithDryRun, a ban is reported but not enforced. A Ban has no
// cost and no RateLimit fields, and needs no store call of its own, except to count a wait that
// ends in a denial. If a store in memory is full, it doesn't count denials of new keys.
func Ban(n int64, within time.Duration, opts ...BanOption) Limit {
	l := newLimit(&compile.Rule{Kind: limit.Banning,
		Spec: store.Spec{Name: "ban", Algorithm: store.Ban, Units: n, Period: within}}, opts)
	checkPeriod(l.rule)
	if l.rule.Spec.Ban == 0 {
		l.rule.Errs.Add("", "the ban has no duration", "add stint.WithBanFor, such as stint.WithBanFor(time.Hour)")
		l.rule.Spec.Ban = time.Hour // or the store's limit would report it too
	}
	return l
}

// WithBanFor sets how long a Ban lasts. Every Ban needs this option. d is a whole number of
// microseconds, from a millisecond to a year; New returns an error for any other d.
func WithBanFor(d time.Duration) BanOption {
	return ruleOption{ruleChange: func(r *compile.Rule) {
		r.Spec.Ban = d
		const year = 365 * 24 * time.Hour
		if valid, write := optionerror.CheckDuration(d, time.Millisecond, year, "use 1ms to 8760h, which is a year"); !valid {
			r.Errs.Add(fmt.Sprintf("WithBanFor(%v)", d), "", write)
			r.Spec.Ban = time.Hour // or the store's limit may report it too
		}
	}}
}
