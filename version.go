package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/naming"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// version is what a limiter does from one Update to the next. It is immutable. A call
// and its permit keep the version they began with, so a request sees one configuration
// from its plan to its fields, whatever is updated meanwhile.
type version struct {
	of         *Limiter
	family     *family
	generation *generation

	store   store.Store
	lines   *waiting.Lines // of those who wait for something in it
	allower store.Allower  // the store, if it is one; or nil
	lent    bool           // the store is of WithStore: others may use it
	most    int            // how many keys it holds, where it is the limiter's own
	base    *plan
	routes  []route
	router  *routing.Router // of the routes' patterns; nil without
	funcs   []*limitFunc

	conduct
	shared      settings // defaults of the limits that are added by With
	skip, block []func(*http.Request) bool
	settler     waiting.Settle  // settleTurns
	local       *adaptive.Store // decides limits of this process, and has the store decide the rest
}

// conduct is what a limiter does beside its limits. A limiter derived from it does the
// same, unless its options say otherwise.
type conduct struct {
	denyHandler   func(http.ResponseWriter, *http.Request, *DeniedError) (answered bool)
	errorHandler  func(http.ResponseWriter, *http.Request, error) (answered bool)
	problem       bool
	styles        field.Styles
	name          string // of WithLimiterName
	emptyKey      EmptyKeyPolicy
	withoutPermit bool
	priority      func(*http.Request) int // or nil
	aging         time.Duration
	silent        warn.Set // what it doesn't warn of
}

// usual is the conduct of a limiter without options.
var usual = conduct{styles: field.Draft, aging: defaultAging}

// inherited returns what l's options begin with in g. The caller holds family.mu.
func (g *generation) inherited(l *Limiter) conduct {
	if l.parent == nil {
		return usual
	}
	return g.versions[l.parent].conduct
}

// build makes the version of l in generation g from its options. The limits are named
// in names, which will become g's. The caller holds family.mu.
func (l *Limiter) build(c *config, g *generation, names *naming.Names) (*version, mistake.List) {
	v := new(version)
	var parent *version
	if l.parent != nil {
		parent = g.versions[l.parent]
		*v = *parent
	}
	v.of, v.family, v.generation, v.conduct = l, l.family, g, c.conduct
	v.settler = v.settleTurns

	switch before := l.now.Load(); {
	case before != nil:
		v.store, v.lines, v.lent, v.most = before.store, before.lines, before.lent, before.most
	case c.store != nil:
		v.store, v.lines, v.lent, v.most = c.store, l.family.linesOf(c.store), true, 0
	case c.memorySet || v.store == nil:
		own := memstore.New(c.memory...)
		v.store, v.lines, v.lent, v.most = own, new(waiting.Lines), false, own.Stats().MaxKeys
	}
	v.allower, _ = v.store.(store.Allower)
	v.shared = c.shared.or(v.shared)
	v.shared.errs = nil
	for _, fn := range c.limitFuncs {
		v.funcs = append(v.funcs[:len(v.funcs):len(v.funcs)], newLimitFunc(fn, v.shared, g))
	}
	v.skip = append(v.skip[:len(v.skip):len(v.skip)], c.skip...)
	v.block = append(v.block[:len(v.block):len(v.block)], c.block...)
	v.local = l.family.adaptive.Over(v.store)
	return v, v.compile(c, parent, names)
}

// generation holds the versions of a family that belong together.
type generation struct {
	adaptive *adaptive.Keys
	mu       sync.Mutex // guards the rest, which With adds to
	names    *naming.Names
	versions map[*Limiter]*version
}

func newGeneration(all *adaptive.Keys, n *naming.Names) *generation {
	return &generation{adaptive: all, names: n, versions: map[*Limiter]*version{}}
}

// add adds a limiter's version, with the names that include its limits'.
func (g *generation) add(l *Limiter, v *version, names *naming.Names) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names, g.versions[l] = names, v
}

func (g *generation) version(l *Limiter) *version {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.versions[l]
}

// beside returns the version of v's limiter that decides a request already admitted by
// outer's limiters. An Update may come between two limiters that a request passes. The
// inner one must recognize the limits that the outer one has charged, so it uses the
// generation that the request began with.
func (v *version) beside(outer *Permit) *version {
	for p := outer; p != nil; p = p.outer {
		if p.lim.family != v.family {
			continue
		}
		if p.lim.generation != v.generation {
			return v.of.in(p.lim.generation)
		}
		break
	}
	return v
}

// named returns the present names. With replaces them; they are never modified.
func (g *generation) named() *naming.Names {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names
}

