package stint

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// config is what the options of one New or With add up to.
type config struct {
	shared settings
	limits []Limit
	routes []routeConfig

	store         store.Store
	memory        []memstore.Option
	memorySet     bool
	limitFuncs    []func(*http.Request) ([]Limit, error)
	skip, block   []func(*http.Request) bool
	denyHandler   http.Handler
	errorHandler  func(http.ResponseWriter, *http.Request, error)
	problem       bool
	styles        field.Styles
	stylesSet     bool
	observers     []func(Event)
	emptyKey      EmptyKeyPolicy
	emptyKeySet   bool
	withoutPermit bool
	priority      func(*http.Request) int
	aging         time.Duration

	opts []Option // that it was collected from
	errs mistakes
}

// collect adds options up.
func collect(opts []Option) *config {
	c := &config{opts: slices.Clone(opts)} // an Update applies them again
	for i, o := range opts {
		if o == nil {
			c.errs.bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
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
	errs    mistakes
}

// settings are the shared options; a nil or zero field is not set.
type settings struct {
	key     *keySource
	cost    func(*http.Request) int64
	settle  *settleSource
	maxWait time.Duration
	dryRun  bool
	policy  FailurePolicy
	errs    mistakes
}

// keySource is one use of WithKey. Its address is its identity: limits that
// get their key from the same WithKey share one call a request.
type keySource struct {
	fn KeyFunc
	// constant is the encoded key of a KeyFunc that has but one, or "".
	constant string
	given    bool // GivenKey
}

func newKeySource(k KeyFunc) *keySource {
	s := &keySource{fn: k, given: isGiven(k)}
	if isConstant(k) {
		if raw, err := k(nil); err == nil {
			s.constant, _ = keytext.Encode(raw)
		}
	}
	return s
}

// under is the key to charge where Take is given key.
func (s *keySource) under(key string) string {
	if s.constant != "" {
		return s.constant
	}
	return key
}

// or fills in what s leaves open from the defaults d.
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

// change is what an option does to a limit.
type change func(*rule)

func (f change) applyLimit(r *rule) { f(r) }

// setting is what an option does to a limit, or to the defaults of several.
type setting func(*settings)

func (f setting) applyLimiter(c *config)     { f(&c.shared) }
func (f setting) applyLimit(r *rule)         { f(&r.shared) }
func (f setting) applyRoute(rc *routeConfig) { f(&rc.shared) }

// An option's type says by these which kinds of limit it goes with.
type (
	rateKind        struct{}
	quotaKind       struct{}
	concurrencyKind struct{}
	adaptiveKind    struct{}
	bandwidthKind   struct{}
	banKind         struct{}

	slotKinds struct {
		concurrencyKind
		adaptiveKind
	}
	allKinds struct {
		rateKind
		quotaKind
		slotKinds
		bandwidthKind
		banKind
	}
)

func (rateKind) ofRate()               {}
func (quotaKind) ofQuota()             {}
func (concurrencyKind) ofConcurrency() {}
func (adaptiveKind) ofAdaptive()       {}
func (bandwidthKind) ofBandwidth()     {}
func (banKind) ofBan()                 {}

// The options there are, each by what it does and what it goes with.
type (
	limitOption struct {
		change
		allKinds
	}
	rateOption struct {
		change
		rateKind
	}
	algorithmOption struct {
		change
		rateKind
		quotaKind
	}
	burstOption struct {
		change
		rateKind
		quotaKind
		bandwidthKind
	}
	queueOption struct {
		change
		rateKind
		slotKinds
	}
	slotOption struct {
		change
		slotKinds
	}
	adaptiveOption struct {
		change
		adaptiveKind
	}
	bandwidthOption struct {
		change
		bandwidthKind
	}

	sharedOption struct {
		setting
		allKinds
	}
	chargeOption struct {
		setting
		rateKind
		quotaKind
		slotKinds
	}
	settleOption struct {
		setting
		rateKind
		quotaKind
	}
)
