package policy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// document is a whole file.
type document struct {
	node        *yaml.Node
	version     bool
	domain      bool // a file for Envoy's rate limit service
	limited     bool // limits, routes or plans contain something
	settings    settings
	dryRun      bool
	limits      []entry
	routes      []*route
	plans       []*plan
	plansNode   *yaml.Node
	defaultPlan *yaml.Node
	options     []stint.Option // priority, headers, retry-jitter, skip, block
}

// entry is an item of limits: a limit, or the name of one.
type entry struct {
	node  *yaml.Node
	limit *limit // nil for a name, until it is resolved
}

type route struct {
	node      *yaml.Node
	pattern   string
	settings  settings
	limits    []entry
	hasLimits bool // limits or only
	only      bool
	exempt    bool

	denyHandler http.Handler // or nil
}

type plan struct {
	node      *yaml.Node
	name      string
	limits    []entry
	hasLimits bool
}

const documentExample = "version: 1, key and limits"

// documentFields returns the fields in the order in which they are read: what others
// refer to comes first. It is a function because keys contain keys.
func documentFields() []field[document] {
	fields := []field[document]{
		{"version", func(d *decoder, n *yaml.Node, doc *document) {
			doc.version = true
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Value != "1" {
				d.bad(n, "unknown version: write version: 1")
			}
		}},
		{"domain", func(d *decoder, n *yaml.Node, _ *document) { d.domainName(n) }},
		{"keys", func(d *decoder, n *yaml.Node, _ *document) { d.keys(n) }},
		{"dry-run", func(d *decoder, n *yaml.Node, doc *document) { doc.dryRun, _ = d.boolean(n, "dry-run") }},
	}
	fields = append(fields, settingsFields(func(doc *document) *settings { return &doc.settings })...)
	fields = append(fields, priorityFields...)
	return append(fields, []field[document]{
		{"limits", func(d *decoder, n *yaml.Node, doc *document) {
			doc.limits = d.entries(n, doc)
			doc.limited = doc.limited || len(n.Content) > 0
		}},
		{"routes", func(d *decoder, n *yaml.Node, doc *document) {
			doc.limited = true
			values, _ := d.mapping(n, "routes", `{"POST /login": {limits: [...]}}`)
			for _, v := range values {
				r := &route{node: v.key, pattern: v.key.Value}
				if object(d, v.value, "a route", "{limits: [{name: login, rate: 5/1m}]}, or {exempt: true}", routeFields(doc), r) {
					d.checkRoute(v.key, r)
				}
				doc.routes = append(doc.routes, r)
				d.routes[r.pattern] = place{v.key.Line, v.key.Column}
			}
		}},
		{"plans", func(d *decoder, n *yaml.Node, doc *document) {
			doc.plansNode, doc.limited = n, true
			values, _ := d.mapping(n, "plans", "{free: {limits: [...]}, pro: {limits: [...]}}")
			for _, v := range values {
				p := &plan{node: v.key, name: v.key.Value}
				if object(d, v.value, "a plan", "{limits: [{name: requests, quota: 1000/daily}]}", planFields(doc), p) &&
					!p.hasLimits {
					d.bad(v.key, "a plan without limits: write them, or limits: [] for none")
				}
				doc.plans = append(doc.plans, p)
			}
		}},
		{"default-plan", func(d *decoder, n *yaml.Node, doc *document) {
			if _, ok := d.text(n, "default-plan", "the name of a plan"); ok {
				doc.defaultPlan = n
			}
		}},
		{"headers", func(d *decoder, n *yaml.Node, doc *document) { d.headers(n, doc) }},
		{"deny-handler", func(d *decoder, n *yaml.Node, doc *document) {
			if h := d.denyHandler(n); h != nil {
				doc.options = append(doc.options, stint.WithDenyHandler(h))
			}
		}},
		{"retry-jitter", func(d *decoder, n *yaml.Node, doc *document) {
			if v, ok := d.duration(n, "retry-jitter"); ok {
				doc.options = append(doc.options, stint.WithRetryJitter(v))
			}
		}},
		{"skip", func(d *decoder, n *yaml.Node, doc *document) {
			for _, p := range d.predicates(n, "skip") {
				doc.options = append(doc.options, p.skip)
			}
		}},
		{"block", func(d *decoder, n *yaml.Node, doc *document) {
			for _, p := range d.predicates(n, "block") {
				doc.options = append(doc.options, p.block)
			}
		}},
	}...)
}

