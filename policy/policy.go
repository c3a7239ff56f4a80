// Package policy reads a limiter's options from a file, in YAML or JSON, and reloads it
// while requests run.
//
//	version: 1
//	key: {forwarded-ip: {trusted: [10.0.0.0/8]}}
//	limits:
//	  - {name: per-client, rate: 100/1m, burst: 20}
//	routes:
//	  POST /login: {limits: [{name: login, rate: 5/1m}]}
//	  GET /healthz: {exempt: true}
//
// Load reads the file once; Watch reads it again whenever it changes:
//
//	opts := []policy.Option{policy.WithOptions(stint.WithStore(shared))}
//	p, err := policy.Load("policy.yaml", opts...)
//	limits, err := stint.New(p.Options()...)
//	watcher, err := policy.Watch(ctx, "policy.yaml", limits, opts...)
//
// Pass the same options to Load and Watch.
//
// # What a file contains
//
// A file contains limits, keys, routes, plans and failure policies, with the terms of package
// stint. Schema describes every field. The store, handlers, secrets and functions are passed as
// options in Go. A file refers to functions by the names under which they are registered
// (WithKey, WithCostFunc, WithSettleFunc, WithPriorityFunc, WithPredicate, WithPlanFunc).
//
// # Mistakes
//
// All mistakes are reported at once, each with its file, line, column and correction. Unknown
// fields and fields without effect are mistakes. A file with a mistake isn't used at all.
package policy

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// Policy is a file without mistakes. It is immutable and safe for concurrent use.
type Policy struct {
	options []stint.Option
	places  map[string]place
	routes  map[string]place
	domain  string
	after   []string
	base    []stint.Option // without routes
}

// place is where something is in the file.
type place struct{ line, column int }

// Options returns the options that the file stands for, preceded by those given to
// WithOptions. Pass them to stint.New, Limiter.With or Limiter.Update; more options may
// follow. They are complete: an Update clears what they don't set (stint.Complete).
func (p *Policy) Options() []stint.Option { return slices.Clone(p.options) }

// Where returns the line and the column of a limit in the file, by its name, for tools that say
// something about it. They are 0 if the file has no limit of that name.
func (p *Policy) Where(limit string) (line, column int) {
	at := p.places[limit]
	return at.line, at.column
}

// WhereRoute returns the line and the column of a route in the file, by its pattern. They are 0 if
// the file has no such route.
func (p *Policy) WhereRoute(pattern string) (line, column int) {
	at := p.routes[pattern]
	return at.line, at.column
}

// Parse reads a policy from data. name is the file's name, for messages. The error is
// Errors if the file has mistakes; other errors are about opts.
func Parse(name string, data []byte, opts ...Option) (*Policy, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return parse(name, data, c)
}

func parse(name string, data []byte, c *config) (*Policy, error) {
	d := &decoder{file: name, config: c, places: map[string]place{}, routes: map[string]place{},
		namedKeys: map[string]*namedKey{}, settles: map[string]stint.ChargeOption{}}
	options := []stint.Option{stint.Complete()}
	if root := d.load(data); root != nil {
		options = append(options, d.document(root)...)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return &Policy{options, d.places, d.routes, d.domain, d.after, d.base}, nil
}

// Load reads a policy from a file. Its errors are those of reading the file and those
// of Parse.
func Load(path string, opts ...Option) (*Policy, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return parse(path, data, c)
}

// Option is an option of Parse, Load and Watch. All three take the same options, so a
// file means the same wherever it is read. WithObserver and WithDebounce only have an
// effect in Watch.
type Option interface{ apply(*config) }

type option func(*config)

func (set option) apply(x *config) { set(x) }

// config is the sum of the options.
type config struct {
	keys        map[string]stint.Key
	costs       map[string]func(*http.Request) int64
	settles     map[string]func(*http.Request, int, int64) int64
	priorities  map[string]func(*http.Request) int
	predicates  map[string]func(*http.Request) bool
	handlers    map[string]http.Handler // of denials
	plan        func(*http.Request) (string, error)
	onlyPlan    string // the plan of all requests
	secret      []byte
	options     []stint.Option
	hasKey      bool // the options contain a default key
	sharedStore bool // the options contain a store that others may share, so limits need names
	server      bool // of proxies: WithServer
	givenKeys   bool // WithGivenKeys
	descriptors *Descriptors

	observers []func(Change)
	debounce  time.Duration
	readEvery time.Duration // the file is read again, even if no change is reported

	errs []error
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		keys:       map[string]stint.Key{},
		costs:      map[string]func(*http.Request) int64{},
		settles:    map[string]func(*http.Request, int, int64) int64{},
		priorities: map[string]func(*http.Request) int{},
		predicates: map[string]func(*http.Request) bool{},
		handlers:   map[string]http.Handler{},
		debounce:   100 * time.Millisecond,
		readEvery:  10 * time.Second,
	}
	for i, o := range opts {
		if o == nil {
			c.bad("option %d is nil: leave it out", i+1)
			continue
		}
		o.apply(c)
	}
	return c, c.check()
}

