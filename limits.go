package stint

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Limit is a rule: an algorithm, its numbers, and who it applies to. Make one with
// Rate, Quota, Concurrency, AdaptiveConcurrency, Bandwidth or Ban. These report nothing
// themselves: mistakes are reported by the New, With, Update or Limit.Check that gets
// the Limit, or refuse the request if a WithLimitFunc returns it.
//
// A Limit is immutable and safe for concurrent use, and several limiters and routes may
// use it. Within one limiter and those derived from it, it is the same limit wherever
// it is used.
type Limit struct{ rule *rule }

// Algorithm says how a Rate or a Quota counts. See WithAlgorithm.
type Algorithm = store.Algorithm

// The algorithms of WithAlgorithm. See the constants of package store for what each
// does, and docs/algorithms.md for the rules.
const (
	TokenBucket    = store.TokenBucket
	IntervalBucket = store.IntervalBucket
	LeakyBucket    = store.LeakyBucket
	FixedWindow    = store.FixedWindow
	SlidingWindow  = store.SlidingWindow
	SlidingCounter = store.SlidingCounter
	SlidingLog     = store.SlidingLog
	WarmUp         = store.WarmUp
)

// Never is the RetryAfter of a cost that can't pass however long the caller waits.
const Never = store.Never

// Window is a span of the calendar: Hourly, Daily, Weekly, Monthly, or one made by
// Every.
type Window = store.Window

// The calendar windows of Quota, in UTC. Daily.In(loc) is the day of a time zone, 23 or
// 25 hours long when its clocks change. A week starts on Monday.
var (
	Hourly  = store.Hourly
	Daily   = store.Daily
	Weekly  = store.Weekly
	Monthly = store.Monthly
)

// Every returns the window of length d, aligned to the Unix epoch. d is a multiple of a
// microsecond, at most two years; New refuses any other.
func Every(d time.Duration) Window { return store.Every(d) }

// Rate limits a key to n units per period. A request costs 1 unit unless WithCost says
// otherwise. By default it is a TokenBucket that holds n units: n pass at once, and n
// per period from then on. Other algorithms are set by WithAlgorithm. The default name
// is "rate".
//
// n is from 1 to 2^40, and per is a whole number of microseconds, at most two years.
// New refuses other numbers, and options that the algorithm doesn't use. A Rate
// combines with every other kind of limit.
//
// Every such rate is counted exactly, in ticks of a microsecond, or of up to a
// millisecond where one integer can hold its state that way (store.Limit.Tick). A
// request may pass up to a tick earlier or later than n per period says.
func Rate(n int64, per time.Duration, opts ...RateOption) Limit {
	l := newLimit(&charged{}, store.Spec{Name: "rate", Units: n, Period: per}, opts)
	if l.rule.spec.WarmUp != 0 && !l.rule.algSet {
		l.rule.spec.Algorithm = WarmUp
	}
	return l
}

// Quota limits a key to n units per calendar window, such as Daily, or per window of
// fixed length (Every). A request costs 1 unit unless WithCost says otherwise. By
// default it is a FixedWindow; the other algorithm with windows is IntervalBucket. The
// default name is that of the window ("hourly", "daily", "weekly", "monthly"), or
// "quota" for Every.
//
// n is from 1 to 2^40. New refuses other numbers, the zero Window, a time zone on a
// window made by Every, and other algorithms.
//
// A key can use up a day's quota in its first second. Combine the quota with a Rate to
// prevent that.
func Quota(n int64, w Window, opts ...QuotaOption) Limit {
	name := "quota"
	switch w.In(nil) {
	case Hourly, Daily, Weekly, Monthly:
		name = w.In(nil).String()
	}
	l := newLimit(&charged{}, store.Spec{Name: name, Algorithm: FixedWindow, Units: n, Window: w}, opts)
	if w == (Window{}) {
		l.rule.errs.Bad("", "no window", "write stint.Daily, another of the calendar, or stint.Every")
		l.rule.spec.Window = Daily // or the store's limit would report a missing period
	}
	return l
}

