package stint

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

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
	queue   int64 // how many may wait for slots
	shares  *shares
	policy  string // its item of RateLimit-Policy; "" for a dry run
	from    *limitFunc
	// adaptive is what decides an AdaptiveConcurrency, in this process; limit
	// is its name and the most it can be, and never goes to a store.
	adaptive *adaptiveRule
	// bandwidth paces the request's bytes, after it has been admitted.
	bandwidth *bandwidth
}

func (f *family) newEntry(r *rule, l *store.Limit, s settings) *entry {
	e := &entry{
		limit: l, key: s.key, cost: s.cost, settle: s.settle, maxWait: s.maxWait, dryRun: s.dryRun,
		closed: s.policy == FailClosed,
		slots:  l.Algorithm() == store.Concurrency,
		bans:   l.Algorithm() == store.Ban,
		queues: l.Spec().Queue > 0,
	}
	if e.slots {
		e.settle = nil // of the limiter: slots are released
		e.queue, e.shares = math.MaxInt64, r.shares
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
		e.policy = policyItem(l)
	}
	if r.adaptive != nil {
		e.adaptive = f.adaptive.rule(l, *r.adaptive)
	}
	return e
}

// plan is the limits of one route, or of the limiter where no route matches.
type plan struct {
	entries []*entry
	funcs   []*limitFunc
	policy  string // RateLimit-Policy of all entries
	waits   bool   // some limit may make the request wait
}

func newPlan(entries []*entry, funcs []*limitFunc) *plan {
	p := &plan{entries: entries, funcs: funcs, waits: len(funcs) > 0}
	var items []string
	for _, e := range entries {
		p.waits = p.waits || e.maxWait > 0 || e.queues
		if e.policy != "" {
			items = append(items, e.policy)
		}
	}
	p.policy = strings.Join(items, ", ")
	return p
}

// exempt reports whether the plan limits nothing at all.
func (p *plan) exempt() bool { return len(p.entries) == 0 && len(p.funcs) == 0 }

// route is one WithRoute, compiled. Its entries don't include those that a
// limiter derived later adds.
type route struct {
	pattern string
	plan    *plan
}

// router finds the plan of a request. http.ServeMux does the matching, so that
// patterns mean what they mean everywhere else.
type router struct {
	mux    *http.ServeMux
	plans  map[string]*plan
	routes []route
}

func newRouter(routes []route) (*router, error) {
	if len(routes) == 0 {
		return nil, nil
	}
	rt := &router{mux: http.NewServeMux(), plans: make(map[string]*plan, len(routes)), routes: routes}
	var errs []error
	for _, r := range routes {
		if _, dup := rt.plans[r.pattern]; dup {
			errs = append(errs, fmt.Errorf("WithRoute(%q) is given twice: put all its limits into one", r.pattern))
			continue
		}
		rt.plans[r.pattern] = r.plan
		if err := handle(rt.mux, r.pattern); err != nil {
			errs = append(errs, fmt.Errorf("WithRoute(%q): %w", r.pattern, err))
		}
	}
	if _, given := rt.plans[rest]; !given {
		// Or the mux works out the methods allowed for everything else.
		rt.mux.Handle(rest, http.NotFoundHandler())
	}
	return rt, errors.Join(errs...)
}

// rest matches what no other pattern does.
const rest = "/"

// registeredAt are places in this package's source, which say nothing to who
// wrote a pattern.
var registeredAt = regexp.MustCompile(` \(registered at [^)]*\)`)

// handle registers a pattern; http.ServeMux panics on a bad one.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			text, _, conflict := strings.Cut(fmt.Sprint(p), ":\n")
			if conflict {
				err = fmt.Errorf("%s: write one that is more specific or less", registeredAt.ReplaceAllString(text, ""))
				return
			}
			err = fmt.Errorf("%s: write a pattern of http.ServeMux, such as \"POST /login\"", text)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// find returns the plan of the most specific pattern that matches, or nil.