func routeFields(doc *document) []field[route] {
	limits := func(only bool) func(*decoder, *yaml.Node, *route) {
		return func(d *decoder, n *yaml.Node, r *route) {
			if r.hasLimits {
				d.bad(n, "both limits and only: leave one out: "+
					"limits adds to the limits of less specific routes, only replaces them")
				return
			}
			r.limits, r.hasLimits, r.only = d.entries(n, doc), true, only
			if len(n.Content) == 0 {
				d.bad(n, "no limits: write some, or exempt: true if requests of the route have none")
			}
		}
	}
	settingsOf := func(r *route) *settings { return &r.settings }
	return append(settingsFields(settingsOf), skipField(settingsOf),
		field[route]{"limits", limits(false)}, field[route]{"only", limits(true)},
		field[route]{"deny-handler", func(d *decoder, n *yaml.Node, r *route) { r.denyHandler = d.denyHandler(n) }},
		field[route]{"exempt", func(d *decoder, n *yaml.Node, r *route) {
			on, ok := d.boolean(n, "exempt")
			if r.exempt = on; ok && !on {
				d.bad(n, "exempt: false says nothing: leave it out")
			}
		}})
}

// checkRoute reports a route with nothing, and one that is exempt and has something.
func (d *decoder) checkRoute(at *yaml.Node, r *route) {
	set := len(r.settings.options) > 0 || r.settings.keyed || r.denyHandler != nil
	switch {
	case r.exempt && (r.hasLimits || set):
		d.bad(at, "exempt beside something else: leave one out")
	case !r.exempt && !r.hasLimits && !set:
		d.bad(at, "a route with nothing: write limits, only, a cost, or exempt: true")
	}
}

// denyHandler returns the handler that n names, or nil.
func (d *decoder) denyHandler(n *yaml.Node) http.Handler {
	name, ok := d.text(n, "deny-handler", "the name of a handler given to policy.WithDenyHandler")
	if !ok {
		return nil
	}
	h := d.config.handlers[name]
	if h == nil {
		d.unknown(n, "unknown deny-handler %q: %s; handlers are registered with policy.WithDenyHandler",
			name, suggestion(name, slices.Sorted(maps.Keys(d.config.handlers))))
	}
	return h
}

func planFields(doc *document) []field[plan] {
	return []field[plan]{{"limits", func(d *decoder, n *yaml.Node, p *plan) {
		p.limits, p.hasLimits = d.entries(n, doc), true
	}}}
}

func (d *decoder) headers(n *yaml.Node, doc *document) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	styles := map[string]stint.HeaderStyle{"ratelimit": stint.RateLimitHeaders, "x-ratelimit": stint.XRateLimitHeaders,
		"x-ratelimit-unix": stint.XRateLimitUnixHeaders, "none": stint.NoHeaders}
	var set []stint.HeaderStyle
	for _, item := range items {
		if word, ok := d.word(item, "header style", "ratelimit", "x-ratelimit", "x-ratelimit-unix", "none"); ok {
			set = append(set, styles[word])
		}
	}
	switch {
	case len(set) < len(items):
	case len(items) == 0:
		d.bad(n, "headers names no style: write ratelimit, x-ratelimit, x-ratelimit-unix or none")
	case len(set) > 1 && slices.Contains(set, stint.NoHeaders):
		d.bad(n, "none beside another style: leave one out")
	case slices.Contains(set, stint.XRateLimitHeaders) && slices.Contains(set, stint.XRateLimitUnixHeaders):
		d.bad(n, "one X-RateLimit-Reset can't be both seconds and a Unix time: leave x-ratelimit or x-ratelimit-unix out")
	default:
		doc.options = append(doc.options, stint.WithHeaders(set...))
	}
}

// entries reads a list of limits and names of limits.
func (d *decoder) entries(n *yaml.Node, doc *document) (all []entry) {
	items, _ := d.list(n, "limits", "[{name: per-client, rate: 100/1m}]")
	for _, item := range items {
		e := entry{node: item}
		if item.Kind != yaml.ScalarNode {
			e.limit = d.limit(item, doc.dryRun)
		} else if item.ShortTag() != "!!str" {
			d.bad(item, "a limit must be a mapping, or the name of a limit: write %s", limitExample)
			continue
		}
		all = append(all, e)
	}
	return all
}

// staticLimits returns the limits of the document and its routes, each once.
func (doc *document) staticLimits() (all []*limit) {
	lists := [][]entry{doc.limits}
	for _, r := range doc.routes {
		lists = append(lists, r.limits)
	}
	seen := map[*limit]bool{nil: true}
	for _, list := range lists {
		for _, e := range list {
			if !seen[e.limit] {
				seen[e.limit] = true
				all = append(all, e.limit)
			}
		}
	}
	return all
}

