package stint

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/internal/near"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/permit"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// start gives a new limiter its first version, and warns of likely mistakes.
func (l *Limiter) start(opts []Option) (*Limiter, error) {
	all, err := l.putFirst(opts)
	if err != nil {
		return nil, err
	}
	l.logMade()
	sendWarnings(all)
	v := l.current.Load()
	l.family.warn(v, l.family.builds.Count(&v.view, l.parent != nil)...)
	return l, nil
}

// logMade logs the limits of a new limiter.
func (l *Limiter) logMade() {
	v := l.current.Load()
	l.destinations.log.Load().Write(context.Background(), logs.Line{Message: logs.Made, Attrs: func(bool) []slog.Attr {
		var limits []string
		for _, t := range v.limitTexts() {
			limits = append(limits, t.String())
		}
		for _, f := range v.compiled.Funcs {
			if loaded := "limits of a " + f.Option(); !slices.Contains(limits, loaded) {
				limits = append(limits, loaded)
			}
		}
		return v.events.attrs(slog.String("limits", joinListed(limits)), slog.String("store", storeName(v.backend.Store)))
	}})
}

// putFirst puts the first version of a new limiter in force. It returns notices of the new warnings.
func (l *Limiter) putFirst(opts []Option) ([]notice, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()
	c := collect(opts, l.inherited())
	v, names, err := l.buildFirst(c)
	if err != nil {
		return nil, err
	}
	l.opts = c.opts
	f.registry.Generation().Put(names)
	f.members = append(f.members, l)
	f.lines.Store(v.backend.Lines, nil)
	l.observers.byOption = c.observers
	l.logger, l.logKeys = c.logger, c.logKeys
	f.updateDestinations()
	l.current.Store(v)
	l.logged.Store(v)
	all := f.checkLimiter(l, c)
	l.observeStore(c) // which may call back at once
	return all, nil
}

// buildFirst makes the first version of a new limiter, and the names of the family's limits with its own. It
// puts neither in force. The caller holds family.mu.
func (l *Limiter) buildFirst(c *config) (*version, *compile.Names, error) {
	generation := l.family.registry.Generation()
	names := generation.Names().Clone()
	var parent *version
	if l.parent != nil {
		parent = l.parent.current.Load()
	}
	v, errs := l.build(c, parent, generation, names)
	return v, names, joinProblems(errs)
}

// inherited returns the behavior that l has as far as its options say nothing else.
func (l *Limiter) inherited() behavior {
	if l.parent == nil {
		return defaultBehavior
	}
	return l.parent.current.Load().behavior
}

// build makes the version of l from its options and the version of its parent, if it has
// one. The limits are named in names, which will be those of generation. The caller holds
// family.mu.
func (l *Limiter) build(c *config, parent *version, generation *compile.Generation,
	names *compile.Names) (*version, optionerror.List) {
	f := l.family
	s, lines, shared := f.chooseStore(c, l.current.Load(), parent)
	v := &version{behavior: c.behavior, registry: f.registry,
		events: sender{c.name, &l.destinations, s, &f.near}}
	own, _ := s.(*memstore.Store)
	v.memory = (*memory.Store)(own)
	v.backend = f.newBackend(v, s, lines)
	v.bytes = v.backend.ForBytes()
	v.issuer = permit.Issuer{Backend: v.backend, Reporter: (*permitReporter)(v)}
	if l.storeObserver == nil {
		l.storeObserver = &store.Observer{Tell: l.handleNotice}
	}
	if shared {
		v.backend.Leases = l.storeObserver
	}
	c.Owner, c.Priority = l, v.priority
	var extended *compile.Result
	if parent != nil {
		extended = parent.compiled
	}
	compiled, errs := f.registry.Compile(&c.Config, extended, generation, names, shared)
	v.compiled, v.plans = compiled, &compiled.Plans
	v.view = mistakes.View{Plans: v.plans, Store: s, StoreShared: shared, Ignored: v.ignored}
	v.dryRuns = len(compiled.Funcs) > 0
	for e := range v.plans.Entries {
		v.dryRuns = v.dryRuns || e.DryRun
	}
	v.warnTooCostly = func(c *store.Charge) { f.warn(v, mistakes.TooCostly(c)) }
	v.shows = v.handles() || v.plans.Shows()
	return v, errs
}

