// Package compile turns what options say into plans: limits are named, given their
// settings, and put together for each route.
package compile

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/mistakes/keysample"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Rule is a limit as an application writes it. Its address is the limit's identity.
type Rule struct {
	Spec         store.Spec
	Kind         limit.Kind
	Quota        bool // of Quota, and not of Rate: both are charged
	Named        bool // by WithName
	AlgorithmSet bool // by WithAlgorithm
	Hidden       bool // by WithHidden
	Settings     Settings
	Errs         optionerror.List

	// These are of kinds that have them.
	Line     Line             // of those whose requests take slots
	Adaptive *adaptive.Config // of an AdaptiveConcurrency
	Bytes    *read.Bytes      // of a Bandwidth

	once     sync.Once
	ownLimit *store.Limit     // under Spec.Name, for WithLimitFunc
	problems optionerror.List // of ownLimit
	// resolved is the entry that this rule had in the WithLimitFunc that used it last.
	// Nearly always there is only one.
	resolved atomic.Pointer[resolved]
}

// Line says how requests wait for a limit's slots, beyond what its Spec says.
type Line struct {
	Room   *int64 // by WithQueue, or nil
	Shares *lines.Shares
	Tenant *keys.Key // by WithFairQueue, or nil
}

// Settings are the shared options. A nil or zero field isn't set.
type Settings struct {
	Key     *keys.Key
	Cost    func(*http.Request) int64
	Fixed   int64 // what Cost returns for every request; 0 if that isn't known
	Settler *read.Settler
	MaxWait time.Duration
	// DryRun: the limit only reports. DryRunSet: a WithDryRun says so, or that it is enforced.
	DryRun, DryRunSet bool
	// Closed: if the store fails, requests are denied. FailureSet: a WithFailurePolicy says so,
	// or that they pass.
	Closed, FailureSet bool
	// Skip leaves a limit out for requests for which it returns true. SkipEmpty leaves it out if its
	// key is empty; EmptySet: a WithEmptyKey says so, or that these requests are denied.
	Skip                func(*http.Request) bool
	SkipEmpty, EmptySet bool
	// Marks are the percentages of WithNearLimit, ascending.
	Marks []int
	Errs  optionerror.List
}

// options returns the options that are set.
func (s *Settings) options() (all []takenOption) {
	add := func(set bool, option string, by func(limit.Kind) bool, kinds string) {
		if set {
			all = append(all, takenOption{option, by, kinds})
		}
	}
	any := func(limit.Kind) bool { return true }
	settled := func(k limit.Kind) bool { return k.Traits().Settled }
	waits := func(k limit.Kind) bool { return k.Traits().WaitsFor != limit.ForNothing }
	const units = "a Rate or a Quota"
	add(s.Key != nil, "WithKey", any, "a limit")
	add(s.Cost != nil, s.costOption(), costs, units)
	add(s.Settler != nil, "WithSettle", settled, units)
	add(s.MaxWait != 0, "WithMaxWait", waits, "a Rate, a Quota or a Concurrency")
	add(s.Marks != nil, "WithNearLimit", settled, units)
	add(s.DryRun, "WithDryRun", any, "a limit")
	add(s.FailureSet, "WithFailurePolicy", any, "a limit")
	add(s.Skip != nil, "WithSkip", any, "a limit")
	add(s.EmptySet, "WithEmptyKey", any, "a limit")
	return all
}

// takenOption is an option. by reports whether a kind of limit takes it. kinds has the names of such kinds.
type takenOption struct {
	option string
	by     func(limit.Kind) bool
	kinds  string
}

// costs reports whether a default WithCost is that of a kind of limit.
func costs(k limit.Kind) bool { return k.Traits().Costs == limit.AnyCost }

// costOption is what has set the cost.
func (s *Settings) costOption() string {
	if s.Fixed != 0 {
		return fmt.Sprintf("WithFixedCost(%d)", s.Fixed)
	}
	return "WithCost"
}