func (rt *router) find(r *http.Request) *plan {
	_, pattern := rt.mux.Handler(r)
	if pattern != rest && pattern != "" || r.URL.RawPath == "" {
		return rt.plans[pattern]
	}
	// A path with escaped slashes or dots matches nothing as it stands, but a
	// router that works on the decoded path may still clean it and find its
	// way to a handler.
	clean := &http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: path.Clean("/" + r.URL.Path)}}
	_, pattern = rt.mux.Handler(clean)
	return rt.plans[pattern]
}

// plan returns the plan of a request.
func (v *version) plan(r *http.Request) *plan {
	if v.router != nil {
		if p := v.router.find(r); p != nil {
			return p
		}
	}
	return v.base
}

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
func (v *version) compile(c *config, parent *version, names *names) []error {
	errs := slices.Concat(c.errs, c.shared.errs)
	names.compile(c, func(err error) { errs = append(errs, err) })
	errs = append(errs, v.unnamed(c, parent, names)...)
	if c.store != nil && c.memorySet {
		errs = append(errs, errors.New("WithMemory beside WithStore: leave one out"))
	}

	entries := func(limits []Limit, s settings) (all []*entry) {
		seen := map[*rule]bool{}
		for _, lim := range limits {
			if seen[lim.rule] {
				errs = append(errs, fmt.Errorf("limit %q is given twice: leave one out", lim.rule.spec.Name))
				continue
			}
			seen[lim.rule] = true
			compiled := names.limits[lim.rule]
			if compiled == nil {
				continue // reported by names.compile
			}
			e := v.family.newEntry(lim.rule, compiled, lim.rule.shared.or(s))
			if e.key == nil {
				errs = append(errs, fmt.Errorf("limit %q has no key, and no default is right: "+
					"write stint.WithKey(stint.RemoteIP()), behind a proxy stint.ForwardedIP(trusted...), "+
					"or stint.Global() for all requests together", compiled.Name()))
			}
			all = append(all, e)
		}
		return all
	}

	own := entries(c.limits, v.shared)
	base, funcs := own, v.funcs
	var routes []route
	if parent != nil {
		for _, e := range own {
			if slices.ContainsFunc(parent.base.entries, func(p *entry) bool { return p.limit == e.limit }) {
				errs = append(errs, fmt.Errorf("limit %q is inherited already: leave it out", e.limit.Name()))
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
				routes = append(routes, route{r.pattern, newPlan(slices.Concat(r.plan.entries, own), fs)})
			}
		}
	}
	v.base = newPlan(base, funcs)
	lonely := func(p *plan) {
		if e := p.lonelyBan(); e != nil {
			errs = append(errs, fmt.Errorf("limit %q has nothing to count: write a Rate, a Quota or a Concurrency that nobody waits for beside the Ban", e.limit.Name()))
		}
	}
	lonely(v.base)
	for _, rc := range c.routes {
		for _, err := range slices.Concat(rc.errs, rc.shared.errs) {
			errs = append(errs, fmt.Errorf("WithRoute(%q): %w", rc.pattern, err))
		}
		p := newPlan(entries(rc.limits, rc.shared.or(v.shared)), nil)
		if len(rc.limits) > 0 {
			p = newPlan(p.entries, funcs)
			lonely(p)
		}
		routes = append(routes, route{rc.pattern, p})
	}
	var err error
	if v.router, err = newRouter(routes); err != nil {
		errs = append(errs, flatten(err)...)
	}
	if len(c.limitFuncs) > 0 && v.shared.key == nil {
		errs = append(errs, errors.New("WithLimitFunc without a default key: write stint.WithKey beside it"))
	}
	if parent == nil && len(c.limits)+len(c.limitFuncs)+len(c.routes) == 0 {
		errs = append(errs, errors.New("no limits: write at least one, such as stint.Rate(10, time.Second)"))
	}
	return errs
}

// flatten takes an error of errors.Join apart.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return []error{err}
}
