package stint

import (
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/routing"
)

// route is one WithRoute, compiled. Its plan's entries don't include those that
// a limiter derived later adds.
type route struct {
	pattern string
	plan    *plan
}

// newRouter makes the router of routes, or nil where there are none.
func newRouter(routes []route) (rt *routing.Router, errs mistakes) {
	if len(routes) == 0 {
		return nil, nil
	}
	patterns := make([]string, len(routes))
	for i, r := range routes {
		patterns[i] = r.pattern
	}
	rt, problems := routing.New(patterns)
	for _, p := range problems {
		errs = append(errs, &OptionError{Route: p.Pattern, Problem: p.What, Write: p.Write})
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

// selected is the plan of a pattern that the router has found.
func (v *version) selected(pattern int) *plan {
	if pattern == len(v.routes) {
		return v.base
	}
	return v.routes[pattern].plan
}

// union is the plan of a request that is held to several: what all of them have,
// each limit once.
func union(plans []*plan) *plan {
	plans = slices.DeleteFunc(plans, (*plan).exempt)
	switch len(plans) {
	case 0:
		return &plan{}
	case 1:
		return plans[0]
	}
	var entries, again []*entry
	var funcs []*limitFunc
	for _, p := range plans {
		for _, e := range p.entries {
			switch {
			case slices.Contains(entries, e):
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
	u := newPlan(entries, funcs)
	u.again = again
	return u
}
