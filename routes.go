package stint

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/routing"
)

// WithRoute gives requests that match pattern their own limits, instead of the
// limiter's. Inherit stands for the limiter's own, under the route's settings. Without any
// option, the route is exempt. Patterns are those of http.ServeMux ("POST /login",
// "/files/", "api.example.com/"). The most specific pattern wins; hosts match in any case.
// New rejects invalid and conflicting patterns, and a route with settings but no limit.
//
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute)), // instead of the limiter's limits
//	stint.WithRoute("POST /export", stint.Inherit(), stint.WithCost(ten)), // the same limits, at another cost
//	stint.WithRoute("/healthz"), // none
//
// A request that routers can read in several ways gets the limits of every reading,
// each once, and is exempt only if every reading is. The readings are the path as sent,
// decoded, cleaned and without a trailing slash, and the host as sent, in lower case
// without trailing dots, and cut off at any colon. So no spelling slips past a route. A
// path with %2F in an id may be charged for two routes; docs/routes.md has the rules.
//
// In With, a route also replaces the limits of the limiter that is extended. That
// limiter's routes are inherited, with the new limits added.
func WithRoute(pattern string, opts ...RouteOption) Option {
	return limiterOption(func(c *config) {
		rc := routeConfig{pattern: pattern}
		for i, o := range opts {
			if o == nil {
				rc.errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
				continue
			}
			o.applyRoute(&rc)
		}
		if len(opts) > 0 && len(rc.limits) == 0 && !rc.inherit && rc.errs == nil {
			rc.errs.Bad("", "options, but no limit",
				"write limits, stint.Inherit() for the limiter's own under these options, or no option at all to exempt the route")
		}
		c.routes = append(c.routes, rc)
	})
}

// Inherit stands in a WithRoute for the limiter's own limits: the same limits, with the same
// counts, under the route's key, cost and other settings, as far as a limit has none of its
// own. Further limits may stand beside it. Limits of a WithLimitFunc apply too, under the
// limiter's settings, as on every route. New rejects Inherit elsewhere, and if the limiter
// has no limits.
func Inherit() RouteOption { return inherit{} }

type inherit struct{}

func (inherit) applyRoute(rc *routeConfig) { rc.inherit = true }

func (inherit) applyLimiter(c *config) {
	c.errs.Bad("Inherit()", "only a WithRoute has limits to inherit", "leave it out, or write it in a stint.WithRoute")
}

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
		return v.planFor(first)
	}
	plans := []*plan{v.planFor(first)}
	for _, pattern := range others {
		plans = append(plans, v.planFor(pattern))
	}
	return union(plans)
}

// planFor returns the plan of a pattern that the router has found.
func (v *version) planFor(pattern int) *plan {
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