// WithDefaults returns s, with the defaults of the options that s doesn't set.
func (s Settings) WithDefaults(defaults Settings) Settings {
	if s.Key == nil {
		s.Key = defaults.Key
	}
	if s.Cost == nil {
		s.Cost, s.Fixed = defaults.Cost, defaults.Fixed
	}
	if s.Settler == nil {
		s.Settler = defaults.Settler
	}
	if s.MaxWait == 0 {
		s.MaxWait = defaults.MaxWait
	}
	if !s.DryRunSet {
		s.DryRun, s.DryRunSet = defaults.DryRun, defaults.DryRunSet
	}
	if !s.FailureSet {
		s.Closed, s.FailureSet = defaults.Closed, defaults.FailureSet
	}
	if s.Skip == nil {
		s.Skip = defaults.Skip
	}
	if !s.EmptySet {
		s.SkipEmpty, s.EmptySet = defaults.SkipEmpty, defaults.EmptySet
	}
	if s.Marks == nil {
		s.Marks = defaults.Marks
	}
	return s
}

// newLimit makes the store's limit under a name, or returns everything that is wrong.
func (r *Rule) newLimit(name string) (*store.Limit, optionerror.List) {
	spec := r.Spec
	spec.Name = name
	l, err := store.NewLimit(spec)
	if err == nil && l.Spec().Queue > 0 {
		l = inside.Unqueued(l) // the lines of this process are its queue
	}
	if err == nil && r.Bytes != nil && r.Bytes.Block > 0 {
		l = inside.WithLeastBurst(l, r.Bytes.Piece/r.Bytes.Block)
	}
	errs := append(append(optionerror.OfSpec(err), r.Errs...), r.Settings.Errs...)
	if r.Hidden && !r.Kind.Traits().Shown {
		errs.Add("WithHidden", "the response's header fields never show this kind of limit, so nothing can be hidden",
			"leave it out")
	}
	if r.Line.Shares != nil && r.Line.Room != nil && *r.Line.Room == 0 {
		errs.Add("WithShare", "no request may wait with %s, and shares only order waiting requests",
			"raise the queue's length, or leave the shares out", "WithQueue(0)")
	}
	if err == nil && r.Settings.Marks != nil && !limit.HasUse(l) {
		const problem = "its percentages are of the burst, and the limit has no burst"
		if r.Spec.Algorithm == store.WarmUp {
			errs.Add("WithNearLimit", problem, "leave it out, or use %s in place of %s", "stint.WithBurst", "WithWarmUp")
		} else {
			errs.Add("WithNearLimit", problem, "leave it out, or use %s with 1 or more", "stint.WithBurst")
		}
	}
	if r.Line.Shares != nil && r.Line.Tenant != nil {
		errs.Add("WithFairQueue", "it orders waiting requests by tenant, but %s orders them by class",
			"leave one of the two out", "WithShare")
	}
	if t := r.Line.Tenant; t != nil && t.Constant != "" {
		errs.Add("WithFairQueue("+t.Name+")", "this key is the same for all requests, so they would be one tenant",
			"use a key that identifies the tenant, or leave the fair queue out")
	}
	if errs != nil {
		return nil, errs.At("", name)
	}
	return l, nil
}

// OwnLimit returns the store's limit under the rule's own name, for limits that a WithLimitFunc
// returns, or everything that is wrong with it.
func (r *Rule) OwnLimit() (*store.Limit, optionerror.List) {
	r.once.Do(func() { r.ownLimit, r.problems = r.newLimit(r.Spec.Name) })
	return r.ownLimit, r.problems
}

// decideInProcess marks the limit as one that this process decides, if the rule says so.
func (r *Rule) decideInProcess(l *store.Limit, all *adaptive.Keys) *store.Limit {
	if r.Adaptive == nil || adaptive.RuleOf(l) != nil { // an Update kept the existing one
		return l
	}
	return all.Limit(l, *r.Adaptive)
}

