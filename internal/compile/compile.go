package compile

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/store"
)

// Config is the part of the options of one New or With that is about limits.
type Config struct {
	Defaults    Settings // defaults
	Limits      []*Rule
	Routes      []Route
	Funcs       []func(*Func) *read.Func
	Skip, Block []func(*http.Request) bool

	Store store.Store
	// Priority returns the class of a request, or is nil. It is the parent's unless the options say otherwise.
	Priority func(*http.Request) int

	// Owner identifies the limiter, from one Update to the next.
	Owner any

	Errs optionerror.List
}

// Route is one WithRoute.
type Route struct {
	Pattern  string
	Defaults Settings
	Limits   []*Rule
	Only     bool // by Only: they are instead of all that is less specific
	Exempt   bool // by Exempt: likewise, and there are none
	// DenyHandler answers requests that a limit denies, or is nil.
	DenyHandler http.Handler
	Errs        optionerror.List
}

// Result is a limiter's compiled options.
type Result struct {
	Plans read.Plans
	Funcs []*Func
	// Defaults are the defaults of limits that are added by With.
	Defaults Settings
	// StoreShared: the store is of WithStore, and other limiters may use it.
	StoreShared bool
}

// Keys returns the keys of WithKey among the options, each once.
func (c *Config) Keys() (all []*keys.Key) {
	add := func(k *keys.Key) {
		if k != nil && !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	add(c.Defaults.Key)
	for _, rc := range c.Routes {
		add(rc.Defaults.Key)
	}
	for _, u := range c.uses() {
		add(u.rule.Settings.Key)
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
	generation *Generation // that will have names
	names      *Names      // which the compilation extends
	parent     *Result     // that the limiter extends, or nil
	result     *Result
	funcs      []*read.Func // of the options
	errs       optionerror.List
	idle       []idleQueue
	keyless    []optionerror.Problem // the limits without a key, each at a route
}

// idleQueue is a limit at a route where its shares or its fair queue order no waiters. That is a problem if it has no
// other place.
type idleQueue struct {
	limit    *store.Limit
	shares   bool // for callers of Limiter.Wait these are enough
	problems optionerror.List
}

// Compile turns the options of a limiter into plans. parent is that of the limiter which it
// extends, or nil. The limits are named in names, which will be those of generation.
// storeShared says that the store is of WithStore.
func (reg *Registry) Compile(c *Config, parent *Result, generation *Generation, names *Names,
	storeShared bool) (*Result, optionerror.List) {
	result := new(Result)
	if parent != nil {
		*result = *parent
	}
	k := &compiler{Registry: reg, Config: c, generation: generation, names: names, parent: parent, result: result}
	result.StoreShared = storeShared
	result.Defaults = c.Defaults.WithDefaults(result.Defaults)
	result.Defaults.Errs = nil
	for _, made := range c.Funcs {
		f := &Func{Owner: c.Owner, Defaults: result.Defaults, registry: reg, storeShared: storeShared, generation: generation,
			sample: names.sampleOf(result.Defaults.Key)}
		result.Funcs = append(slices.Clip(result.Funcs), f)
		fn := made(f)
		fn.Sample, fn.SourceSample = f.sample, names.sampleOf(f.Source)
		k.funcs = append(k.funcs, fn)
	}
	result.Plans.Skip = append(slices.Clip(result.Plans.Skip), c.Skip...)
	result.Plans.Block = append(slices.Clip(result.Plans.Block), c.Block...)
	result.Plans.Priority = c.Priority
	k.run()
	return result, k.errs
}

func (k *compiler) bad(m optionerror.Problem) { k.errs = append(k.errs, &m) }

func (k *compiler) run() {
	k.errs = append(slices.Clip(k.Errs), k.Config.Defaults.Errs...)
	k.errs = append(k.errs, optionerror.OfStore("WithStore", k.Store)...)
	k.limits()
	k.checkNames()
	level := read.Level{Routes: map[string]*read.Layer{}}
	level.Base = &read.Layer{Entries: k.entries("", k.Limits, k.result.Defaults), Funcs: k.funcs}
	for _, rc := range k.Routes {
		level.Routes[rc.Pattern] = k.route(rc)
	}
	k.checkKeys()
	k.plans(level)
	k.checkSettings("", k.Config.Defaults, k.Limits)
	k.checkQueues()
	switch key := k.result.Defaults.Key; {
	case len(k.Funcs) == 0:
	case key == nil:
		k.errs.Add(k.result.Funcs[0].Option(), "the function's limits need a default key",
			"add stint.WithKey to the limiter, such as stint.WithKey(stint.RemoteIP())")
	case key.Given:
		k.errs.Add(k.result.Funcs[0].Option(), "the default key is GivenKey(), which requests don't have",
			"use another key in stint.WithKey, such as stint.RemoteIP()")
	}
	limits := func(rc Route) bool { return !rc.Exempt }
	if k.parent == nil && len(k.Limits)+len(k.Funcs) == 0 && !slices.ContainsFunc(k.Routes, limits) {
		k.errs.Add("", "no limits", "add at least one, such as stint.Rate(10, time.Second)")
	}
}

// checkKeys reports the limits without a key, all at once: one WithKey of the limiter is what most of them lack.
func (k *compiler) checkKeys() {
	if len(k.keyless) == 0 {
		return
	}
	problem := k.keyless[0]
	problem.What = "the limit has no key, and no default would be safe"
	if len(k.keyless) > 1 {
		which := make([]string, len(k.keyless))
		for i, l := range k.keyless {
			if which[i] = fmt.Sprintf("%.80q", l.Limit); l.Route != "" {
				which[i] += fmt.Sprintf(" of WithRoute(%q)", l.Route)
			}
		}
		problem = optionerror.Problem{What: "the limits " + strings.Join(which[:len(which)-1], ", ") + " and " +
			which[len(which)-1] + " have no key, and no default would be safe"}
	}
	problem.Write = "add stint.WithKey(stint.RemoteIP()), or another key: stint.ForwardedIP(trusted...) behind a proxy, " +
		"stint.Global() for one limit on all requests, stint.GivenKey() if you call Take yourself"
	k.bad(problem)
}

// entries makes the entries of a route's limits, or of the limiter's own.
func (k *compiler) entries(route string, rules []*Rule, defaults Settings) (all []*read.Entry) {
	seen := map[*Rule]bool{}
	for _, r := range rules {
		if seen[r] {
			k.bad(optionerror.Problem{Route: route, Limit: r.Spec.Name, What: "given twice", Write: "leave one out"})
			continue
		}
		seen[r] = true
		settings := r.Settings.WithDefaults(defaults)
		if settings.Key == nil {
			k.keyless = append(k.keyless, optionerror.Problem{Route: route, Limit: k.names.name(r)})
		}
		if r.Bytes != nil && settings.Key != nil && settings.Key.Given {
			k.bad(optionerror.Problem{Route: route, Limit: k.names.name(r), Option: "WithKey(GivenKey())",
				What:  NoGivenKey + ", and Take ignores a Bandwidth",
				Write: "use another key for the Bandwidth, such as stint.RemoteIP()"})
		}
		if compiled := k.names.limits[r]; compiled != nil { // or limits has reported it
			e := k.entry(r, compiled, settings, k.names.sampleOf(settings.Key))
			if problem := checkFixedCost(route, e); problem != nil {
				k.bad(*problem)
			}
			if problems := checkWaiters(r, e); problems != nil {
				k.idle = append(k.idle, idleQueue{compiled, r.Line.Shares != nil, problems.At(route, e.Name())})
			}
			all = append(all, e)
		}
	}
	return all
}

// plans makes the plans of the limiter: its own level, beside those of its parent.
func (k *compiler) plans(level read.Level) {
	var levels []read.Level
	var patterns []string
	if k.parent != nil {
		levels, patterns = slices.Clip(k.parent.Plans.Levels), slices.Clip(k.parent.Plans.Patterns())
	}
	inherited := map[string]bool{}
	for _, p := range patterns {
		inherited[p] = true
	}
	for _, rc := range k.Routes {
		if !inherited[rc.Pattern] { // a pattern that is given twice is reported
			patterns = append(patterns, rc.Pattern)
		}
	}
	k.result.Plans.Router = nil
	if len(patterns) > 0 {
		rt, problems := routing.New(patterns)
		for _, p := range problems {
			k.bad(optionerror.Problem{Route: p.Pattern, What: p.What, Write: p.Write})
		}
		if k.result.Plans.Router = rt; problems != nil {
			patterns = nil // without a router, routes have no plans
		}
	}
	k.result.Plans.Build(append(levels, level), patterns)
	for _, p := range k.result.Plans.All() {
		k.checkTwice(p)
		k.checkCosts(p)
	}
	for _, rc := range k.Routes {
		k.checkRoute(rc, level.Routes[rc.Pattern])
	}
	k.checkBans(level)
}

// route makes the layer of a WithRoute.
func (k *compiler) route(rc Route) *read.Layer {
	k.errs = append(k.errs, append(slices.Clip(rc.Errs), rc.Defaults.Errs...).At(rc.Pattern, "")...)
	l := &read.Layer{Entries: k.entries(rc.Pattern, rc.Limits, rc.Defaults.WithDefaults(k.result.Defaults)),
		Only: rc.Only || rc.Exempt, DenyHandler: rc.DenyHandler}
	if rc.Defaults.Cost != nil {
		l.Cost = &read.Cost{Func: rc.Defaults.Cost, Fixed: rc.Defaults.Fixed}
	}
	return l
}

// checkTwice reports a limit that is written in several of the places that hold for a request.
func (k *compiler) checkTwice(p *read.Plan) {
	for i, e := range p.Entries {
		if slices.ContainsFunc(p.Entries[:i], func(o *read.Entry) bool { return o.StoreLimit == e.StoreLimit }) &&
			slices.ContainsFunc(p.Declared, func(o *read.Entry) bool { return o.StoreLimit == e.StoreLimit }) {
			m := optionerror.Problem{Limit: e.Name(),
				What: "a limiter that this one is derived from has this limit already", Write: "leave it out"}
			if p.Pattern != "" {
				m = optionerror.Problem{Route: p.Pattern, Limit: e.Name(),
					What:  "it applies to the route already, from the limiter or a less specific route",
					Write: "leave it out, or use stint.Only if the route's limits should replace those"}
			}
			k.bad(m)
		}
	}
}

// checkCosts reports limits that never let a route's fixed cost pass.
func (k *compiler) checkCosts(p *read.Plan) {
	declares := func(l read.Level) bool { return l.Routes[p.Pattern] != nil && l.Routes[p.Pattern].Cost == p.Cost }
	if p.Cost == nil || !slices.ContainsFunc(k.result.Plans.Levels, declares) {
		return // the cost is that of a less specific route, which reports it
	}
	for _, e := range p.Entries {
		// the limits that the route declares are reported by entries
		if m := checkFixedCost(p.Pattern, e); m != nil && e.TakesRouteCost && !slices.Contains(p.Declared, e) {
			k.bad(*m)
		}
	}
}

// checkRoute reports what is wrong with a route as a whole.
func (k *compiler) checkRoute(rc Route, l *read.Layer) {
	if rc.Errs != nil || rc.Defaults.Errs != nil {
		return
	}
	bad := func(option, problem, write string) {
		k.bad(optionerror.Problem{Route: rc.Pattern, Option: option, What: problem, Write: write})
	}
	options := rc.Defaults.options()
	switch {
	case rc.Exempt && (len(rc.Limits)+len(options) > 0 || rc.DenyHandler != nil):
		bad("Exempt()", "combined with other options",
			"leave Exempt out, or the other options: an exempt route has no limits")
		return
	case !rc.Exempt && len(rc.Limits)+len(options) == 0 && rc.DenyHandler == nil:
		bad("", "the route has no limits and no options",
			"add limits, a stint.WithCost, or stint.Exempt() if its requests have no limits")
		return
	}
	defaults := rc.Defaults
	defaults.Cost = nil
	k.checkSettings(rc.Pattern, defaults, rc.Limits)
	if rc.Defaults.Cost != nil && !k.takesCost(rc.Pattern, l) {
		bad(rc.Defaults.costOption(), "no rate or quota of the route uses this cost",
			"leave it out, or add a rate or a quota without a cost of its own to the route")
	}
}

// takesCost reports whether the cost of a route's layer is that of some limit.
func (k *compiler) takesCost(pattern string, l *read.Layer) bool {
	plans := &k.result.Plans
	open := func(e *read.Entry) bool { return e.TakesRouteCost }
	for i, p := range plans.Below(pattern) {
		if (len(p.Funcs) > 0 || slices.ContainsFunc(p.Entries, open)) && plans.Applies(l, i) {
			return true
		}
	}
	return len(plans.Routes) == 0
}

// checkSettings reports the defaults that no limit takes: of a route, or of the limiter.
func (k *compiler) checkSettings(route string, s Settings, rules []*Rule) {
	if route == "" {
		rules = nil
		for _, u := range k.uses() {
			rules = append(rules, u.rule)
		}
		// whose limits aren't known, or which is a mistake of its own
		if len(k.Funcs) > 0 || len(rules) == 0 && k.parent == nil {
			return
		}
	}
	place := "route"
	if route == "" {
		place = "limiter"
	}
	for _, t := range s.options() {
		if !slices.ContainsFunc(rules, func(r *Rule) bool { return t.by(r.Kind) }) {
			var all optionerror.List
			all.Add(t.option, "no limit of the "+place+" uses this option", "leave it out, or add %v to the "+place, t.kinds)
			k.errs = append(k.errs, all.At(route, "")...)
		}
	}
}

// checkBans reports the bans of a level that count no denials.
func (k *compiler) checkBans(level read.Level) {
	if slices.ContainsFunc(k.uses(), func(u use) bool { return k.names.limits[u.rule] == nil }) {
		return // an invalid limit may be the one whose denials a ban counts
	}
	check := func(route string, l *read.Layer) {
		for _, e := range l.Entries {
			if e.Needs&limit.Counts == 0 {
				continue
			}
			if problem := k.banProblem(route, e); problem != nil {
				problem.Route, problem.Limit = route, e.Name()
				k.bad(*problem)
			}
		}
	}
	check("", level.Base)
	for _, rc := range k.Routes {
		check(rc.Pattern, level.Routes[rc.Pattern])
	}
}

// banProblem returns the problem of a ban at a route that counts no denials in any plan, or nil.
func (k *compiler) banProblem(route string, ban *read.Entry) (first *optionerror.Problem) {
	for _, p := range k.result.Plans.Below(route) {
		if !slices.Contains(p.Entries, ban) {
			continue
		}
		problem := checkCounted(ban, p.Entries)
		if problem == nil || len(p.Funcs) > 0 { // the limits of functions aren't known yet
			return nil
		}
		first = cmp.Or(first, problem)
	}
	return first
}

// checkQueues reports shares and fair queues that order no waiters in any place. The limiter's own limits are also
// those of Limiter.Wait, which lets callers wait for slots whatever their options say. For shares that is enough.
func (k *compiler) checkQueues() {
	given, waits := map[*store.Limit]bool{}, map[*store.Limit]bool{}
	for _, e := range k.result.Plans.Base.Entries {
		given[e.StoreLimit] = true
	}
	for e := range k.result.Plans.Entries {
		if e.Needs&limit.Waits != 0 {
			waits[e.StoreLimit] = true
		}
	}
	for _, i := range k.idle {
		if !waits[i.limit] && !(i.shares && given[i.limit]) {
			k.errs = append(k.errs, i.problems...)
		}
	}
}

// limits names and compiles the limits that have no name yet.
func (k *compiler) limits() {
	unnamed := slices.DeleteFunc(k.uses(), func(u use) bool {
		_, named := k.names.limits[u.rule]
		return named
	})
	rules := make([]*Rule, len(unnamed))
	for i, u := range unnamed {
		rules[i] = u.rule
	}
	names, taken := k.names.assign(rules)
	for _, i := range taken {
		m := NameTaken(unnamed[i].route, names[i])
		if m.Route != "" {
			m.Write += ", or, in routes that don't overlap, use one value in both: login := stint.Rate(…)"
		}
		k.errs = append(k.errs, m)
	}
	for i, u := range unnamed {
		l, problems := u.rule.newLimit(names[i])
		k.errs = append(k.errs, problems.At(u.route, names[i])...)
		if l != nil {
			// A limit whose numbers haven't changed stays the same one, for what a store
			// remembers of it.
			if b := k.names.before[names[i]]; b != nil && u.rule.same(b) && b.Spec() == l.Spec() {
				l = b
			}
			l = u.rule.decideInProcess(l, k.Adaptive)
		}
		k.names.limits[u.rule] = l
	}
}

// checkNames reports the limits that need a name: the limiter's own, and those it inherits
// from one whose store no other limiter could use.
func (k *compiler) checkNames() {
	if !k.result.StoreShared {
		return
	}
	for _, u := range k.uses() {
		if !u.rule.Named {
			k.errs = append(k.errs, NameMissing(u.route, u.rule))
		}
	}
	if k.parent == nil || k.parent.StoreShared {
		return
	}
	seen := map[*Rule]bool{}
	for e := range k.parent.Plans.Entries {
		if r := k.names.rules[e.Name()]; !r.Named && !seen[r] {
			seen[r] = true
			k.errs = append(k.errs, &optionerror.Problem{Limit: r.Spec.Name,
				What: "the limit of the extended limiter has only its default name, " +
					"and another limit in the store may have the same name",
				Write: "give it a name there with stint.WithName"})
		}
	}
}

// NameTaken is the problem of a limit that has the name of another one.
func NameTaken(route, name string) *optionerror.Problem {
	return &optionerror.Problem{Route: route, Limit: name, What: "another limit has that name",
		Write: "give one of them another name with stint.WithName"}
}

// NoGivenKey is the problem of a GivenKey where requests are limited.
const NoGivenKey = "requests have no such key, only calls of Take have one"

// NameMissing is the problem of a limit without a WithName in a store that other limiters may use.
func NameMissing(route string, r *Rule) *optionerror.Problem {
	return &optionerror.Problem{Route: route, Limit: r.Spec.Name,
		What:  "the limit has only its default name, and another limit in the store may have the same name",
		Write: "give it a name with stint.WithName"}
}
