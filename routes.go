package stint

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/keyfunc"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// route is one WithRoute, compiled. Its plan's entries don't include those that a
// limiter derived later adds.
type route struct {
	pattern string
	plan    *plan
}

// newRouter returns the router of routes.
func newRouter(routes []route) (rt *routing.Router, errs mistake.List) {
	patterns := make([]string, len(routes))
	for i, r := range routes {
		patterns[i] = r.pattern
	}
	rt, problems := routing.New(patterns)
	for _, p := range problems {
		errs = append(errs, &mistake.Mistake{Route: p.Pattern, Problem: p.What, Write: p.Write})
	}
	return rt, errs
}

// plan returns the plan of a request.
func (v *version) plan(r *http.Request) *plan {
	if v.router == nil {
		return v.base
	}
	first, others := v.router.Find(r)
	if len(others) == 0 {
		return v.selected(first)
	}
	plans := []*plan{v.selected(first)}
	for _, pattern := range others {
		plans = append(plans, v.selected(pattern))
	}
	return union(plans)
}

// selected returns the plan of a pattern that the router has found.
func (v *version) selected(pattern int) *plan {
	if pattern == len(v.routes) {
		return v.base
	}
	return v.routes[pattern].plan
}

// route returns the plan's pattern, or "" outside HTTP.
func (p *plan) route() string {
	if p == nil {
		return ""
	}
	return p.pattern
}

// union returns the plan of a request that is held to several: the limits of all of
// them, each once.
func union(plans []*plan) *plan {
	plans = slices.DeleteFunc(plans, (*plan).exempt)
	switch len(plans) {
	case 0:
		return &plan{}
	case 1:
		return plans[0]
	}
	patterns := make([]string, len(plans))
	for i, p := range plans {
		patterns[i] = p.pattern
	}
	return merged(strings.Join(patterns, ", "), plans...)
}

// merged returns a plan with the limits of several, each once.
func merged(pattern string, plans ...*plan) *plan {
	var entries, again []*entry
	var funcs []*limitFunc
	for _, p := range plans {
		for _, e := range slices.Concat(p.entries, p.again) {
			switch {
			case slices.Contains(entries, e), slices.Contains(again, e):
			case slices.ContainsFunc(entries, func(o *entry) bool { return o.limit == e.limit }):
				again = append(again, e)
			default:
				entries = append(entries, e)
			}
		}
		for _, f := range p.funcs {
			if !slices.Contains(funcs, f) {
				funcs = append(funcs, f)
			}
		}
	}
	m := newPlan(entries, funcs)
	m.pattern, m.again = pattern, again
	return m
}

