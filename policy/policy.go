// Package policy reads a limiter's options from a file, in YAML or JSON, and
// follows the file while requests run.
//
//	version: 1
//	key: {forwarded-ip: {trusted: [10.0.0.0/8]}}
//	limits:
//	  - {name: per-client, rate: 100/1m, burst: 20}
//	routes:
//	  POST /login: {limits: [{name: login, rate: 5/1m}]}
//	  GET /healthz: {limits: []}
//
// Load reads it once, Watch again whenever it changes:
//
//	opts := []policy.Option{policy.WithOptions(stint.WithStore(shared))}
//	p, err := policy.Load("policy.yaml", opts...)
//	limits, err := stint.New(p.Options()...)
//	watcher, err := policy.Watch(ctx, "policy.yaml", limits, opts...)
//
// Load and Watch take the same options.
//
// # What a file says
//
// Limits, keys, routes, plans, and what happens on a failure, in the words of
// package stint; Schema describes every field, also to an editor. What has to
// be Go is given in Go: the store, handlers, secrets, and functions that a
// file calls by the names they are registered under (WithKeyFunc, WithCostFunc,
// WithSettleFunc, WithPriorityFunc, WithPredicate, WithPlanFunc).
//
// # Mistakes
//
// Whatever is wrong is reported at once, each mistake with its file, line and
// column and what to write instead. A field that isn't known is a mistake, and
// so is one that would have no effect: a limit that isn't what it says is worse
// than an error. A file with a mistake is not used in part.
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

// Policy is a file without mistakes. It is immutable and safe for concurrent
// use.
type Policy struct {
	options []stint.Option
}

// Options returns what the file says, for stint.New, Limiter.With and
// Limiter.Update, after the options given by WithOptions. Options that follow
// them may add to them.
func (p *Policy) Options() []stint.Option { return slices.Clone(p.options) }

// Parse reads a policy. The name is that of the file, for mistakes, which are
// returned as Errors.
//
// It calls every KeyFunc and predicate once, as stint.New does.
func Parse(name string, data []byte, opts ...Option) (*Policy, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return parse(name, data, c)
}

func parse(name string, data []byte, c *config) (*Policy, error) {
	d := &decoder{file: name, with: c, named: map[string]*namedKey{}, builtin: map[string]*key{}, settles: map[string]stint.SettleOption{}}
	var options []stint.Option
	if root := d.load(data); root != nil {
		options = d.document(root)
	}
	if err := d.failed(); err != nil {
		return nil, err
	}
	return &Policy{options}, nil
}

// Load reads a policy from a file.
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

// Option is what Parse, Load and Watch take: the same for all of them, so that
// a file means the same wherever it is read. Those about watching
// (WithObserver, WithDebounce) only do something in Watch.
type Option func(*config)

// config is what options say.
type config struct {
	keys       map[string]stint.KeyFunc
	costs      map[string]func(*http.Request) int64
	settles    map[string]func(*http.Request, int, int64) int64
	priorities map[string]func(*http.Request) int
	predicates map[string]func(*http.Request) bool
	plan       func(*http.Request) (string, error)
	secret     []byte
	options    []stint.Option
	keyed      bool // options have a default key
	lent       bool // options have a store that others may use, where limits need names

	observers []func(Change)
	debounce  time.Duration

	errs []error
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		keys:       map[string]stint.KeyFunc{},
		costs:      map[string]func(*http.Request) int64{},
		settles:    map[string]func(*http.Request, int, int64) int64{},
		priorities: map[string]func(*http.Request) int{},
		predicates: map[string]func(*http.Request) bool{},
		debounce:   100 * time.Millisecond,
	}
	for i, o := range opts {
		if o == nil {
			c.bad("option %d is nil: leave it out", i+1)
			continue
		}
		o(c)
	}
	return c, c.check()
}

