package stint

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/keyfunc"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/probe"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// config is what the options of one New or With add up to.
type config struct {
	conduct
	shared settings
	limits []Limit
	routes []routeConfig

	store       store.Store
	memory      []memstore.Option
	memorySet   bool
	limitFuncs  []limitSource
	skip, block []func(*http.Request) bool
	observers   []func(Event)
	logger      *slog.Logger
	logKeys     bool

	opts []Option // that it was collected from
	errs mistake.List
}

// collect adds up options. The conduct is the parent's, or usual, as far as they don't
// change it.
func collect(opts []Option, inherited conduct) *config {
	c := &config{conduct: inherited, opts: slices.Clone(opts)} // an Update applies them again
	for i, o := range opts {
		if o == nil {
			c.errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
			continue
		}
		o.applyLimiter(c)
	}
	return c
}

// routeConfig is one WithRoute.
type routeConfig struct {
	pattern string
	shared  settings
	limits  []Limit
	errs    mistake.List
}

// settings are the shared options. A nil or zero field isn't set.
type settings struct {
	key     *keyfunc.Source
	cost    func(*http.Request) int64
	settle  *settleSource
	maxWait time.Duration
	dryRun  bool
	policy  FailurePolicy
	errs    mistake.List
}

// or fills in what s doesn't set from the defaults d.
func (s settings) or(d settings) settings {
	if s.key == nil {
		s.key = d.key
	}
	if s.cost == nil {
		s.cost = d.cost
	}
	if s.settle == nil {
		s.settle = d.settle
	}
	if s.maxWait == 0 {
		s.maxWait = d.maxWait
	}
	s.dryRun = s.dryRun || d.dryRun
	if s.policy == 0 {
		s.policy = d.policy
	}
	return s
}

// rule is what a Limit points to. Its address is the limit's identity.
type rule struct {
	spec     store.Spec
	kind     kind
	named    bool // by WithName
	algSet   bool // by WithAlgorithm
	shared   settings
	errs     mistake.List
	once     sync.Once
	compiled *store.Limit // under spec.Name, for WithLimitFunc
	wrong    mistake.List // of compiled
	// resolved is the entry that this rule had in the WithLimitFunc that used it last.
	// Nearly always there is only one.
	resolved atomic.Pointer[dynamicEntry]
}

// optionOf is an option of some kind of limit.
type optionOf interface{ applyLimit(*rule) }

func apply[O optionOf](r *rule, opts []O) {
	for i, o := range opts {
		if any(o) == nil {
			r.errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
			continue
		}
		o.applyLimit(r)
	}
}

func (l Limit) applyLimiter(c *config) {
	if l.rule == nil {
		c.errs.Bad("", "zero Limit", "write stint.Rate, Quota or Concurrency")
		return
	}
	c.limits = append(c.limits, l)
}

