package stint

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// family is the state shared by a limiter and all limiters derived from it. They are updated
// together: a derived limiter is With applied to the present state of its parent.
type family struct {
	mu      sync.Mutex // held by one New, With or Update at a time
	members []*Limiter // each limiter before those derived from it
	// registry has the names of their limits, and the limits of this process.
	registry *compile.Registry

	lines sync.Map // of *waiting.Lines: those of each store are the same across Updates

	meanings namesakes.Family                    // for other families on the same store; guarded by mu
	lent     atomic.Pointer[[]namesakes.Meaning] // the same, for other processes

	warnings book

	introduced bool // the log has the line about the first decision; guarded by mu
}

func newFamily() *family {
	f := new(family)
	f.registry = compile.NewRegistry(adaptive.NewKeys(f.wake))
	return f
}

// linesOf returns the lines of a store, and the streams that wait for its bytes, which
// other limiters of the family may have too. The caller holds f.mu.
func (f *family) linesOf(s store.Store) (*waiting.Lines, *respond.Queues) {
	for _, m := range f.members {
		if v := m.now.Load(); same(v.backend.Store, s) {
			return v.backend.Lines, v.streams
		}
	}
	return new(waiting.Lines), new(respond.Queues)
}

// wake wakes those who wait for slots of a limit of this process, whatever their store.
func (f *family) wake(limit, key string) {
	for ls := range f.lines.Range {
		ls.(*waiting.Lines).Wake(waiting.Key{Limit: limit, Key: key, Decided: true})
	}
}

// begin gives a new limiter its first version.
func (l *Limiter) begin(opts []Option) (*Limiter, error) {
	all, err := l.first(opts)
	if err != nil {
		return nil, err
	}
	give(all)
	v, b := l.now.Load(), &l.family.warnings
	b.warn(v, b.clues.rebuilt(v, l.parent != nil)...)
	l.awaitMount()
	return l, nil
}

// first puts the first version of a new limiter in place.
func (l *Limiter) first(opts []Option) ([]notice, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()
	c := collect(opts, l.inherited())
	v, naming, err := l.try(c)
	if err != nil {
		return nil, err
	}
	l.opts = c.opts
	f.registry.Names().Put(naming)
	f.members = append(f.members, l)
	f.lines.Store(v.backend.Lines, nil)
	l.observers.give(c.observers)
	l.logger, l.logKeys = c.logger, c.logKeys
	f.enlist()
	l.now.Store(v)
	l.logged.Store(v)
	all := f.announce(l, c)
	l.observeStore(c) // which may ask or tell something at once
	return all, nil
}

// try makes what would be the first version of a new limiter, and the naming that goes
// with it. It changes nothing. The caller holds family.mu.
func (l *Limiter) try(c *config) (*version, *compile.Naming, error) {
	n := l.family.registry.Names()
	next := n.Now().Clone()
	var parent *version
	if l.parent != nil {
		parent = l.parent.now.Load()
	}
	v, errs := l.build(c, parent, n, next)
	return v, next, joined(errs)
}

// announce registers the family's present limits, in place of the previous ones, for
// stores that other families may share. It returns the notices about conflicts and about
// l's options c, to be given without f.mu. The caller holds f.mu. Requests never run it.
func (f *family) announce(l *Limiter, c *config) (all []notice) {
	v := l.now.Load()
	lent := f.lend()
	f.lent.Store(&lent)
	for _, c := range f.meanings.Mean(lent) {
		all = append(all, f.warnings.add(v, conflicting(c))...)
	}
	all = append(all, f.warnings.add(v, nothingWaits(v)...)...)
	all = append(all, f.warnings.add(v, unreachable(v)...)...)
	for _, k := range c.Keys() {
		s := f.registry.Names().Now().Source(k)
		if s == nil {
			continue // no limit has it
		}
		all = append(all, f.warn(s, s.Shown())...)
		if warnsOfKeys(v) && k.Constant == "" && !k.Given {
			s.Watch(func() { f.look(s) })
		}
	}
	return all
}