// check finds out whether the options given for the limiter are right, and
// whether they have a key and a store, which can't be seen from outside.
func (c *config) check() error {
	if c.options != nil {
		with := func(opts ...stint.Option) []stint.OptionError { return wrong(slices.Concat(c.options, opts)...) }
		named, unnamed := stint.Rate(1, time.Second, stint.WithName("policy-probe")), stint.Rate(1, time.Second)
		key := stint.WithKey(stint.Global())
		for _, e := range with(named, key) {
			c.bad("WithOptions: %w", &e)
		}
		c.keyed = with(named) == nil
		c.lent = with(unnamed, key) != nil
	}
	return errors.Join(c.errs...)
}

func (c *config) bad(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("policy: "+format, args...))
}

// register keeps a function under the name that a file calls it by.
func register[F any](c *config, all map[string]F, option, name string, f F, isNil bool, taken ...string) {
	_, twice := all[name]
	_, err := parseInt(name)
	switch {
	case name == "" || strings.TrimSpace(name) != name || err == nil:
		c.bad("%s(%q): write a name that a file can call it by, such as %q", option, name, "tenant")
	case slices.Contains(taken, name):
		c.bad("%s(%q): the name has a meaning in a file already: write another", option, name)
	case twice:
		c.bad("%s(%q) is given twice: leave one out", option, name)
	case isNil:
		c.bad("%s(%q, nil): write a function", option, name)
	default:
		all[name] = f
	}
}

// WithKeyFunc lets a file name a key of the application: key: tenant.
func WithKeyFunc(name string, f stint.KeyFunc) Option {
	return func(c *config) {
		taken := names(keyForms())
		for word := range keyWords {
			taken = append(taken, word)
		}
		register(c, c.keys, "WithKeyFunc", name, f, f == nil, taken...)
	}
}

// WithCostFunc lets a file name a cost of the application: cost: rows.
func WithCostFunc(name string, f func(*http.Request) int64) Option {
	return func(c *config) { register(c, c.costs, "WithCostFunc", name, f, f == nil) }
}

// WithSettleFunc lets a file name what a request has cost by its response, as
// stint.WithSettle has it: settle: tokens.
func WithSettleFunc(name string, f func(r *http.Request, status int, written int64) int64) Option {
	return func(c *config) { register(c, c.settles, "WithSettleFunc", name, f, f == nil, "failed-only") }
}

// WithPriorityFunc lets a file name what tells a request's class, as
// stint.WithPriority has it: priority: class.
func WithPriorityFunc(name string, f func(*http.Request) int) Option {
	return func(c *config) { register(c, c.priorities, "WithPriorityFunc", name, f, f == nil) }
}

// WithPredicate lets a file name a predicate of the application in skip and
// block: skip: [internal].
func WithPredicate(name string, f func(*http.Request) bool) Option {
	return func(c *config) { register(c, c.predicates, "WithPredicate", name, f, f == nil, "preflight") }
}

// WithPlanFunc says which of a file's plans a request has. A file with plans
// needs it. A name that the file doesn't have stands for its default-plan, and
// is an error where it has none; an error is answered as that of a function
// given to stint.WithLimitFunc, and never lets a request pass.
func WithPlanFunc(f func(*http.Request) (string, error)) Option {
	return func(c *config) {
		switch {
		case f == nil:
			c.bad("WithPlanFunc(nil): write a function, or leave it out")
		case c.plan != nil:
			c.bad("WithPlanFunc is given twice: leave one out")
		}
		c.plan = f
	}
}

// WithSecret is the secret of the keys that a file wants hashed; see
// stint.Hash. It has no place in a file.
func WithSecret(secret []byte) Option {
	return func(c *config) {
		for _, e := range wrong(probe, stint.WithKey(stint.Hash(secret, stint.Global()))) {
			c.bad("WithSecret: %s: %s", e.Problem, e.Write)
		}
		c.secret = slices.Clone(secret)
	}
}

// WithOptions adds options that a file has no words for: a store, handlers,
// observers. They are the first of Policy.Options, and part of every update
// that Watch makes, so write them here and not beside Policy.Options where a
// limiter is watched.
func WithOptions(opts ...stint.Option) Option {
	return func(c *config) { c.options = append(c.options, opts...) }
}