// chooseStore returns the store of a new version, and the lines of those who wait for it. They are those of
// the limiter's version before, of its options, or of its parent. shared reports whether the store is one
// of WithStore.
func (f *family) chooseStore(c *config, before, parent *version) (s store.Store, ls *lines.Lines, shared bool) {
	if before == nil && c.Store != nil {
		return c.Store, f.linesOf(c.Store), true
	}
	if from := cmp.Or(before, parent); from != nil {
		return from.backend.Store, from.backend.Lines, from.compiled.StoreShared
	}
	return memstore.New(), new(lines.Lines), false
}

// newBackend returns the backend by which a version decides in a store.
func (f *family) newBackend(v *version, s store.Store, ls *lines.Lines) *decide.Backend {
	all := f.registry.Adaptive
	b := &decide.Backend{
		Store: s, Local: all.Over(s), Keys: all, Lines: ls,
		Current: f.registry.Current,
	}
	if own := v.memory; own != nil { // no store around one, which may want to see what is settled
		b.Release = func(key string, l *store.Limit, lease store.LeaseID) {
			var results [1]store.Result // on the stack, as the charge, because own is no interface
			_ = own.Settle(context.Background(), []store.Charge{{Key: key, Limit: l, Receipt: store.Receipt{Lease: lease}}},
				results[:])
		}
	}
	return b
}

// family is the state shared by a limiter and all limiters derived from it. They are updated
// together: a derived limiter is With applied to the present state of its parent.
type family struct {
	mu      sync.Mutex // held by one New, With or Update at a time
	members []*Limiter // each limiter before those derived from it
	// registry has the names of their limits, and the limits of this process.
	registry *compile.Registry

	lines sync.Map // of *lines.Lines: those of each store are the same across Updates

	near     near.Table     // what keys have reached of limits with WithNearLimit
	names    mistakes.Names // for other families on the same store; guarded by mu
	builds   mistakes.Builds
	updates  mistakes.Updates // guarded by mu
	findings mistakes.List
}

func newFamily() *family {
	f := new(family)
	f.registry = compile.NewRegistry(adaptive.NewKeys(f.wake))
	return f
}

// linesOf returns the lines of a store, which other limiters of the family may have too. The caller holds f.mu.
func (f *family) linesOf(s store.Store) *lines.Lines {
	for _, m := range f.members {
		if v := m.current.Load(); v.view.SharesStore(s) {
			return v.backend.Lines
		}
	}
	return new(lines.Lines)
}

// wake wakes those who wait for slots of a limit of this process, whatever their store.
func (f *family) wake(limit, key string) {
	for ls := range f.lines.Range {
		ls.(*lines.Lines).Wake(lines.Key{Limit: limit, Key: key, Slots: true, Decided: true})
	}
}

// observeStore observes the store of the options c, or the limiter's own in memory. A derived limiter
// leaves that of its parent to the parent. The limiter keeps the observer alive and the store doesn't,
// except for leases that are held, so that a store that outlives the limiter doesn't retain it.
func (l *Limiter) observeStore(c *config) {
	s := c.Store
	if s == nil && l.parent == nil {
		s = l.current.Load().backend.Store // its own
	}
	if observable, ok := s.(store.Observable); ok {
		observable.Observe(l.storeObserver)
	}
}

// changesStore reports whether a notice says that another store decides from now on. Another failed probe of a part
// that was degraded already changes nothing.
func (l *Limiter) changesStore(n store.Notice) bool {
	part := addressOf(n.Store)
	switch n.Kind {
	case store.Degraded:
		_, was := l.degraded.Swap(part, true)
		return !was
	case store.Restored:
		l.degraded.Delete(part)
		return true
	}
	return false
}

// handleNotice sends the event of a notice of the store, or warns of it.
func (l *Limiter) handleNotice(n store.Notice) {
	if l.changesStore(n) {
		l.current.Load().backend.Lines.ForgetAll()
	}
	switch n.Kind {
	case store.CallFailed, store.Degraded, store.Restored:
		d := &degradation{store: n.Store, instead: n.Instead, callFailed: n.Kind == store.CallFailed}
		if v := reflect.ValueOf(n.Err); v.Kind() == reflect.Pointer {
			d.incident = n.Err
		}
		l.sendSafely(Event{Kind: EventStoreDegraded, Err: n.Err, degraded: d})
	case store.LeaseLost:
		e := Event{Kind: EventLeaseLost}
		e.setCharges([]store.Charge{{Key: n.Key, Limit: n.Limit}})
		l.sendSafely(e)
	case store.MayForget:
		l.warnOfForgetting(n.Err)
	case store.Full:
		v := l.currentVersion()
		l.family.warn(v, mistakes.FullStore(&v.view, n.Err.Error()))
	}
}