// same reports whether l, a limit with the same numbers, also has the same rule beside
// them.
func (r *Rule) same(l *store.Limit) bool {
	config := adaptive.RuleOf(l)
	if r.Adaptive == nil || config == nil {
		return r.Adaptive == nil && inside.Decider(l) == nil
	}
	return config.Config() == *r.Adaptive
}

// slotWait bounds the wait for a slot if WithQueue is given without WithMaxWait: an
// HTTP/1.1 server doesn't notice that a client has left while the request's body is
// unread, so an unbounded wait might never end.
const slotWait = 5 * time.Second

// entry makes the entry of a rule, with its compiled limit and its settings.
func (reg *Registry) entry(r *Rule, l *store.Limit, s Settings, sample *keysample.Sample) *read.Entry {
	e := &read.Entry{Key: s.Key, Sample: sample, Bytes: r.Bytes, Skip: s.Skip, SkipEmpty: s.SkipEmpty}
	t := r.Kind.Traits()
	switch t.Costs {
	case limit.AnyCost:
		e.Cost, e.Fixed, e.TakesRouteCost = s.Cost, s.Fixed, r.Settings.Cost == nil
	case limit.OwnCost:
		// The limiter's are about units of rates: a request that costs ten of those takes one
		// slot, which is released, not settled.
		e.Cost, e.Fixed = r.Settings.Cost, r.Settings.Fixed
	}
	if t.Settled {
		e.Settler = s.Settler
	}
	e.Tenant = r.Line.Tenant
	reg.setLimit(&e.Limit, r, l, s)
	e.Record = &limit.Record{Since: time.Now()}
	e.Costs = e.Cost != nil
	if e.Settler != nil {
		e.Needs |= limit.Watches | limit.Releases
	}
	return e
}

// checkFixedCost returns the problem of a limit that never lets a request of its fixed cost pass, at least not
// within its WithMaxWait, or nil.
func checkFixedCost(route string, e *read.Entry) *optionerror.Problem {
	problem := func(what, write string) *optionerror.Problem {
		option := fmt.Sprintf("WithFixedCost(%d)", e.Fixed)
		return &optionerror.Problem{Route: route, Limit: e.Name(), Option: option, What: what, Write: write}
	}
	if most := inside.Terms(e.StoreLimit).Largest; e.Fixed > most {
		return problem(fmt.Sprintf("a request costs %d, but the limit never admits more than %d", e.Fixed, most),
			"use a lower cost, or raise the limit")
	}
	wait := e.Wait.InQueue()
	if wait == 0 || e.StoreLimit.Spec().Debt { // with debt, a request waits only for those before it
		return nil
	}
	if most := inside.Full(e.StoreLimit, wait); e.Fixed > most {
		return problem(fmt.Sprintf("a request costs %d, but the limit admits at most %d within the longest wait of %v",
			e.Fixed, most, wait),
			"use a lower cost, or a longer wait")
	}
	return nil
}

// checkWaiters returns the problem of a limit that has shares or a fair queue, of which only requests take slots, and
// for which none of them waits.
func checkWaiters(r *Rule, e *read.Entry) (l optionerror.List) {
	if e.Needs&limit.Waits != 0 {
		return nil
	}
	if r.Line.Shares != nil {
		l.Add("WithShare", "no request may wait for a slot, and shares only order waiting requests",
			"use %s or %s, or leave the shares out",
			"stint.WithQueue", "stint.WithMaxWait")
	}
	if r.Line.Tenant != nil {
		l.Add("WithFairQueue", "no request may wait for a slot, and a fair queue only orders waiting requests",
			"use %s or %s, or leave the fair queue out", "stint.WithQueue", "stint.WithMaxWait")
	}
	return l
}

