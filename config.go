package stint

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// config is the sum of the options of one New or With.
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
	inherit bool // by Inherit
	errs    mistake.List
}

// settings are the shared options. A nil or zero field isn't set.
type settings struct {
	key     *keys.Key
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

// rule is the contents of a Limit. Its address is the limit's identity.
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
	if l.written(&c.errs) {
		c.limits = append(c.limits, l)
	}
}

func (l Limit) applyRoute(rc *routeConfig) {
	if l.written(&rc.errs) {
		rc.limits = append(rc.limits, l)
	}
}

// written reports whether l is a limit that an option may be, or adds to errs why it isn't.
func (l Limit) written(errs *mistake.List) bool {
	switch l.rule {
	case nil:
		errs.Bad("", "zero Limit", "write stint.Rate, Quota or Concurrency")
	case exempt:
		errs.Bad("Exempt()", "only a WithLimitFunc returns it", "write stint.WithRoute(pattern) without options to exempt a route")
	default:
		return true
	}
	return false
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

func (f setting) applyLimiter(c *config) { f(&c.shared) }

func (f setting) applyLimit(r *rule) { f(&r.shared) }

func (f setting) applyRoute(rc *routeConfig) { f(&rc.shared) }

// marks has the marks of all kinds of limit. An option has all of them: the interface
// that its function returns says which kinds it goes with.
type marks struct{}

func (marks) ofRate() {}

func (marks) ofQuota() {}

func (marks) ofConcurrency() {}

func (marks) ofAdaptive() {}

func (marks) ofBandwidth() {}

func (marks) ofBan() {}

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

// keys returns the keys of WithKey among the options, each once.
func (c *config) keys() (all []*keys.Key) {
	add := func(k *keys.Key) {
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
