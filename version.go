package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/respond"
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
	of     *Limiter
	family *family
	names  *names

	store   store.Store
	lines   *waiting.Lines  // of those who wait for something in it
	streams *respond.Queues // those that wait for bytes of it
	allower store.Allower   // the store, if it is one; or nil
	lent    bool            // the store is of WithStore: others may use it
	most    int             // how many keys it holds, where it is the limiter's own
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

// inherited returns what l's options begin with.
func (l *Limiter) inherited() conduct {
	if l.parent == nil {
		return usual
	}
	return l.parent.now.Load().conduct
}

// build makes the version of l from its options and the version of its parent, if it has
// one. The limits are named in naming, which will become that of names. The caller holds
// family.mu.
func (l *Limiter) build(c *config, parent *version, names *names, naming *naming) (*version, mistake.List) {
	v := new(version)
	if parent != nil {
		*v = *parent
	}
	v.of, v.family, v.names, v.conduct = l, l.family, names, c.conduct
	v.settler = v.settleTurns

	switch before := l.now.Load(); {
	case before != nil:
		v.store, v.lent, v.most = before.store, before.lent, before.most
		v.lines, v.streams = before.lines, before.streams
	case c.store != nil:
		v.store, v.lent, v.most = c.store, true, 0
		v.lines, v.streams = l.family.linesOf(c.store)
	case c.memorySet || v.store == nil:
		own := memstore.New(c.memory...)
		v.store, v.lent, v.most = own, false, own.Stats().MaxKeys
		v.lines, v.streams = new(waiting.Lines), new(respond.Queues)
	}
	v.allower, _ = v.store.(store.Allower)
	v.shared = c.shared.or(v.shared)
	v.shared.errs = nil
	for _, fn := range c.limitFuncs {
		v.funcs = append(v.funcs[:len(v.funcs):len(v.funcs)], newLimitFunc(fn, v.shared, l.family, names))
	}
	v.skip = append(v.skip[:len(v.skip):len(v.skip)], c.skip...)
	v.block = append(v.block[:len(v.block):len(v.block)], c.block...)
	v.local = l.family.adaptive.Over(v.store)
	return v, v.compile(c, parent, naming)
}

// limitFunc is one WithLimitFunc and the settings that its limits don't set.
type limitFunc struct {
	fn     limitSource
	check  func(...Limit) error // its own; a method value for each request would allocate
	shared settings
	family *family
	names  *names
}

func newLimitFunc(fn limitSource, shared settings, family *family, names *names) *limitFunc {
	f := &limitFunc{fn: fn, shared: shared, family: family, names: names}
	f.check = func(limits ...Limit) error {
		wrong, rules := wrongTogether(limits), names.now.Load().rules
		for _, l := range limits {
			if l.rule != nil && rules[l.rule.spec.Name] != nil {
				wrong = append(wrong, errNamesake("", l.rule.spec.Name))
			}
		}
		return joined(wrong)
	}
	return f
}

// limit returns the store's limit for a rule that the function returned.
func (f *limitFunc) limit(r *rule) (*store.Limit, error) {
	n := f.names.now.Load()
	if l := n.limits[r]; l != nil {
		return l, nil
	}
	if n.rules[r.spec.Name] != nil {
		return nil, optionError(errNamesake("", r.spec.Name))
	}
	l, wrong := r.compileOnce()
	if l != nil {
		l = r.kind.decided(l, f.family.adaptive)
	}
	return l, errors.Join(optionErrors(wrong, "")...)
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
	compiled, err := f.limit(l.rule)
	if err != nil {
		return nil, err
	}
	e := newEntry(l.rule, compiled, l.rule.shared.or(f.shared))
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
			v.lines.Wake(waiting.KeyIn(l, key))
		}
	}
	return nil
}