// document reads the root of a file, checks that its parts fit together, and returns
// the options that the file stands for.
func (d *decoder) document(root *yaml.Node) []stint.Option {
	doc := &document{node: root}
	if !object(d, root, "a policy", documentExample, documentFields(), doc) {
		return nil
	}
	if !doc.version {
		d.bad(root, "no version: write version: 1")
	}
	d.resolve(doc)
	d.checkKeys(doc)
	d.checkRoutes(doc)
	d.checkPlans(doc)
	if !doc.limited {
		d.bad(root, "nothing is limited: write limits, such as [{name: per-client, rate: 100/1m}]")
	}
	if len(d.errs) > 0 {
		return nil
	}
	if doc.domain = d.domain != ""; doc.domain && len(doc.limits) > 0 {
		unrouted := *doc
		unrouted.routes = nil
		d.base = append([]stint.Option{stint.Complete()}, unrouted.buildOptions(d.config)...)
	}
	options := doc.buildOptions(d.config)
	d.reportProblems(doc, problemsOf(options...))
	for _, l := range append(doc.staticLimits(), doc.limitsOf(d.config.onlyPlan)...) {
		d.places[l.name] = place{l.node.Line, l.node.Column}
		if l.after {
			d.after = append(d.after, l.name)
		}
	}
	return options
}

// resolve checks that names are unique and finds the limits that are referred to by
// name.
//
// A name that stint would make up ("rate-2") changes when a limit is added before it,
// and the counts kept under it are lost. A file must be able to change while counts are
// kept, so it needs a name as soon as two would be the same.
func (d *decoder) resolve(doc *document) {
	byName := map[string]*limit{}
	for _, l := range doc.staticLimits() {
		if d.config.sharedStore && l.kind != nil && !l.named {
			d.bad(l.node, "a limit without a name gets the name %q, which other limits in the store may have too: write a name",
				l.name)
			continue
		}
		d.checkUnique(byName, l, !slices.ContainsFunc(doc.limits, func(e entry) bool { return e.limit == l }))
	}
	for i := range doc.limits {
		if e := &doc.limits[i]; e.limit == nil {
			d.bad(e.node, "a limit's name may stand only in a route: write the limit here, %s", limitExample)
		}
	}
	for _, r := range doc.routes {
		d.resolveNames(r.limits, byName)
	}
	for _, p := range doc.plans {
		taken := maps.Clone(byName)
		for _, e := range p.limits {
			if e.limit == nil {
				d.bad(e.node, "a plan can't use limits by name: write the limit here, %s", limitExample)
				continue
			}
			if e.limit.kind != nil && !e.limit.named {
				d.bad(e.node, "a plan's limit needs a name, because its counts are kept under the name: write one")
				continue
			}
			d.checkUnique(taken, e.limit, false)
		}
	}
}

func (d *decoder) checkUnique(byName map[string]*limit, l *limit, route bool) {
	switch first := byName[l.name]; {
	case l.kind == nil:
	case first == nil:
		byName[l.name] = l
	case l.named && route:
		d.bad(l.node, "the name %q is taken in line %d: write another, or the name alone to have that limit here, too: [%s]",
			l.name, first.node.Line, l.name)
	case l.named:
		d.bad(l.node, "the name %q is taken in line %d: write another", l.name, first.node.Line)
	default:
		d.bad(l.node, "a limit without a name gets the name %q, as does the one in line %d: write a name", l.name,
			first.node.Line)
	}
}

func (d *decoder) resolveNames(list []entry, byName map[string]*limit) {
	for i := range list {
		e := &list[i]
		if e.limit == nil {
			name := e.node.Value
			if e.limit = byName[name]; e.limit == nil {
				d.bad(e.node, "no limit is called %q: %s", name, suggestion(name, slices.Sorted(maps.Keys(byName))))
				continue
			}
		}
		for _, other := range list[:i] {
			if other.limit == e.limit {
				d.bad(e.node, "the limit %q is listed twice: leave one out", e.limit.name)
			}
		}
	}
}

// checkKeys reports limits without a key.
func (d *decoder) checkKeys(doc *document) {
	if doc.settings.keyed && d.config.hasKey {
		d.bad(doc.node,
			"a key at the top, and another in policy.WithOptions: leave one out; {first-of: [...]} makes one key of two")
	}
	if doc.settings.keyed || d.config.hasKey {
		return
	}
	need := func(e entry, route bool) {
		if e.limit != nil && e.limit.kind != nil && !e.limit.settings.keyed && !route {
			d.bad(e.node, "a limit without a key, and no default is safe: write a key here or at the top, "+
				"such as remote-ip, behind a proxy {forwarded-ip: {trusted: [...]}}, or global for all requests together")
		}
	}
	for _, e := range doc.limits {
		need(e, false)
	}
	for _, r := range doc.routes {
		for _, e := range r.limits {
			need(e, r.settings.keyed)
		}
	}
	if doc.plansNode != nil {
		d.bad(doc.plansNode, "plans without a default key: write a key at the top")
	}
}