// Ban refuses everything to a key for d, once other limits have refused it n times
// within a period of within. It holds in every process that shares the store. The
// default name is "ban".
//
//	stint.New(
//		stint.Rate(5, time.Minute),
//		stint.Ban(20, time.Minute, time.Hour),
//		stint.WithKey(stint.RemoteIP()))
//
// n is from 1 to 1000, because the time of each refusal is kept. within is a whole
// number of microseconds, at most two years; d likewise, at most one year. New refuses
// other numbers, and a Ban without a limit beside it whose refusals count: a Rate, a
// Quota, or a Concurrency that nobody waits for.
//
// Refusals by any limit in the same decision with the same key count. So nobody is
// banned because the whole service is full (Global, AdaptiveConcurrency), nor for
// having waited for a slot in vain. Refusals by limits in dry run don't count. To count
// what several routes refuse, give the same Limit to each.
//
// A banned request charges no other limit and doesn't prolong the ban. RetryAfter says
// when the ban ends, Limiter.Reset ends it, and the problem body has the type
// abnormal-usage-detected. With WithDryRun the ban itself only reports. The ban has no
// cost and no RateLimit fields; other requests pay for looking it up beside their
// limits, in the same call. If a store in memory is full, refusals of keys without a
// place aren't counted.
func Ban(n int64, within, d time.Duration, opts ...BanOption) Limit {
	return newLimit(&ban{}, store.Spec{Name: "ban", Algorithm: store.Ban, Units: n, Period: within, Ban: d}, opts)
}

func newLimit[O optionOf](k kind, spec store.Spec, opts []O) Limit {
	r := &rule{kind: k, spec: spec}
	apply(r, opts)
	return Limit{r}
}

// CheckLimits returns what is wrong with limits that a WithLimitFunc is going to return
// together, or nil. Use it to reject limits from elsewhere when they are read. It reports
// the zero Limit, wrong numbers and options, a name that two limits have, and a missing
// WithName, since counts are kept under the name. The error is made by errors.Join and
// holds an *OptionError for each problem.
func CheckLimits(limits ...Limit) error { return joined(wrongTogether(limits)) }