// check checks the options for the limiter, and finds out whether they contain a key
// and a store, which can't be seen from outside.
func (c *config) check() error {
	if c.options != nil {
		problemsWith := func(opts ...stint.Option) []stint.OptionError {
			return problemsOf(slices.Concat(c.options,
				opts)...)
		}
		name, key := stint.WithName("policy-probe"), stint.WithKey(stint.Global())
		problems := problemsWith(stint.Rate(1, time.Second, name, key))
		for _, e := range problems {
			c.bad("WithOptions: %w", &e)
		}
		c.hasKey = len(problemsWith(stint.Rate(1, time.Second, name))) == len(problems)
		c.sharedStore = len(problemsWith(stint.Rate(1, time.Second, key))) > len(problems)
	}
	return errors.Join(c.errs...)
}

func (c *config) bad(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("policy: "+format, args...))
}

// register keeps a function under the name that a file uses for it.
func register[F any](c *config, all map[string]F, option, name string, f F, isNil bool, reserved ...string) {
	_, registered := all[name]
	_, err := parseInt(name)
	switch {
	case name == "" || strings.TrimSpace(name) != name || err == nil:
		c.bad("%s(%q): use a name that a file can call it by, such as %q", option, name, "tenant")
	case slices.Contains(reserved, name):
		c.bad("%s(%q): the name has a meaning in a file already: use another", option, name)
	case registered:
		c.bad("%s(%q) is given twice: leave one out", option, name)
	case isNil:
		c.bad("%s(%q, nil): pass a function", option, name)
	default:
		all[name] = f
	}
}

// WithKey lets a file use a key of the application by its name, for example key: tenant. The
// name must not be taken by another key. k is a stint.KeyFunc, or any other Key that stint.New
// takes.
func WithKey(name string, k stint.Key) Option {
	return option(func(c *config) {
		for _, e := range problemsOf(probe, stint.WithKey(k)) {
			c.bad("WithKey(%q): %w", name, &e)
		}
		reserved := names(keyForms())
		for word := range keyWords {
			reserved = append(reserved, word)
		}
		register(c, c.keys, "WithKey", name, k, false, reserved...)
	})
}

// WithCostFunc lets a file use a cost function of the application by its name, for example cost:
// rows. See stint.WithCost.
func WithCostFunc(name string, f func(*http.Request) int64) Option {
	return option(func(c *config) { register(c, c.costs, "WithCostFunc", name, f, f == nil) })
}

// WithSettleFunc lets a file use a function of the application that computes a request's cost
// from its response, for example settle: tokens. See stint.WithSettle.
func WithSettleFunc(name string, f func(r *http.Request, status int, written int64) int64) Option {
	return option(func(c *config) { register(c, c.settles, "WithSettleFunc", name, f, f == nil, "failed-only") })
}

// WithPriorityFunc lets a file use a function of the application that returns a request's
// priority class, for example priority: class. See stint.WithPriority.
func WithPriorityFunc(name string, f func(*http.Request) int) Option {
	return option(func(c *config) { register(c, c.priorities, "WithPriorityFunc", name, f, f == nil) })
}

// WithPredicate lets a file use a predicate of the application by its name, as an item of skip
// or block.
func WithPredicate(name string, f func(*http.Request) bool) Option {
	return option(func(c *config) { register(c, c.predicates, "WithPredicate", name, f, f == nil, "preflight") })
}

// WithDenyHandler lets a file use a handler of the application by its name, for example deny-handler: cached. The
// handler answers requests that a limit denies. The field may be at the top of the file or in a route. See
// stint.WithDenyHandler.
func WithDenyHandler(name string, h http.Handler) Option {
	return option(func(c *config) { register(c, c.handlers, "WithDenyHandler", name, h, h == nil) })
}

// WithPlanFunc sets the function that returns the name of a request's plan. A file with plans
// requires it; there is no default. If the file has no plan of that name, its default-plan
// applies; without a default-plan that is an error. Errors are handled like those of a function
// given to stint.WithLimitFunc: they never let a request pass.
func WithPlanFunc(f func(*http.Request) (string, error)) Option {
	return option(func(c *config) {
		switch {
		case f == nil:
			c.bad("WithPlanFunc(nil): pass a function, or leave it out")
		case c.plan != nil:
			c.bad("WithPlanFunc is given twice: leave one out")
		}
		c.plan = f
	})
}

// WithPlan gives all requests the plan with that name: the plan's limits apply like the limits
// at the top of the file. By default, the function of WithPlanFunc chooses the plan. WithPlan is
// for tools that look at one plan of a file. The file must have the plan.
func WithPlan(name string) Option {
	return option(func(c *config) {
		if c.onlyPlan = name; name == "" {
			c.bad("WithPlan(\"\"): pass the name of a plan, or leave it out")
		}
	})
}

// WithSecret sets the secret for the keys that a file hashes. stint.Hash describes how long the
// secret must be. Without WithSecret, a hashed key is a mistake. A secret doesn't belong in a
// file.
func WithSecret(secret []byte) Option {
	return option(func(c *config) {
		for _, e := range problemsOf(probe, stint.WithKey(stint.Hash(secret, stint.Global()))) {
			c.bad("WithSecret: %s: %s", e.Problem, e.Write)
		}
		c.secret = slices.Clone(secret)
	})
}

// WithOptions adds options that a file can't express, such as a store, handlers and observers.
// By default there are none. Policy.Options begins with these options, and every update by
// Watch includes them. For a watched limiter, pass such options to WithOptions, because an
// update clears all other options.
func WithOptions(opts ...stint.Option) Option {
	return option(func(c *config) { c.options = append(c.options, opts...) })
}