func (l Limit) applyRoute(rc *routeConfig) {
	if l.rule == nil {
		rc.errs.Bad("", "zero Limit", "write stint.Rate, Quota or Concurrency")
		return
	}
	rc.limits = append(rc.limits, l)
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

var errZeroLimit = &mistake.Mistake{Problem: "zero Limit", Write: "return stint.Rate, Quota or Concurrency"}

// compileOnce is compile under the limit's own name, for limits that a WithLimitFunc
// returns.
func (r *rule) compileOnce() (*store.Limit, mistake.List) {
	r.once.Do(func() { r.compiled, r.wrong = r.compile(r.spec.Name) })
	return r.compiled, r.wrong
}

// orNone translates a number from the API to the store's, where 0 means the default.
func (r *rule) orNone(n int64, option string) int64 {
	switch {
	case n == 0:
		return store.None
	case n < 0:
		r.errs.Bad(fmt.Sprintf("%s(%d)", option, n), "", "write 0 or more")
		return 0
	}
	return n
}

// change is the effect of an option on a limit.
type change func(*rule)

func (f change) applyLimit(r *rule) { f(r) }

// setting is the effect of an option on a limit, or on the defaults of several.
type setting func(*settings)

func (f setting) applyLimiter(c *config)     { f(&c.shared) }
func (f setting) applyLimit(r *rule)         { f(&r.shared) }
func (f setting) applyRoute(rc *routeConfig) { f(&rc.shared) }

// marks has the marks of all kinds of limit. An option has all of them: the interface
// that its function returns says which kinds it goes with.
type marks struct{}

func (marks) ofRate()        {}
func (marks) ofQuota()       {}
func (marks) ofConcurrency() {}
func (marks) ofAdaptive()    {}
func (marks) ofBandwidth()   {}
func (marks) ofBan()         {}

// The options of limits, by what they do.
type (
	changeOption struct {
		change
		marks
	}
	settingOption struct {
		setting
		marks
	}
)

// probe calls each new KeyFunc and predicate once, for the mistakes that those of this
// package report about how they were made, and asks the store for its own. Any other
// error, or a panic, is about the probe: a function may rely on what comes before it in a
// server.
func (c *config) probe() (errs mistake.List) {
	for _, s := range c.keySources() {
		errs = append(errs, mistake.In("WithKey", s.Probe())...)
	}
	for _, p := range c.skip {
		errs = append(errs, predicate("WithSkip", p)...)
	}
	for _, p := range c.block {
		errs = append(errs, predicate("WithBlock", p)...)
	}
	return append(errs, mistake.Of("WithStore", c.store)...)
}

// keySources returns the uses of WithKey among the options, each once.
func (c *config) keySources() (all []*keyfunc.Source) {
	add := func(k *keyfunc.Source) {
		if k != nil && !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	add(c.shared.key)
	for _, rc := range c.routes {
		add(rc.shared.key)
	}
	for _, u := range c.uses() {
		add(u.rule.shared.key)
	}
	return all
}

// predicate returns the mistakes in the arguments that a predicate of option was made with.
func predicate(option string, p func(*http.Request) bool) mistake.List {
	report := new(mistake.Error)
	probe.Predicate(p, probe.Request(), report)
	return report.Mistakes.Within(option)
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

// errNamesake reports the name of another limit.
func errNamesake(route, name string) *mistake.Mistake {
	return &mistake.Mistake{Route: route, Limit: name, Problem: "another limit has that name", Write: "write another stint.WithName"}
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

// unnamed reports the limits of a version that need a name: its own, and those it
// inherits from a version whose store nobody else could use.
func (v *version) unnamed(c *config, parent *version, names *naming) (errs mistake.List) {
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

// errUnnamed reports a limit without a WithName whose store others may use.
func errUnnamed(route string, r *rule) *mistake.Mistake {
	return &mistake.Mistake{Route: route, Limit: r.spec.Name,
		Problem: "a default name, which other limits in the store may have too", Write: "write stint.WithName"}
}

// OptionError is one problem with options. New, Check, With, Update and Limit.Check
// return all problems in one error (errors.Join), each element of which is, or wraps,
// an *OptionError.
type OptionError struct {
	// Limit is the name of the limit that the problem is about; empty for none.
	Limit string
	// Route is the pattern of the WithRoute that contains it; empty for none.
	Route string
	// Option is the wrong option, with its argument if that alone is wrong:
	// "WithBurst(-1)", "WithKey(Header(\"a b\"))", "WithQueue". It is empty if the
	// limit's own numbers are wrong, or if something is missing.
	Option string
	// Problem says what is wrong; it is empty if Option shows it.
	Problem string
	// Write says what to write instead: "write 0 or more", "leave it out".
	Write string

	named *store.SpecError // Problem and Write, if they contain names
}

// In returns Problem and Write for readers who don't write Go, such as those of a
// configuration file. word returns their word for a name of Go's, such as "TokenBucket"
// or "time.Second".
func (e *OptionError) In(word func(name string) string) (problem, write string) {
	if e.named == nil {
		return e.Problem, e.Write
	}
	return e.named.In(word)
}

// Error returns the route, the limit, the option, the problem and what to write
// instead, as far as they are set.
func (e *OptionError) Error() string {
	return mistake.Text(e.Route, e.Limit, e.Option, e.Problem, e.Write)
}

// optionError returns a mistake as an error.
func optionError(m *mistake.Mistake) *OptionError {
	return &OptionError{m.Limit, m.Route, m.Option, m.Problem, m.Write, m.Named}
}

// optionErrors returns mistakes as the elements of one error, each with a heading.
func optionErrors(all mistake.List, heading string) []error {
	errs := make([]error, len(all))
	for i, m := range all {
		errs[i] = fmt.Errorf("%s%w", heading, optionError(m))
	}
	return errs
}

// joined returns one error for all mistakes, or nil.
func joined(all mistake.List) error { return errors.Join(optionErrors(all, "stint: ")...) }
