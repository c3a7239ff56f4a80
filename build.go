package stint

import (
	"context"
	"log/slog"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// begin gives a new limiter its first version.
func (l *Limiter) begin(opts []Option) (*Limiter, error) {
	all, err := l.first(opts)
	if err != nil {
		return nil, err
	}
	v, b := l.now.Load(), &l.family.warnings
	l.logMade()
	give(all)
	b.warn(v, b.rebuilt(v, l.parent != nil)...)
	return l, nil
}

// logMade writes what the new limiter has.
func (l *Limiter) logMade() {
	v := l.now.Load()
	l.recipients.log.Load().Write(context.Background(), logs.Line{Message: logs.Made, Attrs: func(bool) []slog.Attr {
		var limits []string
		for _, has := range v.inventory() {
			limits = append(limits, has.String())
		}
		if len(v.compiled.Funcs) > 0 {
			limits = append(limits, "those of a WithLimitFunc")
		}
		return v.events.attrs(slog.String("limits", enumerate(limits)), slog.String("store", storeName(v.backend.Store)))
	}})
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
	l.observers.given = c.observers
	l.logger, l.logKeys = c.logger, c.logKeys
	f.enlist()
	l.now.Store(v)
	l.logged.Store(v)
	all := f.announce(l, c)
	l.observeStore(c) // which may call back at once
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
	c.Owner = l
	v := &version{conduct: c.conduct, events: sender{name: c.name, to: &l.recipients}, registry: l.family.registry}
	var extended *compile.Result
	if parent != nil {
		extended = parent.compiled
	}
	lent := l.family.house(v, c, l.now.Load(), parent)
	v.events.store = v.backend.Store
	if l.storeObserver == nil {
		l.storeObserver = &store.Observer{Tell: l.handleNotice}
	}
	if lent {
		v.backend.Leases = l.storeObserver
	}
	compiled, wrong := l.family.registry.Compile(&c.Config, extended, names, naming, lent)
	compiled.Plans.Priority = v.priority
	v.compiled, v.plans = compiled, &compiled.Plans
	if v.priority != nil && onlyTurns(v) {
		wrong.Bad("WithPriority", "only turns of a rate are waited for, and those come first come, first served",
			"put a Concurrency with a WithQueue in front, or leave WithPriority out")
	}
	v.dryRuns = len(compiled.Funcs) > 0
	for e := range v.plans.Entries {
		v.dryRuns = v.dryRuns || e.DryRun
	}
	v.tooCostly = func(c *store.Charge) { l.family.warnings.warn(v, costTooHigh(c)) }
	v.shows = v.handles() || v.plans.Shows()
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
		lines = f.linesOf(in)
	case from == nil && parent == nil:
		in = memstore.New()
		lines = new(waiting.Lines)
	default:
		if from == nil {
			from = parent
		}
		in, lent = from.backend.Store, from.compiled.Lent
		lines = from.backend.Lines
	}
	v.memory, _ = in.(*memstore.Store)
	all := f.registry.Adaptive
	v.backend = &decide.Backend{
		Store: in, Local: all.Over(in), Keys: all, Lines: lines,
		Newest: f.registry.Newest, Turns: turnsOf(v),
	}
	if own := v.memory; own != nil { // no store around one, which may want to see what is settled
		v.backend.Release = func(key string, l *store.Limit, lease store.LeaseID) {
			var results [1]store.Result // on the stack, as the charge, because own is no interface
			_ = own.Settle(context.Background(), []store.Charge{{Key: key, Limit: l, Receipt: store.Receipt{Lease: lease}}}, results[:])
		}
	}
	return lent
}
