package stint

import (
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// entry is a limit as one limiter uses it: compiled, named, and with its settings
// filled in.
type entry struct {
	limit  *store.Limit
	kind   kind
	needs  needs
	wait   waiting.Terms
	key    *keys.Key
	source *warn.Source              // of the key
	cost   func(*http.Request) int64 // nil: 1
	settle *settleSource             // nil: the charge stays
	dryRun bool
	closed bool        // FailClosed
	said   field.Limit // in fields; a dry run says nothing
	// saidLast is the latest content of an adaptive limit's fields; see saidOf.
	saidLast atomic.Pointer[field.Limit]
	settled  settings // that it was made with
}

// newEntry makes the entry of a rule, with its compiled limit and its settings.
func newEntry(r *rule, l *store.Limit, s settings, source *warn.Source) *entry {
	e := &entry{
		limit: l, kind: r.kind, said: field.Limit{Name: l.Name()}, settled: s,
		key: s.key, source: source, cost: s.cost, settle: s.settle, dryRun: s.dryRun,
		wait:   waiting.Terms{MaxWait: s.maxWait},
		closed: s.policy == FailClosed && !s.dryRun,
	}
	r.kind.enter(e, r)
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
	errs = append(errs, mistake.Of("WithStore", c.store)...)
	if c.memorySet {
		errs = append(errs, mistake.Of("WithMemory", memstore.New(c.memory...))...)
	}
	errs = append(errs, v.compileLimits(c, names)...)
	errs = append(errs, v.checkNames(c, parent, names)...)
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
				all = append(all, newEntry(lim.rule, compiled, settled, names.source(settled.key)))
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
		all := entries(rc.pattern, rc.limits, rc.shared.or(v.shared))
		if rc.inherit {
			if len(base)+len(funcs)+len(c.limits) == 0 {
				errs = append(errs, &mistake.Mistake{Route: rc.pattern, Option: "Inherit()", Problem: "the limiter has no limits", Write: "write some in New, or in the route"})
			}
			all = append(names.inherited(base, rc.shared), all...)
			if i := slices.IndexFunc(rc.limits, func(l Limit) bool {
				return slices.ContainsFunc(base, func(e *entry) bool { return names.limits[l.rule] == e.limit })
			}); i >= 0 {
				errs = append(errs, &mistake.Mistake{Route: rc.pattern, Limit: names.name(rc.limits[i].rule), Problem: "given twice, once by Inherit()", Write: "leave one out"})
			}
		}
		p := newPlan(all, nil)
		if len(rc.limits) > 0 || rc.inherit {
			p = newPlan(all, funcs)
			written := rc.limits
			if rc.inherit {
				written = slices.Concat(c.limits, written)
			}
			alone(rc.pattern, p, written)
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

// compileLimits names and compiles the limits of c that names doesn't know yet.
func (v *version) compileLimits(c *config, names *naming) (errs mistake.List) {
	fresh := slices.DeleteFunc(c.uses(), func(u use) bool {
		_, known := names.limits[u.rule]
		return known
	})
	rules := make([]*rule, len(fresh))
	for i, u := range fresh {
		rules[i] = u.rule
	}
	final, taken := names.assign(rules)
	for _, i := range taken {
		errs = append(errs, errNamesake(fresh[i].route, final[i]))
	}
	for i, u := range fresh {
		l, wrong := u.rule.compile(final[i])
		errs = append(errs, wrong.At(u.route, final[i])...)
		if l != nil {
			// A limit whose numbers haven't changed stays the same one, for what a store
			// remembers of it.
			if b := names.before[final[i]]; b != nil && u.rule.kind.same(b) && b.Spec() == l.Spec() {
				l = b
			}
			l = u.rule.kind.decided(l, v.family.adaptive)
		}
		names.limits[u.rule] = l
	}
	return errs
}

// checkNames reports the limits of a version that need a name: its own, and those it
// inherits from a version whose store no other limiter could use.
func (v *version) checkNames(c *config, parent *version, names *naming) (errs mistake.List) {
	if !v.lent {
		return nil
	}
	for _, u := range c.uses() {
		if !u.rule.named {
			errs = append(errs, errUnnamed(u.route, u.rule))
		}
	}
	if parent == nil || parent.lent {
		return errs
	}
	seen := map[*rule]bool{}
	for e := range parent.entries() {
		if r := names.rules[e.limit.Name()]; !r.named && !seen[r] {
			seen[r] = true
			e := errUnnamed("", r)
			e.Problem = "inherited with " + e.Problem
			errs = append(errs, e)
		}
	}
	return errs
}

// errNamesake reports the name of another limit.
func errNamesake(route, name string) *mistake.Mistake {
	return &mistake.Mistake{Route: route, Limit: name, Problem: "another limit has that name", Write: "write another stint.WithName"}
}

// errUnnamed reports a limit without a WithName whose store others may use.
func errUnnamed(route string, r *rule) *mistake.Mistake {
	return &mistake.Mistake{Route: route, Limit: r.spec.Name,
		Problem: "a default name, which other limits in the store may have too", Write: "write stint.WithName"}
}

// use is a limit and the route whose options first contain it, if any.
type use struct {
	rule  *rule
	route string
}

// uses returns the limits that the options hold, each once.
func (c *config) uses() (all []use) {
	seen := map[*rule]bool{}
	add := func(limits []Limit, route string) {
		for _, l := range limits {
			if !seen[l.rule] {
				seen[l.rule] = true
				all = append(all, use{l.rule, route})
			}
		}
	}
	add(c.limits, "")
	for _, rc := range c.routes {
		add(rc.limits, rc.pattern)
	}
	return all
}

// compile makes the store's limit under a name, or returns everything that is wrong.
func (r *rule) compile(name string) (*store.Limit, mistake.List) {
	spec := r.spec
	spec.Name = name
	l, err := store.NewLimit(spec)
	if errs := append(append(mistake.InSpec(err), r.errs...), r.shared.errs...); errs != nil {
		return nil, errs.At("", name)
	}
	return l, nil
}