func wrongTogether(limits []Limit) (all mistake.List) {
	names := make(map[string]bool, len(limits))
	for _, l := range limits {
		if l.rule == nil {
			all = append(all, errZeroLimit)
			continue
		}
		name := l.rule.spec.Name
		_, wrong := l.rule.compileOnce()
		switch {
		case wrong != nil:
		case !l.rule.named:
			wrong = mistake.List{{Limit: name,
				Problem: "a default name, and what a key has consumed goes by the name", Write: "write stint.WithName"}}
		case names[name]:
			wrong = mistake.List{errNamesake("", name)}
		}
		names[name] = true
		all = append(all, wrong...)
	}
	return all
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
// n is from 0 to 2^40. New refuses other numbers, 0 on a bucket without debt (nothing
// would pass), and algorithms without a burst.
func WithBurst(n int64) BurstOption {
	return changeOption{change: func(r *rule) { r.spec.Burst = r.orNone(n, "WithBurst") }}
}

// WithAlgorithm sets how a limit counts. A Rate takes every algorithm; the default is
// TokenBucket. A Quota takes FixedWindow, the default, and IntervalBucket. New refuses
// any other combination. store.Concurrency and store.Ban are limits of their own: write
// stint.Concurrency or stint.Ban.
func WithAlgorithm(a Algorithm) AlgorithmOption {
	return checkedChange(a != store.Concurrency && a != store.Ban,
		fmt.Sprintf("WithAlgorithm(%v)", a), fmt.Sprintf("write stint.%v, which is a limit of its own", a),
		func(r *rule) { r.spec.Algorithm, r.algSet = a, true })
}

// WithName names a limit in answers, header fields, problem bodies, logs and the store.
// A name is a letter followed by up to 63 of A-Z a-z 0-9 _ . -; New refuses any other.
// Names must be unique within a limiter and all limiters derived from it.
//
// The default is a name for the kind of limit, with a number if that is taken
// ("rate-2"). The number changes when limits are added before it. So every limit needs
// a WithName if the limiter has a WithStore (New refuses it otherwise), if a
// WithLimitFunc returns it, and if a Limiter.Update shall find it again.
func WithName(name string) LimitOption {
	return changeOption{change: func(r *rule) { r.spec.Name, r.named = name, true }}
}

// WithWarmUp makes a Rate start at a third of its rate and rise to n per period while
// it is used for d. When idle it cools down again. It implies the WarmUp algorithm; the
// curve is that of Guava's SmoothWarmingUp. d is a positive multiple of a microsecond,
// at most two years. New refuses any other, and another algorithm beside it.
//
// Requests are spaced out, not saved up: without a WithMaxWait (or Limiter.Wait), a
// request that comes before its turn is refused.
func WithWarmUp(d time.Duration) RateOption {
	return checkedChange(d > 0, fmt.Sprintf("WithWarmUp(%v)", d), "write how long the rate takes to rise, such as 4*time.Second",
		func(r *rule) { r.spec.WarmUp = d })
}

// WithDebt lets a request pass as soon as earlier requests are paid for; the part of
// its own cost that isn't covered is paid by the next. By default a request's whole
// cost must be available. Permit.Settle and WithSettle don't need WithDebt: what a
// request costs beyond its charge is owed in any case.
//
// It spaces requests: an idle key saves up one second's worth of the rate, not n units.
// At 1000 per minute that is 16 at once; at 5 per minute, none. Set WithBurst for more.
// It is for a Rate in a TokenBucket; New refuses it on other algorithms.
//
// While earlier requests aren't paid for, a request waits up to WithMaxWait, or is
// refused. Remaining and the header fields count what has been saved up, without the
// one request that passes on credit: 11 pass at once where they say 10.
func WithDebt() RateOption {
	return changeOption{change: func(r *rule) { r.spec.Debt = true }}
}

// WithBuckets sets how many buckets a SlidingWindow is cut into, from 1 to 1000. More
// buckets forget sooner and cost more memory. The default is 10. New refuses other
// numbers, more buckets than the period has microseconds, and other algorithms.
func WithBuckets(k int64) RateOption {
	return checkedChange(k >= 1, fmt.Sprintf("WithBuckets(%d)", k), "write 1 or more",
		func(r *rule) { r.spec.Buckets = k })
}

// kind is what distinguishes limits of one kind. Each kind is a type in the file of its
// limit's constructor, and the flow of a request names none of them. It asks the kind,
// or, where a plain request would ask for nothing, looks at the needs that the kind has
// set.
type kind interface {
	// enter completes the entry of a limit of this kind: it removes settings that don't
	// apply to the kind, and sets what its requests need.
	enter(e *entry)
	// decided marks the limit as one that something other than the limiter's store
	// decides, or returns it unchanged.
	decided(l *store.Limit, all *adaptive.Keys) *store.Limit
	// same reports whether l, a limit with the same numbers, also has the same rule
	// beside them.
	same(l *store.Limit) bool
	// says describes a limit with these numbers by everything that its counting depends on.
	says(s store.Spec) string
	// lacks returns what such a limit needs beside it and doesn't have, among all
	// limits of a plan; nil if nothing is missing.
	lacks(e *entry, beside []*entry) *mistake.Mistake
	// counted reports whether refusals by the limit count for a ban.
	counted(e *entry) bool

	// repeated reports whether an inner limiter charges the limit again.
	repeated() bool
	// stood returns how many units the limit had in a decision, and why.
	stood(c *store.Charge, r *store.Result) (quota int64, why AdaptiveReason)
	// binds reports whether what is left of the limit says how many requests may still
	// pass.
	binds() bool
	// free reports whether a request would pass, according to the answer to a charge of
	// cost 0.
	free(r *store.Result) bool
	// refusal returns what the limit's refusal of a charge means.
	refusal(c *store.Charge) refusal
	// unsettled returns why Permit.Settle doesn't apply to the limit, or "" if it does.
	unsettled() string
}

// needs are what a limit's requests need beyond being admitted or refused at once.
type needs uint8

const (
	waits    needs = 1 << iota // may have to wait, for a turn or a slot
	slots                      // take slots, which others may wait for
	local                      // are decided in this process, whatever the store
	counts                     // have their refusals counted
	paces                      // are charged for bytes as they move, and for nothing before
	watches                    // have their response observed
	releases                   // leave something to do when they end
)

// charged is the kind of Rate and Quota, which charge a request and keep the charge.
// Other kinds embed it and override what differs.
type charged struct{}

func (*charged) enter(e *entry) {
	if e.wait.Queues = e.limit.Spec().Queue > 0; e.wait.Queues || e.wait.MaxWait > 0 {
		e.needs |= waits
	}
	if e.settle != nil {
		e.needs, e.watch = e.needs|watches|releases, e.settle.watch
	}
	if !e.dryRun {
		e.said = said(e.limit)
	}
}

func (*charged) decided(l *store.Limit, _ *adaptive.Keys) *store.Limit { return l }
func (*charged) same(l *store.Limit) bool                              { return l.Decider() == nil }
func (*charged) says(s store.Spec) string                              { return namesakes.Says(s) }
func (*charged) lacks(*entry, []*entry) *mistake.Mistake               { return nil }
func (*charged) counted(*entry) bool                                   { return true }
func (*charged) repeated() bool                                        { return false }
func (*charged) binds() bool                                           { return true }
func (*charged) refusal(*store.Charge) refusal                         { return quotaExceeded }
func (*charged) unsettled() string                                     { return "" }

func (*charged) stood(c *store.Charge, _ *store.Result) (int64, AdaptiveReason) {
	return c.Limit.Spec().Units, NotAdaptive
}

// A limit with debt may let a charge pass without having a whole unit.
func (*charged) free(r *store.Result) bool { return r.Remaining > 0 || r.ResetAfter == 0 }

// ban is the kind of Ban: it charges nothing and counts what other limits refuse.
type ban struct{ charged }

func (*ban) enter(e *entry) {
	e.cost, e.settle = nil, nil // the limiter's, which don't apply
	e.wait = waiting.Terms{Way: waiting.ForNothing}
	e.needs = counts
}

// repeated: a ban also counts refusals by inner limiters.
func (*ban) repeated() bool                { return true }
func (*ban) counted(*entry) bool           { return false }
func (*ban) binds() bool                   { return false } // how many refusals are left isn't how many requests are
func (*ban) refusal(*store.Charge) refusal { return abnormalUsage }
func (*ban) unsettled() string             { return "a ban, which charges nothing" }

// lacks: a ban needs a limit whose refusals it counts. A limit in dry run counts too,
// since it may be enforced later.
func (*ban) lacks(_ *entry, beside []*entry) *mistake.Mistake {
	if slices.ContainsFunc(beside, func(e *entry) bool { return e.kind.counted(e) }) {
		return nil
	}
	return &mistake.Mistake{Problem: "no limit beside it whose refusals count", Write: "write a rate, a quota or a concurrency that nobody waits for beside the ban"}
}

// saidOf is said for an adaptive limit while its number is units. Decisions follow one
// another faster than the number changes, so the last one is kept.
func (e *entry) saidOf(units int64) *field.Limit {
	if last := e.saidLast.Load(); last != nil && last.Units == units {
		return last
	}
	l := &field.Limit{Name: e.said.Name, Units: units, Policy: field.Policy(e.said.Name, units, 0)}
	e.saidLast.Store(l)
	return l
}

// said returns the part of a limit's fields that is the same in every decision.
func said(l *store.Limit) field.Limit {
	spec := l.Spec()
	return field.Limit{Name: spec.Name, Units: spec.Units, Policy: field.Policy(spec.Name, spec.Units, span(spec))}
}

// span returns the time that a limit's units are for, or 0 for a concurrency limit. For a
// calendar window it is the longest that the window can be: the field may promise less
// than there is, never more.
func span(s store.Spec) time.Duration {
	if s.Window == (store.Window{}) {
		return s.Period
	}
	return s.Window.Length(time.Now())
}