// lend returns the meanings of the family's names in stores that others may use. A limiter that
// isn't to be warned isn't compared at all: the other one would be warned of it. The caller holds
// f.mu.
func (f *family) lend() (all []namesakes.Meaning) {
	for _, m := range f.members {
		v := m.now.Load()
		if !v.compiled.Lent || v.silent.has(WarnNameConflict) {
			continue
		}
		for e := range v.plans.Entries {
			if e.Needs&limit.Local == 0 { // a local limit is in no store
				all = append(all, namesakes.Meaning{Store: v.backend.Store, Name: e.Name(), Says: compile.Text(e), Limit: e.Limit.Limit})
			}
		}
	}
	return all
}

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
func (l *Limiter) build(c *config, parent *version, names *compile.Names, naming *compile.Naming) (*version, mistake.List) {
	v := &version{conduct: c.conduct, events: sender{c.name, &l.recipients}, registry: l.family.registry}
	warnings := &l.family.warnings
	var extended *compile.Result
	if parent != nil {
		extended = parent.compiled
	}
	lent := l.family.house(v, c, l.now.Load(), parent)
	if l.storeObserver == nil {
		l.storeObserver = &store.Observer{Tell: l.handleNotice, Limits: l.limitsInStore}
	}
	if lent {
		v.backend.Leases = l.storeObserver
	}
	compiled, wrong := l.family.registry.Compile(&c.Config, extended, names, naming, lent)
	compiled.Plans.SkipEmpty = v.skipEmpty
	compiled.Plans.Priority = v.priority
	v.compiled, v.plans = compiled, &compiled.Plans
	if len(v.plans.Routes) > 0 && !v.silent.has(WarnRouteMissed) {
		patterns := make([]string, len(v.plans.Routes))
		for i, p := range v.plans.Routes {
			patterns[i] = p.Pattern
		}
		v.routes = warn.NewRoutes(patterns, func() { warnings.warn(v, missed(v)...) })
	}
	v.dryRuns = len(compiled.Funcs) > 0
	for e := range v.plans.Entries {
		v.dryRuns = v.dryRuns || e.DryRun
	}
	if !v.silent.has(WarnProxyExempt) && slices.ContainsFunc(v.plans.Skip, func(p read.Predicate) bool { return p.PassesOn != nil }) {
		v.exempts = warn.NewExempts(func() { warnings.warn(v, proxyExempt(v)) })
	}
	v.shows = v.denyHandler != nil || v.errorHandler != nil || v.plans.Shows()
	return v, wrong
}

// house gives a version the store that it counts in, and what goes with that: those of
// the limiter's version before, those of its options, or its parent's. It reports whether the
// store is one of WithStore.
func (f *family) house(v *version, c *config, before, parent *version) (lent bool) {
	var in store.Store
	var lines *waiting.Lines
	switch from := before; {
	case from == nil && c.Store != nil:
		in, lent = c.Store, true
		lines, v.streams = f.linesOf(in)
	case from == nil && (c.MemorySet || parent == nil):
		own := memstore.New(c.Memory...)
		in, v.most = own, own.Stats().MaxKeys
		lines, v.streams = new(waiting.Lines), new(respond.Queues)
	default:
		if from == nil {
			from = parent
		}
		in, lent, v.most = from.backend.Store, from.compiled.Lent, from.most
		lines, v.streams = from.backend.Lines, from.streams
	}
	v.allower, _ = in.(store.Allower)
	all := f.registry.Adaptive
	v.backend = &decide.Backend{
		Store: in, Local: all.Over(in), Keys: all, Lines: lines, Aging: v.aging,
		Newest: f.registry.Newest, Turns: turnsOf(v),
	}
	return lent
}

// look sends warnings about what the requests with a key have shown so far.
func (f *family) look(s *warn.Source) {
	f.mu.Lock()
	all := f.warn(s, s.Found())
	f.mu.Unlock()
	give(all)
}

// warn returns notices of what was found about a key and is new. The caller holds f.mu.
func (f *family) warn(s *warn.Source, shown warn.Found) (news []notice) {
	all := make([]*version, len(f.members))
	for i, m := range f.members {
		all[i] = m.now.Load()
	}
	for v, found := range wrongKeys(all, s, shown) {
		if f.warnings.enter(all, found) {
			news = append(news, notice{found, &v.events})
		}
	}
	return news
}