// limit returns the store's limit for a rule that a WithLimitFunc returned.
func (g *generation) limit(r *rule) (*store.Limit, error) {
	n := g.named()
	if l, _ := n.Limit(r); l != nil {
		return l, nil
	}
	if n.Rule(r.spec.Name) != nil {
		return nil, optionError(errNamesake("", r.spec.Name))
	}
	l, wrong := r.compileOnce()
	return l, errors.Join(optionErrors(wrong, "")...)
}

// successor returns what an entry has become in g: the limit that now has its name,
// whatever its kind, with the entry's own key, cost and maximum wait. It returns the
// entry itself if that limit is the same, doesn't exist, or is of a kind that can't
// decide in its place (see kind.succeeds).
func (g *generation) successor(e *entry) *entry {
	n := g.named()
	r, ok := n.Rule(e.limit.Name()).(*rule)
	if !ok || !r.kind.succeeds() {
		return e
	}
	l, _ := n.Limit(r)
	next := newEntry(g.adaptive, r, l, settings{key: e.key, cost: e.cost, settle: e.settle, dryRun: e.dryRun})
	if next.limit == e.limit {
		return e
	}
	next.closed, next.wait.MaxWait, next.from = e.closed, e.wait.MaxWait, e.from
	if e.wait.Way == waiting.ForSlot {
		next.wait.Room = e.wait.Room
	}
	next.origin = e.first()
	return next
}

// limitFunc is one WithLimitFunc and the settings that its limits don't set. By its
// address a nested limiter recognizes that its limits are already charged.
type limitFunc struct {
	fn         limitSource
	check      func(...Limit) error // its own; a method value for each request would allocate
	shared     settings
	generation *generation
}

func newLimitFunc(fn limitSource, shared settings, g *generation) *limitFunc {
	f := &limitFunc{fn: fn, shared: shared, generation: g}
	f.check = func(limits ...Limit) error {
		wrong, names := wrongTogether(limits), g.named()
		for _, l := range limits {
			if l.rule != nil && names.Rule(l.rule.spec.Name) != nil {
				wrong = append(wrong, errNamesake("", l.rule.spec.Name))
			}
		}
		return joined(wrong)
	}
	return f
}

// reports reports whether a limit that the function returned is a dry run.
func (f *limitFunc) reports(l Limit) bool {
	return f.shared.dryRun || l.rule != nil && l.rule.shared.dryRun
}

// dynamicEntry is an entry made for a limit that a limitFunc returned.
type dynamicEntry struct {
	from  *limitFunc
	entry *entry
}

// entry compiles a limit that the function returned, or finds what was compiled before.
func (f *limitFunc) entry(l Limit) (*entry, error) {
	if l.rule == nil {
		return nil, optionError(errZeroLimit)
	}
	if d := l.rule.resolved.Load(); d != nil && d.from == f {
		return d.entry, nil
	}
	compiled, err := f.generation.limit(l.rule)
	if err != nil {
		return nil, err
	}
	e := newEntry(f.generation.adaptive, l.rule, compiled, l.rule.shared.or(f.shared))
	e.from = f
	l.rule.resolved.Store(&dynamicEntry{f, e})
	return e, nil
}

// moved returns errors for options that ask for another store than the limiter's.
func (v *version) moved(c *config) (errs mistake.List) {
	if c.store != nil && !same(c.store, v.store) {
		errs.Bad("WithStore", "not the limiter's store, which holds the counts", "leave it out, or make a new Limiter")
	}
	if c.memorySet && memstore.New(c.memory...).Stats().MaxKeys != v.most {
		errs.Bad("WithMemory", "not the limiter's store, which holds the counts", "write what New was given, or make a new Limiter")
	}
	return errs
}

