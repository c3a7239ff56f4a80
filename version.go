package stint

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// version is what a limiter does from one Update to the next. It is immutable,
// and a call and its permit hold on to the one they began with: a request sees
// one configuration from its plan to its fields, whatever is updated meanwhile.
type version struct {
	of         *Limiter
	family     *family
	generation *generation

	store  store.Store
	lent   bool // the store is of WithStore: others may use it
	base   *plan
	routes []route
	router *routing.Router // of the routes' patterns; nil without
	funcs  []*limitFunc

	shared        settings // defaults of the limits that are added by With
	skip, block   []func(*http.Request) bool
	denyHandler   http.Handler
	errorHandler  func(http.ResponseWriter, *http.Request, error)
	problem       bool
	styles        field.Styles
	observers     []func(Event)
	emptyKey      EmptyKeyPolicy
	withoutPermit bool
	priority      func(*http.Request) int // or nil
	aging         time.Duration
	settler       waiting.Settle // settleTurns
}

// family is what a limiter and all derived from it share. They are updated
// together, since With extends what its limiter is at the time.
type family struct {
	mu      sync.Mutex // held by one New, With or Update at a time
	members []*Limiter // a limiter stands before those derived from it
	now     atomic.Pointer[generation]

	lines waiting.Lines // outlive an Update

	adaptive *process // what has been learnt outlives it too

	namesakes namesakes.Family // what others are to know of it, guarded by mu
}

func newFamily() *family {
	f := new(family)
	f.adaptive = &process{freed: func(limit, key string) { f.lines.Wake(waiting.Key{Limit: limit, Key: key}) }}
	f.now.Store(newGeneration(newNames(f.adaptive)))
	return f
}

// generation is the versions of a family that belong together.
type generation struct {
	mu       sync.Mutex // guards what With adds to
	names    *names
	versions map[*Limiter]*version
}

func newGeneration(n *names) *generation {
	return &generation{names: n, versions: map[*Limiter]*version{}}
}

// beside returns the version of v's limiter to decide a request that outer's
// limiters have admitted. An Update may come between two limiters that a request
// passes; the inner one must know the limits that the outer one has charged, so
// it stays in the generation that the request began with.
func (v *version) beside(outer *Permit) *version {
	for p := outer; p != nil; p = p.outer {
		if p.lim.family != v.family {
			continue
		}
		if p.lim.generation != v.generation {
			if o := p.lim.generation.version(v.of); o != nil { // nil: derived after that
				return o
			}
		}
		break
	}
	return v
}

func (g *generation) version(l *Limiter) *version {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.versions[l]
}

// named returns the names there are. They are never changed, but With puts others
// in their place.
func (g *generation) named() *names {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names
}

// limit returns the family's limit of a rule that a WithLimitFunc gave, and the
// names there are.
func (g *generation) limit(r *rule) (*store.Limit, *names, error) {
	n := g.named()
	if l := n.limits[r]; l != nil {
		return l, n, nil
	}
	if n.rules[r.spec.Name] != nil {
		return nil, nil, errNamesake("", r.spec.Name)
	}
	l, wrong := r.compileOnce()
	return l, n, errors.Join(wrong.errors("")...)
}

// successor returns what an entry has become in g: what the limit of its name now
// says, whatever its kind, with the entry's own key, cost and patience. It is the
// entry itself where that says the same, where there is no limit of that name, or
// only one that charges nobody.
func (g *generation) successor(e *entry) *entry {
	n := g.named()
	r := n.rules[e.limit.Name()]
	if r == nil || !r.kind.succeeds() {
		return e
	}
	next := n.newEntry(r, n.limits[r], settings{key: e.key, cost: e.cost, settle: e.settle, dryRun: e.dryRun})
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

// try makes what would be the first version of a new limiter, in the generation
// there is, and names to go with it. The caller holds family.mu.
func (l *Limiter) try(c *config) (*version, *names, error) {
	g := l.family.now.Load()
	names := g.names.clone()
	v, errs := l.build(c, g, names)
	return v, names, append(errs, c.probe()...).joined()
}

// begin gives a new limiter its first version.
func (l *Limiter) begin(opts []Option) (*Limiter, error) {
	conflicts, err := l.first(collect(opts))
	if err != nil {
		return nil, err
	}
	warn(conflicts)
	return l, nil
}

// first puts the first version of a new limiter in place.
func (l *Limiter) first(c *config) ([]namesakes.Conflict, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()
	v, names, err := l.try(c)
	if err != nil {
		return nil, err
	}
	l.opts = c.opts
	g := v.generation
	g.mu.Lock()
	g.names, g.versions[l] = names, v
	g.mu.Unlock()
	f.members = append(f.members, l)
	l.now.Store(v)
	return f.announce(), nil
}

// build makes the version of l in generation g from its options. The limits
// are named in names, which are to become g's. The caller holds family.mu.
func (l *Limiter) build(c *config, g *generation, names *names) (*version, mistakes) {
	v := &version{styles: field.Draft, aging: defaultAging}
	var parent *version
	if l.parent != nil {
		parent = g.versions[l.parent]
		*v = *parent
	}
	v.of, v.family, v.generation = l, l.family, g
	v.settler = v.settleTurns

	switch before := l.now.Load(); {
	case before != nil:
		v.store, v.lent = before.store, before.lent
	case c.store != nil:
		v.store, v.lent = c.store, true
	case c.memorySet || v.store == nil:
		v.store, v.lent = memstore.New(c.memory...), false
	}
	v.shared = c.shared.or(v.shared)
	v.shared.errs = nil
	for _, fn := range c.limitFuncs {
		v.funcs = append(v.funcs[:len(v.funcs):len(v.funcs)], &limitFunc{fn: fn, shared: v.shared, generation: g})
	}
	v.skip = append(v.skip[:len(v.skip):len(v.skip)], c.skip...)
	v.block = append(v.block[:len(v.block):len(v.block)], c.block...)
	v.observers = append(v.observers[:len(v.observers):len(v.observers)], c.observers...)
	if c.denyHandler != nil {
		v.denyHandler = c.denyHandler
	}
	if c.errorHandler != nil {
		v.errorHandler = c.errorHandler
	}
	v.problem = v.problem || c.problem
	if c.stylesSet {
		v.styles = c.styles
	}
	if c.emptyKeySet {
		v.emptyKey = c.emptyKey
	}
	v.withoutPermit = v.withoutPermit || c.withoutPermit
	if c.priority != nil {
		v.priority = c.priority
	}
	if c.aging != 0 {
		v.aging = c.aging
	}
	return v, v.compile(c, parent, names)
}
