package compile

import (
	"maps"
	"slices"

	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// Config is the part of the options of one New or With that is about limits.
type Config struct {
	Shared      Settings // defaults
	Limits      []*Rule
	Routes      []Route
	Funcs       []func(*Func) *read.Func
	Skip, Block []read.Predicate

	Store     store.Store
	Memory    []memstore.Option
	MemorySet bool

	// Owner identifies the limiter, from one Update to the next.
	Owner any

	Errs mistake.List
}

// Route is one WithRoute.
type Route struct {
	Pattern string
	Shared  Settings
	Limits  []*Rule
	Inherit bool // by Inherit
	Errs    mistake.List
}

// Result is a limiter's compiled options.
type Result struct {
	Plans read.Plans
	Funcs []*Func
	// Shared are the defaults of limits that are added by With.
	Shared Settings
	// Lent: the store is of WithStore, and others may use it.
	Lent bool

	charges  []*read.Func // of Funcs
	settings map[*read.Entry]Settings
}

// Keys returns the keys of WithKey among the options, each once.
func (c *Config) Keys() (all []*keys.Key) {
	add := func(k *keys.Key) {
		if k != nil && !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	add(c.Shared.Key)
	for _, rc := range c.Routes {
		add(rc.Shared.Key)
	}
	for _, u := range c.uses() {
		add(u.rule.Shared.Key)
	}
	return all
}

// use is a limit and the route whose options first contain it, if any.
type use struct {
	rule  *Rule
	route string
}

// uses returns the limits that the options hold, each once.
func (c *Config) uses() (all []use) {
	seen := map[*Rule]bool{}
	add := func(rules []*Rule, route string) {
		for _, r := range rules {
			if !seen[r] {
				seen[r] = true
				all = append(all, use{r, route})
			}
		}
	}
	add(c.Limits, "")
	for _, rc := range c.Routes {
		add(rc.Limits, rc.Pattern)
	}
	return all
}

// compiler is one compilation.
type compiler struct {
	*Registry
	*Config
	names  *Names  // that will have naming
	naming *Naming // which it extends
	parent *Result // that the limiter extends, or nil
	to     *Result
	errs   mistake.List
	idle   []idle
}

// idle is a limit in a place where its shares order no waiters, which is then wrong.
type idle struct {
	limit *store.Limit
	wrong mistake.List
}

// Compile turns the options of a limiter into plans. parent is that of the limiter which it
// extends, or nil. The limits are named in naming, which will become that of names. lent
// says that the store is of WithStore.
func (g *Registry) Compile(c *Config, parent *Result, names *Names, naming *Naming, lent bool) (*Result, mistake.List) {
	to := new(Result)
	if parent != nil {
		*to = *parent
	}
	k := &compiler{Registry: g, Config: c, names: names, naming: naming, parent: parent, to: to}
	to.Lent, to.settings = lent, maps.Clone(to.settings)
	if to.settings == nil {
		to.settings = map[*read.Entry]Settings{}
	}
	to.Shared = c.Shared.Or(to.Shared)
	to.Shared.Errs = nil
	for _, made := range c.Funcs {
		f := &Func{Owner: c.Owner, Shared: to.Shared, registry: g, lent: lent, names: names, look: naming.look(to.Shared.Key)}
		to.Funcs = append(slices.Clip(to.Funcs), f)
		to.charges = append(slices.Clip(to.charges), made(f))
	}
	to.Plans.Skip = append(slices.Clip(to.Plans.Skip), c.Skip...)
	to.Plans.Block = append(slices.Clip(to.Plans.Block), c.Block...)
	k.compile()
	return to, k.errs
}

func (k *compiler) bad(m mistake.Mistake) { k.errs = append(k.errs, &m) }

func (k *compiler) compile() {
	k.errs = append(slices.Clip(k.Errs), k.Config.Shared.Errs...)
	k.errs = append(k.errs, mistake.Of("WithStore", k.Store)...)
	if k.MemorySet {
		k.errs = append(k.errs, mistake.Of("WithMemory", memstore.New(k.Memory...))...)
	}
	k.limits()
	k.checkNames()
	if k.Store != nil && k.MemorySet {
		k.errs.Bad("WithMemory", "given beside WithStore", "leave one out")
	}
	own := k.entries("", k.Limits, k.to.Shared)
	base, routes := own, []*read.Plan(nil)
	if k.parent != nil {
		base, routes = k.inherit(own)
	}
	k.to.Plans.Base = read.NewPlan("", base, k.to.charges)
	k.checkBans("", k.to.Plans.Base, k.Limits)
	for _, rc := range k.Routes {
		routes = append(routes, k.route(rc, base))
	}
	k.to.Plans.Routes, k.to.Plans.Router = routes, nil
	if len(routes) > 0 {
		k.to.Plans.Router = k.router(routes)
	}
	k.checkShares()
	switch key := k.to.Shared.Key; {
	case len(k.Funcs) == 0:
	case key == nil:
		k.errs.Bad("WithLimitFunc", "no default key", "write stint.WithKey beside it")
	case key.Given:
		k.errs.Bad("WithLimitFunc", "the default key is GivenKey(), which requests don't have", "write another stint.WithKey beside it")
	}
	if k.parent == nil && len(k.Limits)+len(k.Funcs)+len(k.Routes) == 0 {
		k.errs.Bad("", "no limits", "write at least one, such as stint.Rate(10, time.Second)")
	}
}

// entries makes the entries of a route's limits, or of the limiter's own.
func (k *compiler) entries(route string, rules []*Rule, s Settings) (all []*read.Entry) {
	seen := map[*Rule]bool{}
	for _, r := range rules {
		if seen[r] {
			k.bad(mistake.Mistake{Route: route, Limit: r.Spec.Name, Problem: "given twice", Write: "leave one out"})
			continue
		}
		seen[r] = true
		settings := r.Shared.Or(s)
		if settings.Key == nil {
			k.bad(mistake.Mistake{Route: route, Limit: k.naming.name(r), Problem: "no key, and no default is safe",
				Write: "write stint.WithKey(stint.RemoteIP()), behind a proxy stint.ForwardedIP(trusted...), " +
					"stint.Global() for all requests together, or stint.GivenKey() for keys that Take is given"})
		}
		if compiled := k.naming.limits[r]; compiled != nil { // or limits has reported it
			e := k.entry(r, compiled, settings, k.naming.look(settings.Key))
			if m := tooHigh(route, e); m != nil {
				k.bad(*m)
			}
			if wrong := idleShares(r, e); wrong != nil {
				k.idle = append(k.idle, idle{compiled, wrong.At(route, e.Name())})
			}
			k.to.settings[e] = settings
			all = append(all, e)
		}
	}
	return all
}

// inherit adds the limiter's own entries to its parent's, and to those of the parent's
// routes.
func (k *compiler) inherit(own []*read.Entry) (base []*read.Entry, routes []*read.Plan) {
	inherited := k.parent.Plans.Base.Entries
	for _, e := range own {
		if slices.ContainsFunc(inherited, func(p *read.Entry) bool { return p.Limit.Limit == e.Limit.Limit }) {
			k.bad(mistake.Mistake{Limit: e.Name(), Problem: "inherited already", Write: "leave it out"})
		}
	}
	for _, p := range k.parent.Plans.Routes {
		if slices.ContainsFunc(k.Routes, func(rc Route) bool { return rc.Pattern == p.Pattern }) {
			continue
		}
		// A route that is exempt stays exempt from the parent's limits.
		added := read.NewPlan("", own, k.to.charges[len(k.parent.charges):])
		routes = append(routes, read.Joined(p, added))
	}
	return append(slices.Clip(inherited), own...), routes
}

// route makes the plan of a WithRoute. base are the limiter's own limits.
func (k *compiler) route(rc Route, base []*read.Entry) *read.Plan {
	k.errs = append(k.errs, append(slices.Clip(rc.Errs), rc.Shared.Errs...).At(rc.Pattern, "")...)
	all := k.entries(rc.Pattern, rc.Limits, rc.Shared.Or(k.to.Shared))
	if len(rc.Limits) == 0 && !rc.Inherit {
		return read.NewPlan(rc.Pattern, nil, nil)
	}
	written := rc.Limits
	if rc.Inherit {
		if len(base)+len(k.to.Funcs)+len(k.Limits) == 0 {
			k.bad(mistake.Mistake{Route: rc.Pattern, Option: "Inherit()", Problem: "the limiter has no limits", Write: "write some in New, or in the route"})
		}
		inherited := k.inheritEntries(k.naming, base, k.to.settings, rc.Shared)
		for _, e := range inherited {
			if m := tooHigh(rc.Pattern, e); m != nil && e.Fixed == rc.Shared.Fixed { // others are reported where they stand
				k.bad(*m)
			}
		}
		all = append(inherited, all...)
		if i := slices.IndexFunc(rc.Limits, func(r *Rule) bool {
			return slices.ContainsFunc(base, func(e *read.Entry) bool { return k.naming.limits[r] == e.Limit.Limit })
		}); i >= 0 {
			k.bad(mistake.Mistake{Route: rc.Pattern, Limit: k.naming.name(rc.Limits[i]), Problem: "given twice, once by Inherit()", Write: "leave one out"})
		}
		written = slices.Concat(k.Limits, written)
	}
	p := read.NewPlan(rc.Pattern, all, k.to.charges)
	k.checkBans(rc.Pattern, p, written)
	return p
}

// checkBans reports the bans of a plan that nothing feeds.
func (k *compiler) checkBans(route string, p *read.Plan, written []*Rule) {
	if slices.ContainsFunc(written, func(r *Rule) bool { return k.naming.limits[r] == nil }) {
		return // a limit that is wrong may be what another lacks
	}
	if len(p.Funcs) > 0 {
		return // its limits are not known yet
	}
	for _, e := range p.Entries {
		if e.Needs&limit.Counts == 0 {
			continue
		}
		if wrong := lacksFeed(e, p.Entries); wrong != nil {
			wrong.Route, wrong.Limit = route, e.Name()
			k.bad(*wrong)
		}
	}
}

// checkShares reports shares that order no waiters in any place. The limiter's own limits are also
// those of Limiter.Wait, which lets callers wait for slots whatever their options say.
func (k *compiler) checkShares() {
	orders := map[*store.Limit]bool{}
	for _, e := range k.to.Plans.Base.Entries {
		orders[e.Limit.Limit] = true
	}
	for e := range k.to.Plans.Entries {
		if e.Needs&limit.Waits != 0 {
			orders[e.Limit.Limit] = true
		}
	}
	for _, i := range k.idle {
		if !orders[i.limit] {
			k.errs = append(k.errs, i.wrong...)
		}
	}
}

// router makes the router of routes.
func (k *compiler) router(routes []*read.Plan) *routing.Router {
	patterns := make([]string, len(routes))
	for i, p := range routes {
		patterns[i] = p.Pattern
	}
	rt, problems := routing.New(patterns)
	for _, p := range problems {
		k.bad(mistake.Mistake{Route: p.Pattern, Problem: p.What, Write: p.Write})
	}
	return rt
}

// limits names and compiles the limits that the naming doesn't know yet.
func (k *compiler) limits() {
	fresh := slices.DeleteFunc(k.uses(), func(u use) bool {
		_, known := k.naming.limits[u.rule]
		return known
	})
	rules := make([]*Rule, len(fresh))
	for i, u := range fresh {
		rules[i] = u.rule
	}
	final, taken := k.naming.assign(rules)
	for _, i := range taken {
		k.errs = append(k.errs, Namesake(fresh[i].route, final[i]))
	}
	for i, u := range fresh {
		l, wrong := u.rule.compile(final[i])
		k.errs = append(k.errs, wrong.At(u.route, final[i])...)
		if l != nil {
			// A limit whose numbers haven't changed stays the same one, for what a store
			// remembers of it.
			if b := k.naming.before[final[i]]; b != nil && u.rule.same(b) && b.Spec() == l.Spec() {
				l = b
			}
			l = u.rule.decideHere(l, k.Adaptive)
		}
		k.naming.limits[u.rule] = l
	}
}

// checkNames reports the limits that need a name: the limiter's own, and those it inherits
// from one whose store no other limiter could use.
func (k *compiler) checkNames() {
	if !k.to.Lent {
		return
	}
	for _, u := range k.uses() {
		if !u.rule.Named {
			k.errs = append(k.errs, Unnamed(u.route, u.rule))
		}
	}
	if k.parent == nil || k.parent.Lent {
		return
	}
	seen := map[*Rule]bool{}
	for e := range k.parent.Plans.Entries {
		if r := k.naming.rules[e.Name()]; !r.Named && !seen[r] {
			seen[r] = true
			m := Unnamed("", r)
			m.Problem = "inherited with " + m.Problem
			k.errs = append(k.errs, m)
		}
	}
}

// Namesake reports the name of another limit.
func Namesake(route, name string) *mistake.Mistake {
	return &mistake.Mistake{Route: route, Limit: name, Problem: "another limit has that name", Write: "write another stint.WithName"}
}

// Unnamed reports a limit without a WithName whose store others may use.
func Unnamed(route string, r *Rule) *mistake.Mistake {
	return &mistake.Mistake{Route: route, Limit: r.Spec.Name,
		Problem: "a default name, which other limits in the store may have too", Write: "write stint.WithName"}
}
