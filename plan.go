package stint

import (
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// entry is a limit as one limiter uses it: compiled, named, its open settings
// filled in. Its address tells a nested limiter what is charged already.
type entry struct {
	limit  *store.Limit
	kind   kind
	needs  needs
	wait   waiting.Terms
	key    *keySource
	cost   func(*http.Request) int64 // nil: 1
	settle *settleSource             // nil: the charge stays
	dryRun bool
	closed bool        // FailClosed
	said   field.Limit // in fields; a dry run says nothing
	from   *limitFunc
	origin *entry // that it stands for since an Update; nil: it is its own
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
	e := &entry{
		limit: r.kind.decided(l, n.adaptive), kind: r.kind,
		key: s.key, cost: s.cost, settle: s.settle, dryRun: s.dryRun,
		wait:   waiting.Terms{MaxWait: s.maxWait},
		closed: s.policy == FailClosed && !s.dryRun,
	}
	r.kind.enter(e)
	return e
}

// plan is the limits of one route, or of the limiter where no route matches.
type plan struct {
	entries []*entry
	funcs   []*limitFunc
	again   []*entry // of limits that entries have already, by another route's settings
	policy  string   // RateLimit-Policy of all entries
}

func newPlan(entries []*entry, funcs []*limitFunc) *plan {
	p := &plan{entries: entries, funcs: funcs}
	var items []string
	for _, e := range entries {
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
		for _, r := range v.routes {
			plans = append(plans, r.plan)
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
	var routes []route
	if parent != nil {
		for _, e := range own {
			if slices.ContainsFunc(parent.base.entries, func(p *entry) bool { return p.limit == e.limit }) {
				errs = append(errs, &OptionError{Limit: e.limit.Name(), Problem: "inherited already", Write: "leave it out"})
			}
		}
		base = slices.Concat(parent.base.entries, own)
		for _, r := range parent.routes {
			if slices.ContainsFunc(c.routes, func(rc routeConfig) bool { return rc.pattern == r.pattern }) {
				continue
			}
			// An exempt route is exempt from what the parent limits.
			fs := slices.Concat(r.plan.funcs, v.funcs[len(parent.funcs):])
			routes = append(routes, route{pattern: r.pattern, plan: newPlan(slices.Concat(r.plan.entries, own), fs)})
		}
	}
	v.base = newPlan(base, funcs)
	alone := func(route string, p *plan, limits []Limit) {
		if slices.ContainsFunc(limits, func(l Limit) bool { return names.limits[l.rule] == nil }) {
			return // a limit that is wrong may be what another lacks
		}
		if len(p.funcs) > 0 {
			return // its limits are not known yet
		}
		for _, e := range p.entries {
			if wrong := e.kind.lacks(e, p.entries); wrong != nil {
				wrong.Route, wrong.Limit = route, e.limit.Name()
				errs = append(errs, wrong)
			}
		}
	}
	alone("", v.base, c.limits)
	for _, rc := range c.routes {
		errs = append(errs, slices.Concat(rc.errs, rc.shared.errs).at(rc.pattern, "")...)
		p := newPlan(entries(rc.pattern, rc.limits, rc.shared.or(v.shared)), nil)
		if len(rc.limits) > 0 {
			p = newPlan(p.entries, funcs)
			alone(rc.pattern, p, rc.limits)
		}
		routes = append(routes, route{pattern: rc.pattern, plan: p})
	}
	var wrong mistakes
	v.routes = routes
	v.router, wrong = newRouter(routes)
	errs = append(errs, wrong...)
	if len(c.limitFuncs) > 0 && v.shared.key == nil {
		errs.bad("WithLimitFunc", "no default key", "write stint.WithKey beside it")
	}
	if parent == nil && len(c.limits)+len(c.limitFuncs)+len(c.routes) == 0 {
		errs.bad("", "no limits", "write at least one, such as stint.Rate(10, time.Second)")
	}
	return errs
}