// checkRoutes asks stint.Check about the patterns, even if other parts of the file are
// wrong.
func (d *decoder) checkRoutes(doc *document) {
	opts := []stint.Option{probe}
	for _, r := range doc.routes {
		opts = append(opts, stint.WithRoute(r.pattern, stint.Exempt()))
	}
	d.reportProblems(&document{node: doc.node, routes: doc.routes}, problemsOf(opts...))
}

func (d *decoder) checkPlans(doc *document) {
	if doc.plansNode == nil && d.config.onlyPlan != "" {
		d.bad(doc.node, "the file has no plans, but the plan %q is asked for: write it under plans, or ask for none",
			d.config.onlyPlan)
	}
	if doc.plansNode == nil {
		if doc.defaultPlan != nil {
			d.bad(doc.defaultPlan, "default-plan without plans: write plans, or leave it out")
		}
		return
	}
	d.checkServed(doc.plansNode, "plans")
	if d.config.plan == nil && d.config.onlyPlan == "" && !d.config.server {
		d.bad(doc.plansNode, "plans need a function that returns a request's plan: register one with policy.WithPlanFunc")
	}
	if len(doc.plans) == 0 {
		d.bad(doc.plansNode, "plans is empty: write some, or leave it out")
	}
	var planNames []string
	for _, p := range doc.plans {
		planNames = append(planNames, p.name)
	}
	if n := doc.defaultPlan; n != nil && !slices.Contains(planNames, n.Value) {
		d.bad(n, "no plan is called %q: %s", n.Value, suggestion(n.Value, planNames))
	}
	if name := d.config.onlyPlan; name != "" && !slices.Contains(planNames, name) {
		d.bad(doc.plansNode, "no plan is called %q: %s", name, suggestion(name, planNames))
	}
}

// buildOptions makes the options of a document that has no mistakes.
func (doc *document) buildOptions(config *config) []stint.Option {
	options := slices.Clone(config.options)
	if doc.domain {
		options = append(options, stint.WithEmptyKey(stint.SkipEmptyKey))
	}
	for _, s := range doc.settings.options {
		options = append(options, s.option)
	}
	for _, e := range doc.limits {
		options = append(options, e.limit.built)
	}
	for _, r := range doc.routes {
		var opts []stint.RouteOption
		for _, s := range r.settings.options {
			opts = append(opts, s.option)
		}
		var limits []stint.Limit
		for _, e := range r.limits {
			limits = append(limits, e.limit.built)
		}
		switch {
		case r.exempt:
			opts = append(opts, stint.Exempt())
		case r.only:
			opts = append(opts, stint.Only(limits...))
		default:
			for _, l := range limits {
				opts = append(opts, l)
			}
		}
		if r.denyHandler != nil {
			opts = append(opts, stint.WithDenyHandler(r.denyHandler))
		}
		options = append(options, stint.WithRoute(r.pattern, opts...))
	}
	switch {
	case config.onlyPlan != "":
		for _, l := range doc.limitsOf(config.onlyPlan) {
			options = append(options, l.built)
		}
	case len(doc.plans) > 0:
		options = append(options, stint.WithLimitFunc(doc.limitFunc(config.plan)))
	}
	return append(options, doc.options...)
}

// limitsOf returns the limits of a plan.
func (doc *document) limitsOf(name string) (all []*limit) {
	for _, p := range doc.plans {
		for _, e := range p.limits {
			if p.name == name && e.limit != nil {
				all = append(all, e.limit)
			}
		}
	}
	return all
}

// limitFunc looks up the plan of a request.
func (doc *document) limitFunc(planOf func(*http.Request) (string, error)) func(*http.Request) ([]stint.Limit, error) {
	plans := make(map[string][]stint.Limit, len(doc.plans))
	for _, p := range doc.plans {
		limits := make([]stint.Limit, len(p.limits))
		for i, e := range p.limits {
			limits[i] = e.limit.built
		}
		if len(limits) == 0 { // limits: []
			limits = []stint.Limit{stint.Exempt()}
		}
		plans[p.name] = limits
	}
	var otherwise []stint.Limit
	fallBack := doc.defaultPlan != nil
	if fallBack {
		otherwise = plans[doc.defaultPlan.Value]
	}
	return func(r *http.Request) ([]stint.Limit, error) {
		name, err := planOf(r)
		if err != nil {
			return nil, err
		}
		if limits, found := plans[name]; found {
			return limits, nil
		}
		if fallBack {
			return otherwise, nil
		}
		return nil, fmt.Errorf("policy: unknown plan %q, and the file has no default-plan", name)
	}
}
