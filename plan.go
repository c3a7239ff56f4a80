package stint

import (
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// entry is a limit as one limiter uses it: compiled, named, its open settings
// filled in. Its address tells a nested limiter what is charged already.
type entry struct {
	limit   *store.Limit
	key     *keySource
	cost    func(*http.Request) int64 // nil: 1
	settle  *settleSource             // nil: the charge stays
	maxWait time.Duration
	dryRun  bool
	closed  bool  // FailClosed
	slots   bool  // a concurrency limit
	bans    bool  // a Ban
	queues  bool  // makes requests wait without a maxWait
	queue   int64 // how many may wait for slots; negative by default: see call.room
	shares  *waiting.Shares
	said    field.Limit // in fields; a dry run says nothing
	from    *limitFunc
	origin  *entry // that it stands for since an Update; nil: it is its own
	// adaptive is what decides an AdaptiveConcurrency, in this process.
	adaptive adaptive.Follower
	// bandwidth paces the request's bytes, after it has been admitted.
	bandwidth *bandwidth
}

// first is the entry that the call began with.
func (e *entry) first() *entry {
	if e.origin != nil {
		return e.origin
	}
	return e
}

// newEntry makes the entry of a rule, by its compiled limit and with its settings.
func (n *names) newEntry(r *rule, l *store.Limit, s settings) *entry {
	l = n.follow(r, l) // if it is one that a WithLimitFunc gave
	e := &entry{
		adaptive: adaptive.Of(l),
		limit:    l, key: s.key, cost: s.cost, settle: s.settle, maxWait: s.maxWait, dryRun: s.dryRun,
		closed: s.policy == FailClosed && !s.dryRun,
		slots:  l.Algorithm() == store.Concurrency,
		bans:   l.Algorithm() == store.Ban,
		queues: l.Spec().Queue > 0,
	}
	if e.slots {
		e.settle = nil // of the limiter: slots are released
		e.queue, e.shares = -1, r.shares
		if r.queueSet {
			e.queue = r.queue
		}
		switch {
		case e.queue == 0:
			e.maxWait = 0
		case r.queueSet && e.maxWait == 0:
			e.maxWait = slotWait
		}
	}
	if r.bandwidth != nil {
		e.bandwidth, e.cost, e.settle, e.maxWait = r.bandwidth, nil, nil, 0 // of the limiter
		return e
	}
	if e.bans {
		e.cost, e.settle, e.maxWait = nil, nil, 0 // of the limiter
		return e
	}
	if !e.dryRun {
		e.said = said(l)
	}
	return e
}

// plan is the limits of one route, or of the limiter where no route matches.
type plan struct {
	entries []*entry
	funcs   []*limitFunc
	policy  string // RateLimit-Policy of all entries
	waits   bool   // some limit may make the request wait
	// adaptive: some limit may be an AdaptiveConcurrency.
	adaptive bool
	again    []*entry // of limits that entries have already, by another route's settings
}

func newPlan(entries []*entry, funcs []*limitFunc) *plan {
	p := &plan{entries: entries, funcs: funcs, waits: len(funcs) > 0, adaptive: len(funcs) > 0}
	var items []string
	for _, e := range entries {
		p.waits = p.waits || e.maxWait > 0 || e.queues
		p.adaptive = p.adaptive || e.adaptive != nil
		if e.said.Policy != "" {
			items = append(items, e.said.Policy)
		}
	}
	p.policy = strings.Join(items, ", ")
	return p
}

// exempt reports whether the plan limits nothing at all.
func (p *plan) exempt() bool { return len(p.entries) == 0 && len(p.funcs) == 0 }

// entries are those of all the version's plans. One that is in several comes as
// often.
func (v *version) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		plans := []*plan{v.base}
		if v.router != nil {
			for _, r := range v.router.routes {
				plans = append(plans, r.plan)
			}
		}
		for _, p := range plans {
			for _, e := range p.entries {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// compile turns the options of a limiter into plans; parent is the version it
// extends, or nil.
func (v *version) compile(c *config, parent *version, names *names) mistakes {
	errs := slices.Concat(c.errs, c.shared.errs, names.compile(c))
	errs = append(errs, v.unnamed(c, parent, names)...)
	if c.store != nil && c.memorySet {
		errs.bad("WithMemory", "there is a WithStore too", "leave one out")
	}

	entries := func(route string, limits []Limit, s settings) (all []*entry) {
		seen := map[*rule]bool{}
		for _, lim := range limits {
			if seen[lim.rule] {
				errs = append(errs, &OptionError{Route: route, Limit: lim.rule.spec.Name, Problem: "given twice", Write: "leave one out"})
				continue
			}
			seen[lim.rule] = true
			settled := lim.rule.shared.or(s)
			if settled.key == nil {
				errs = append(errs, &OptionError{Route: route, Limit: names.of(lim.rule), Problem: "no key, and no default is right",
					Write: "write stint.WithKey(stint.RemoteIP()), behind a proxy stint.ForwardedIP(trusted...), " +
						"stint.Global() for all requests together, or stint.GivenKey() for keys that Take is given"})
			}
			if compiled := names.limits[lim.rule]; compiled != nil { // or names.compile has reported it
				all = append(all, names.newEntry(lim.rule, compiled, settled))
			}
		}
		return all
	}

	own := entries("", c.limits, v.shared)
	base, funcs := own, v.funcs
	var routes []*route
	if parent != nil {
		for _, e := range own {
			if slices.ContainsFunc(parent.base.entries, func(p *entry) bool { return p.limit == e.limit }) {
				errs = append(errs, &OptionError{Limit: e.limit.Name(), Problem: "inherited already", Write: "leave it out"})
			}
		}
		base = slices.Concat(parent.base.entries, own)
		if parent.router != nil {
			for _, r := range parent.router.routes {
				if slices.ContainsFunc(c.routes, func(rc routeConfig) bool { return rc.pattern == r.pattern }) {
					continue
				}
				// An exempt route is exempt from what the parent limits.
				fs := slices.Concat(r.plan.funcs, v.funcs[len(parent.funcs):])
				routes = append(routes, &route{pattern: r.pattern, plan: newPlan(slices.Concat(r.plan.entries, own), fs)})
			}
		}
	}
	v.base = newPlan(base, funcs)
	lonely := func(route string, p *plan, limits []Limit) {
		if slices.ContainsFunc(limits, func(l Limit) bool { return names.limits[l.rule] == nil }) {
			return // a limit that is wrong may be what the ban counts
		}
		if e := p.lonelyBan(); e != nil {
			errs = append(errs, &OptionError{Route: route, Limit: e.limit.Name(), Problem: "nothing to count",
				Write: "write a Rate, a Quota or a Concurrency that nobody waits for beside the Ban"})
		}
	}
	lonely("", v.base, c.limits)
	for _, rc := range c.routes {
		errs = append(errs, slices.Concat(rc.errs, rc.shared.errs).at(rc.pattern, "")...)
		p := newPlan(entries(rc.pattern, rc.limits, rc.shared.or(v.shared)), nil)
		if len(rc.limits) > 0 {
			p = newPlan(p.entries, funcs)
			lonely(rc.pattern, p, rc.limits)
		}
		routes = append(routes, &route{pattern: rc.pattern, plan: p})
	}
	var wrong mistakes
	v.router, wrong = newRouter(routes, v.base)
	errs = append(errs, wrong...)
	if len(c.limitFuncs) > 0 && v.shared.key == nil {
		errs.bad("WithLimitFunc", "no default key", "write stint.WithKey beside it")
	}
	if parent == nil && len(c.limits)+len(c.limitFuncs)+len(c.routes) == 0 {
		errs.bad("", "no limits", "write at least one, such as stint.Rate(10, time.Second)")
	}
	return errs
}