// chargeAll makes the charges of a WithLimitFunc.
func (c *call) chargeAll(f *limitFunc) error {
	limits, err := f.fn(c.r, f.check)
	if err != nil {
		return c.limitsError(err, f.shared.dryRun)
	}
	for _, l := range limits {
		e, err := f.entry(l)
		if err == nil && c.lim.lent && !l.rule.named {
			err = optionError(errUnnamed("", l.rule))
		}
		if err == nil && c.has(e.limit.Name()) {
			err = optionError(errNamesake("", e.limit.Name()))
		}
		if err != nil {
			err = c.limitsError(err, f.reports(l))
		} else {
			err = c.charge(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a limit of that name is among the call's.
func (c *call) has(name string) bool {
	return slices.ContainsFunc(c.entries, func(e *entry) bool { return e.limit.Name() == name }) ||
		slices.ContainsFunc(c.paced, func(p paced) bool { return p.entry.limit.Name() == name })
}

// limitsError handles a request whose limits a function fails to return. The request
// goes on without them if they would only report.
func (c *call) limitsError(err error, dryRun bool) error {
	err = &failure.Error{Err: fmt.Errorf("stint: WithLimitFunc: %w", err), Status: failure.Status(err)}
	c.lim.observe(&Event{Kind: EventLimitsFailed, Route: c.plan.route(), Request: c.r, Err: err})
	if dryRun {
		return nil
	}
	return err
}

// chargeAgain adds the charge of an entry whose limit is already in the plan, with
// another route's settings. For another key that is another charge.
func (c *call) chargeAgain(e *entry) error {
	key, err := c.key(e)
	same := func(o *entry, under string) bool { return o.limit == e.limit && under == key }
	if err != nil || key == "" || c.charged(e, key) {
		return err
	}
	for i := range c.paced {
		if p := &c.paced[i]; same(p.entry, p.key) {
			if p.entry.dryRun {
				p.entry = e
			}
			return nil
		}
	}
	c.policy = ""
	for i, o := range c.entries {
		if same(o, c.Charges[i].Key) {
			return c.merge(i, e)
		}
	}
	return c.charge(e)
}

// merge makes one charge of charge i and that of e, for the same limit and key: at the
// higher cost, except that a dry run doesn't affect an enforced charge.
func (c *call) merge(i int, e *entry) error {
	o, ch := c.entries[i], &c.Charges[i]
	if e.dryRun && !o.dryRun {
		return nil
	}
	cost, err := c.cost(e)
	if err != nil {
		return err
	}
	if o.dryRun == e.dryRun {
		cost = max(cost, ch.Cost)
	}
	if o.dryRun != e.dryRun || e.closed {
		c.entries[i] = e
	}
	ch.Cost, ch.DryRun = cost, e.dryRun
	c.needs |= e.needs
	return nil
}

// entry is a limit as one limiter uses it: compiled, named, and with its settings
// filled in.
type entry struct {
	limit  *store.Limit
	kind   kind
	needs  needs
	wait   waiting.Terms
	key    *keyfunc.Source
	cost   func(*http.Request) int64 // nil: 1
	settle *settleSource             // nil: the charge stays
	watch  func(*call) *response     // makes the response; nil where the limit doesn't look at it
	dryRun bool
	closed bool        // FailClosed
	said   field.Limit // in fields; a dry run says nothing
	// saidLast is what the fields of an adaptive limit said last; see saidOf.
	saidLast atomic.Pointer[field.Limit]
}

// newEntry makes the entry of a rule, with its compiled limit and its settings.
func newEntry(r *rule, l *store.Limit, s settings) *entry {
	e := &entry{
		limit: l, kind: r.kind, said: field.Limit{Name: l.Name()},
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
	pattern string   // of the WithRoute
	alone   *entry   // the only one, where a decision is its charge and nothing else; or nil
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
	if len(entries) == 1 && len(funcs) == 0 && entries[0].needs == 0 && !entries[0].dryRun {
		p.alone = entries[0]
	}
	return p
}

// exempt reports whether the plan limits nothing at all.
func (p *plan) exempt() bool { return len(p.entries) == 0 && len(p.funcs) == 0 }

// entries returns the entries of all the version's plans, each once.
func (v *version) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		plans := []*plan{v.base}
		for _, r := range v.routes {
			plans = append(plans, r.plan)
		}
		seen := map[*entry]bool{} // With adds an entry to several plans
		for _, p := range plans {
			for _, e := range p.entries {
				if seen[e] {
					continue
				}
				if seen[e] = true; !yield(e) {
					return
				}
			}
		}
	}
}

// compile turns the options of a limiter into plans. parent is the version it extends,
// or nil.
func (v *version) compile(c *config, parent *version, names *naming) mistake.List {
	errs := append(slices.Clip(c.errs), c.shared.errs...)
	errs = append(errs, v.compileLimits(c, names)...)
	errs = append(errs, v.unnamed(c, parent, names)...)
	if c.store != nil && c.memorySet {
		errs.Bad("WithMemory", "given beside WithStore", "leave one out")
	}

	entries := func(route string, limits []Limit, s settings) (all []*entry) {
		seen := map[*rule]bool{}
		for _, lim := range limits {
			if seen[lim.rule] {
				errs = append(errs, &mistake.Mistake{Route: route, Limit: lim.rule.spec.Name, Problem: "given twice", Write: "leave one out"})
				continue
			}
			seen[lim.rule] = true
			settled := lim.rule.shared.or(s)
			if settled.key == nil {
				errs = append(errs, &mistake.Mistake{Route: route, Limit: names.name(lim.rule), Problem: "no key, and no default is safe",
					Write: "write stint.WithKey(stint.RemoteIP()), behind a proxy stint.ForwardedIP(trusted...), " +
						"stint.Global() for all requests together, or stint.GivenKey() for keys that Take is given"})
			}
			if compiled := names.limits[lim.rule]; compiled != nil { // or compileLimits has reported it
				all = append(all, newEntry(lim.rule, compiled, settled))
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
				errs = append(errs, &mistake.Mistake{Limit: e.limit.Name(), Problem: "inherited already", Write: "leave it out"})
			}
		}
		base = append(slices.Clip(parent.base.entries), own...)
		for _, r := range parent.routes {
			if slices.ContainsFunc(c.routes, func(rc routeConfig) bool { return rc.pattern == r.pattern }) {
				continue
			}
			// A route that is exempt stays exempt from the parent's limits.
			added := newPlan(own, v.funcs[len(parent.funcs):])
			routes = append(routes, route{pattern: r.pattern, plan: merged(r.pattern, r.plan, added)})
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
		errs = append(errs, append(slices.Clip(rc.errs), rc.shared.errs...).At(rc.pattern, "")...)
		p := newPlan(entries(rc.pattern, rc.limits, rc.shared.or(v.shared)), nil)
		if len(rc.limits) > 0 {
			p = newPlan(p.entries, funcs)
			alone(rc.pattern, p, rc.limits)
		}
		p.pattern = rc.pattern
		routes = append(routes, route{pattern: rc.pattern, plan: p})
	}
	v.routes, v.router = routes, nil
	if len(routes) > 0 {
		var wrong mistake.List
		v.router, wrong = newRouter(routes)
		errs = append(errs, wrong...)
	}
	if len(c.limitFuncs) > 0 && v.shared.key == nil {
		errs.Bad("WithLimitFunc", "no default key", "write stint.WithKey beside it")
	}
	if parent == nil && len(c.limits)+len(c.limitFuncs)+len(c.routes) == 0 {
		errs.Bad("", "no limits", "write at least one, such as stint.Rate(10, time.Second)")
	}
	return errs
}