// setLimit makes *to the limit of a rule with its settings.
func (reg *Registry) setLimit(to *limit.Limit, r *Rule, l *store.Limit, s Settings) {
	t := r.Kind.Traits()
	to.StoreLimit = l
	to.Kind = r.Kind
	to.DryRun = s.DryRun
	to.Closed = s.Closed && !s.DryRun
	to.Needs = t.Needs
	if !s.DryRun {
		to.Needs |= t.Enforced
		if r.Line.Tenant != nil {
			to.Needs |= limit.Fair
		}
	}
	if t.Settled && limit.HasUse(l) {
		to.Marks = s.Marks
	}
	reg.setWait(to, r, l, s)
	if to.Wait.Queues || to.Wait.MaxWait > 0 {
		to.Needs |= limit.Waits
	}
	spec := l.Spec()
	policy := &limit.Policy{Capacity: inside.Full(l, to.Wait.InQueue())}
	if t.Shown && !s.DryRun && !r.Hidden {
		policy.Text = field.Policy(spec.Name, spec.Units, Span(spec))
	}
	to.Policy.Store(policy)
}

// setWait sets what the requests of a limit wait for, and for how long.
func (reg *Registry) setWait(to *limit.Limit, r *Rule, l *store.Limit, s Settings) {
	wait := &to.Wait
	wait.For = r.Kind.Traits().WaitsFor
	switch wait.For {
	case limit.ForSlot:
		wait.MaxWait, wait.Room = s.MaxWait, r.Line.Room
		wait.Slots, wait.Shares = slotsOf, reg.sharesOf(r, to)
		switch {
		case wait.Closed():
			wait.MaxWait = 0
		case wait.Room != nil && wait.MaxWait == 0:
			wait.MaxWait = slotWait
		}
	case limit.ForTurn:
		wait.MaxWait = s.MaxWait
		wait.Queues = l.Spec().Queue > 0
		if l.Spec().Algorithm == store.LeakyBucket && !wait.Queues { // by WithQueue(0)
			*wait = limit.Wait{For: limit.ForNothing}
		}
		if wait.Queues {
			queue := l.Spec().Queue
			wait.Room = &queue
		}
	}
}

// slotsOf returns how many slots a charge's key has now.
func slotsOf(c *store.Charge) int64 {
	if r := adaptive.RuleOf(c.Limit); r != nil {
		return r.SlotsFor(c.Key)
	}
	return c.Limit.Spec().Units
}

// Span returns the time that a limit's units are for, or 0 for a concurrency limit. For a
// calendar window it is the longest that the window can be: the field may promise less
// than there is, never more.
func Span(s store.Spec) time.Duration {
	if s.Window == (store.Window{}) {
		return s.Period
	}
	return s.Window.Length(time.Now())
}

// Text describes a limit by everything that its counting depends on.
func Text(e *read.Entry) string {
	s := e.StoreLimit.Spec()
	switch rule := adaptive.RuleOf(e.StoreLimit); {
	case rule != nil:
		return fmt.Sprintf("AdaptiveConcurrency: %d to %d", rule.Config().Min, s.Units)
	case e.Bytes != nil:
		return fmt.Sprintf("Bandwidth: %d bytes per 1s, burst %d", s.Units*e.Bytes.Block*int64(time.Second/s.Period),
			s.Burst*e.Bytes.Block)
	}
	return describe(s)
}

// checkCounted returns the problem of a ban that counts the denials of none of the limits beside it: it counts
// those of rates and quotas with its key. One in dry run will do, since it may be enforced later. Keys that functions
// return may be equal at any time.
func checkCounted(ban *read.Entry, others []*read.Entry) *optionerror.Problem {
	counted := false
	for _, e := range others {
		if !e.Kind.Traits().Counted {
			continue
		}
		if counted = true; e.Key == ban.Key || e.Key == nil || ban.Key == nil ||
			(e.Key.Signs|ban.Key.Signs)&keysample.OfFunction != 0 {
			return nil
		}
	}
	if counted {
		return &optionerror.Problem{What: fmt.Sprintf("the ban's key is %s, but no rate or quota has that key",
			ban.Key.Name),
			Write: "give the ban the key of the rate or quota whose denials it should count"}
	}
	return &optionerror.Problem{What: "there is no rate or quota whose denials the ban could count",
		Write: "add a rate or a quota with the ban's key"}
}
