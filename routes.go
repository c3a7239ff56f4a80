package stint

import (
	"fmt"
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

// chargeAll makes the charges of a WithLimitFunc.
func (c *call) chargeAll(f *limitFunc) error {
	limits, err := f.fn(c.r)
	if err != nil {
		return c.limitsError(err, f.shared.dryRun)
	}
	for _, l := range limits {
		e, err := f.entry(l)
		if err == nil && c.lim.lent && !l.rule.named {
			err = errUnnamed("", l.rule)
		}
		if err == nil && c.has(e.limit.Name()) {
			err = errNamesake("", e.limit.Name())
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

// limitsError is what becomes of a request whose limits a function can't tell. It
// goes on without those that would only report.
func (c *call) limitsError(err error, dryRun bool) error {
	err = &requestError{err: fmt.Errorf("stint: WithLimitFunc: %w", err), status: statusOf(err)}
	c.lim.observe(Event{Kind: EventLimitsFailed, Request: c.r, Err: err})
	if dryRun {
		return nil
	}
	return err
}

// chargeAgain adds the charge of an entry whose limit the plan has already, by
// another route's settings. For another key that is another charge.
func (c *call) chargeAgain(e *entry) error {
	key, err := c.key(e)
	if err != nil || key == "" || !e.kind.repeated() && c.outer.chargedFor(e.limit, key) {
		return err
	}
	for i := range c.paced {
		if p := &c.paced[i]; p.entry.limit == e.limit && p.key == key {
			if p.entry.dryRun {
				p.entry = e
			}
			return nil
		}
	}
	c.policy = ""
	for i, o := range c.entries {
		if o.limit == e.limit && c.Charges[i].Key == key {
			return c.merge(i, e)
		}
	}
	return c.charge(e)
}

// merge makes one charge of charge i and that of e, for the same limit and key: at
// the higher cost, but a dry run takes no part in one that is enforced.
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
