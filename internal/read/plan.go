// Package read turns a request and the plan of its route into charges. It is where requests
// are looked at: which spelling of a route they are, what exempts or blocks them, whose they
// are, and what they cost.
package read

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/mistakes/keysample"
	"github.com/stint-go/stint/internal/routing"
)

// Entry is a limit and how its charges are read from requests.
type Entry struct {
	limit.Limit
	Key            *keys.Key
	Sample         *keysample.Sample         // of the key
	Cost           func(*http.Request) int64 // nil: 1
	Fixed          int64                     // what Cost returns for every request; 0 if that isn't known
	TakesRouteCost bool                      // a route's Cost is the limit's
	Settler        *Settler                  // nil: the charge stays
	Bytes          *Bytes                    // of a Bandwidth
	Tenant         *keys.Key                 // of a fair queue: whose requests wait; or nil

	Skip      func(*http.Request) bool // nil: the limit is for all requests
	SkipEmpty bool                     // a limit whose key is empty is left out; otherwise the request is denied
}

// Name returns the limit's name.
func (e *Entry) Name() string { return e.StoreLimit.Name() }

// Settler is one use of WithSettle. Limits that share it share one call of Cost per
// request.
type Settler struct {
	Cost func(r *http.Request, status int, written int64) int64
}

// Bytes is how a Bandwidth counts.
type Bytes struct {
	Block, Piece        int64 // of its respond.Rate
	Responses, Requests bool  // whose bodies it counts
}

// Plan is the limits of the requests of one route, or of those that no route matches.
type Plan struct {
	Entries  []*Entry
	Declared []*Entry // those written in the route or, for Base, in the limiter beside its routes
	Funcs    []*Func
	Cost     *Cost  // of the most specific route that says one; or nil
	Policy   string // RateLimit-Policy of all entries
	Pattern  string // of the WithRoute, or of several, separated by commas
	// DenyHandler answers requests that a limit denies, in place of the limiter's. It may be nil.
	DenyHandler http.Handler
	Single      *Entry // the only one, where a decision is its charge and nothing else; or nil

	plain           []*Entry // Entries, if each is charged as it is; nil if one may be skipped, and with interpretations
	interpretations []*Plan  // otherwise those that its requests are held to: see charge
	alsoMatched     []*Plan  // those of other patterns that its requests match
	matched         atomic.Bool
}

// MarkMatched records that a request has matched the plan. Requests call it, so it mostly writes nothing.
func (p *Plan) MarkMatched() {
	if p.matched.Load() {
		return
	}
	p.matched.Store(true)
	for _, q := range p.alsoMatched {
		q.MarkMatched()
	}
}

// Matched reports whether a request has matched the plan.
func (p *Plan) Matched() bool { return p.matched.Load() }

// Func is a function of the application that returns limits of a request. Its address is its
// identity.
type Func struct {
	// Sample is of the key of those limits that have no other key.
	Sample *keysample.Sample
	// SourceSample is of the key by which a source has the limits, or nil.
	SourceSample *keysample.Sample
	// Charge adds the charges of these limits.
	Charge func(*Reading) error
	// OfKey returns the entries of the limits that a key has, outside HTTP. It is nil if they depend
	// on more. peeks says that nothing is going to be charged, so that a failure is an error
	// whatever the failure policy.
	OfKey func(ctx context.Context, q *Reading, key string, peeks bool) ([]*Entry, error)
}

// NewPlan returns the plan of entries and functions.
func NewPlan(pattern string, entries []*Entry, funcs []*Func) *Plan {
	p := &Plan{Entries: entries, plain: entries, Funcs: funcs, Pattern: pattern}
	var items []string
	for _, e := range entries {
		if policy := e.Policy.Load(); policy != nil && policy.Text != "" {
			items = append(items, policy.Text)
		}
	}
	p.Policy = strings.Join(items, ", ")
	if slices.ContainsFunc(entries, func(e *Entry) bool { return e.Skip != nil }) {
		p.plain = nil
	}
	if len(entries) == 1 && len(funcs) == 0 && entries[0].Needs == 0 && !entries[0].DryRun {
		p.Single = entries[0]
	}
	return p
}

// exempt reports whether the plan limits nothing at all.
func (p *Plan) exempt() bool { return len(p.Entries) == 0 && len(p.Funcs) == 0 }

// Route returns the plan's pattern, or "" outside HTTP.
func (p *Plan) Route() string {
	if p == nil {
		return ""
	}
	return p.Pattern
}

// SealedPlans are plans that only this module can open: stint.Description has some, which convert to it.
type SealedPlans struct{ plans *Plans }

// Seal seals plans.
func Seal(p *Plans) SealedPlans { return SealedPlans{p} }

// Open returns the plans, which the caller must not change.
func (s SealedPlans) Open() *Plans { return s.plans }

// Plans are what a limiter reads requests by, from one Update to the next.
type Plans struct {
	Base   *Plan
	Routes []*Plan         // Base is for requests that none of them matches
	Router *routing.Router // of the routes' patterns; nil without
	Levels []Level         // that they are made of, the limiter's last
	// DenyHandlers: some plan has a DenyHandler.
	DenyHandlers bool
	chains       *chains

	Skip, Block []func(*http.Request) bool // of WithSkip and WithBlock
	// Priority returns a request's class, or is nil.
	Priority func(*http.Request) int
}

// All returns the plans: that of requests that match no route, and those of the routes.
func (p *Plans) All() []*Plan { return append([]*Plan{p.Base}, p.Routes...) }

// Find returns the plan of a request.
func (p *Plans) Find(r *http.Request) *Plan {
	if p.Router == nil {
		return p.Base
	}
	first, others := p.Router.Find(r)
	if len(others) == 0 {
		return p.ofMatch(first)
	}
	return p.union(append([]routing.Match{first}, others...))
}

// SkipOrBlock applies the predicates of WithSkip and WithBlock, which exempt or block a request
// before any limit decides it.
func (p *Plans) SkipOrBlock(r *http.Request) (exempt, blocked bool) {
	for _, skip := range p.Skip {
		if skip(r) {
			return true, false
		}
	}
	for _, block := range p.Block {
		if block(r) {
			return false, true
		}
	}
	return false, false
}

// Shows reports whether a function of the application sees a request that is read by the
// plans.
func (p *Plans) Shows() bool {
	if len(p.Skip)+len(p.Block) > 0 || p.Priority != nil {
		return true
	}
	for _, plan := range p.All() {
		if len(plan.Funcs) > 0 || slices.ContainsFunc(plan.Entries, (*Entry).shows) {
			return true
		}
	}
	return false
}

// shows reports whether a function of the application sees a request that the limit is
// charged for.
func (e *Entry) shows() bool {
	ofFunction := func(k *keys.Key) bool { return k != nil && k.Signs&keysample.OfFunction != 0 }
	return ofFunction(e.Key) || ofFunction(e.Tenant) || e.Cost != nil && e.Fixed == 0 || e.Settler != nil ||
		e.Skip != nil
}

// Entries returns the limits that are written in the limiter and its routes, each once.
func (p *Plans) Entries(yield func(*Entry) bool) {
	for _, plan := range p.All() {
		for _, e := range plan.Declared {
			if !yield(e) {
				return
			}
		}
	}
}