// same reports whether two stores are the same. Stores that can't be compared, such as
// structs with a slice, are taken to be different.
func same(a, b store.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Description describes a limiter, for pages and tools that show it.
type Description struct {
	// Name is that of WithLimiterName, or "".
	Name string
	// Store holds the counts of all rules that aren't Local: the store of WithStore, or
	// the limiter's own memory.
	Store store.Store
	// Rules are the limiter's own limits, in the order in which they are decided,
	// followed by those of each route. Limits of a WithLimitFunc are missing.
	Rules []Rule
	// Warnings are the likely mistakes found in the limiter's current options, oldest
	// first.
	Warnings []Warning
}

// Rule is a limit in the place where it is used.
type Rule struct {
	Limit string // its name
	Route string // the pattern of the WithRoute; "" for the limiter's own
	Text  string // what it counts by, such as "TokenBucket: 10 per 1s, burst 20"
	// Spec has the numbers, with their defaults. An AdaptiveConcurrency is a
	// Concurrency of its max, and a Bandwidth may count in blocks of bytes.
	Spec store.Spec
	// Key is "Global" if everybody shares one key, "GivenKey" if Take is given the key,
	// and "" if the key depends on the request.
	Key    string
	DryRun bool
	// Local says that the limit is decided in this process, whatever the store.
	Local bool
}

// Describe returns what the limiter has now. It calls no store.
func (l *Limiter) Describe() Description {
	v := l.now.Load()
	d := Description{Name: v.name, Store: v.store}
	for _, w := range v.family.warnings.About(v) {
		d.Warnings = append(d.Warnings, warningOf(w))
	}
	add := func(pattern string, p *plan) {
		for _, e := range p.entries {
			r := Rule{Limit: e.limit.Name(), Route: pattern, Text: e.kind.says(e.limit.Spec()), Spec: e.limit.Spec(),
				DryRun: e.dryRun, Local: e.needs&local != 0}
			switch {
			case e.key.Constant != "":
				r.Key = "Global"
			case e.key.Given:
				r.Key = "GivenKey"
			}
			d.Rules = append(d.Rules, r)
		}
	}
	add("", v.base)
	for _, r := range v.routes {
		add(r.pattern, r.plan)
	}
	return d
}

// Reset forgets what key has used of the limits named, and the slots it holds. If no
// limit is named, it resets all of the limiter's limits, including those of its routes.
// A Ban ends, and forgets its refusals. An AdaptiveConcurrency starts anew for key.
// Limits with a constant key are left alone, and naming one is an error; see ResetLimit.
//
// If requests admitted before the Reset are refunded after it, the key can use what they
// give back on top of its limit.
//
// The store must implement store.Resetter, as those of memstore and redisstore do, and
// one of failover if both of its sides do. With any other store Reset returns an error.
func (l *Limiter) Reset(ctx context.Context, key string, limits ...string) error {
	encoded, err := keytext.Encode(key)
	if err != nil {
		return err
	}
	v := l.now.Load()
	for _, name := range limits {
		switch known, keyed, _ := v.keysOf(name); {
		case !known:
			return fmt.Errorf("stint: Reset: the limiter has no limit %q", name)
		case !keyed:
			return fmt.Errorf("stint: Reset: the key of %q is constant: write ResetLimit", name)
		}
	}
	return v.reset(ctx, func(e *entry) string {
		if e.key.Constant != "" || len(limits) > 0 && !slices.Contains(limits, e.limit.Name()) {
			return ""
		}
		return encoded
	})
}

// keysOf reports whether there is a limit of a name, whether some request has a key of
// its own there, and whether some have a constant one.
func (v *version) keysOf(name string) (known, keyed, constant bool) {
	for e := range v.entries() {
		if e.limit.Name() == name {
			known, keyed, constant = true, keyed || e.key.Constant == "", constant || e.key.Constant != ""
		}
	}
	return known, keyed, constant
}

// ResetLimit resets one limit that has a constant key, such as Global: what everybody
// together has used of it is forgotten. The name of any other limit is an error.
func (l *Limiter) ResetLimit(ctx context.Context, name string) error {
	v := l.now.Load()
	switch known, _, constant := v.keysOf(name); {
	case !known:
		return fmt.Errorf("stint: ResetLimit: the limiter has no limit %q", name)
	case !constant:
		return fmt.Errorf("stint: ResetLimit: the key of %q isn't constant: write Reset with the key to forget", name)
	}
	return v.reset(ctx, func(e *entry) string {
		if e.limit.Name() != name {
			return ""
		}
		return e.key.Constant
	})
}

// reset makes each of the version's limits forget the key that keyOf returns, unless
// that is "".
func (v *version) reset(ctx context.Context, keyOf func(*entry) string) error {
	limits, stored := map[string][]*store.Limit{}, false
	for e := range v.entries() {
		if key := keyOf(e); key != "" && !slices.Contains(limits[key], e.limit) {
			limits[key] = append(limits[key], e.limit)
			stored = stored || e.needs&local == 0
		}
	}
	if _, can := v.store.(store.Resetter); stored && !can {
		return fmt.Errorf("stint: Reset: %T doesn't implement store.Resetter: write a store that does, such as those of memstore and redisstore", v.store)
	}
	for key, limits := range limits {
		if err := v.local.Reset(ctx, key, limits...); err != nil {
			return &StoreError{err}
		}
		for _, l := range limits { // slots of it may be free now
			v.lines.Wake(waiting.Key{Limit: l.Name(), Key: key})
		}
	}
	return nil
}
