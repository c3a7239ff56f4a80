package stint

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/naming"
	"github.com/stint-go/stint/internal/process"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// family is what a limiter and all limiters derived from it share. They are updated
// together: a derived limiter is With applied to the present state of its parent.
type family struct {
	mu      sync.Mutex // held by one New, With or Update at a time
	members []*Limiter // each limiter before those derived from it
	now     atomic.Pointer[generation]

	process *process.Process // the same across Updates

	meanings meanings // what others are to know of it, or nil; guarded by mu

	warnings warn.Book
}

func newFamily() *family {
	f := new(family)
	f.process = new(process.Process)
	f.now.Store(newGeneration(f.process, naming.New()))
	return f
}

// begin gives a new limiter its first version.
func (l *Limiter) begin(opts []Option) (*Limiter, error) {
	n, err := l.first(collect(opts))
	if err != nil {
		return nil, err
	}
	l.notify(n)
	l.notify(notices{warnings: l.family.warnings.Built(l.now.Load(), l.parent != nil)})
	return l, nil
}

// first puts the first version of a new limiter in place.
func (l *Limiter) first(c *config) (notices, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()
	v, names, err := l.try(c)
	if err != nil {
		return notices{}, err
	}
	l.opts = c.opts
	g := v.generation
	g.mu.Lock()
	g.names, g.versions[l] = names, v
	g.mu.Unlock()
	f.members = append(f.members, l)
	f.process.Meet(v.waiters)
	l.now.Store(v)
	l.hear(c.store)
	l.observers.Give(c.observers)
	l.logger, l.logKeys = c.logger, c.logKeys
	f.enlist()
	return f.announce(l, c), nil
}

// waiters returns those for a store, which other limiters of the family may have too. The
// caller holds f.mu.
func (f *family) waiters(s store.Store) *process.Waiters {
	for _, m := range f.members {
		if v := m.now.Load(); same(v.store, s) {
			return v.waiters
		}
	}
	return new(process.Waiters)
}

// try makes what would be the first version of a new limiter, in the present generation,
// and the names that go with it. It changes nothing. The caller holds family.mu.
func (l *Limiter) try(c *config) (*version, *naming.Names, error) {
	g := l.family.now.Load()
	names := g.names.Clone()
	v, errs := l.build(c, g, names)
	return v, names, append(errs, c.probe()...).joined()
}

// Update replaces what New was given by opts while requests run: limits, routes, limit
// functions, keys, handlers, fields and observers. opts are complete, as for New:
// nothing of the old options remains, except the store, and the logger and observers if
// opts set none. The error reports everything that is wrong at once, as New's does;
// nothing has changed then. Update is safe for concurrent use; the last one wins.
//
// Each request is decided by one configuration as a whole: requests under way keep the
// one they began with, and their permits settle and release what they were charged.
//
// A limit keeps what has been consumed under its name and algorithm, clamped to its new
// numbers:
//
//   - A larger burst, window, quota or number of slots makes the difference available
//     at once: with 10 of 10 used, 15 leaves 5, not 15.
//   - A faster rate with the same burst lets nothing more through at once, but refills
//     faster.
//   - Limits that must be recognized across updates need a WithName, since default
//     names change with the limits before them.
//   - A limit with another algorithm is a different limit and starts anew.
//
// A request that waits for a turn keeps the turn it was told; later ones wait by the
// new numbers. A request that waits for a slot stays in line, for the limit of that
// name as it now is: a larger one lets the line in at once, a smaller one lets nobody
// in until enough slots are free. If it has become a limit of another kind, that one
// decides, even if it refuses. If no limit has that name any more, the old one decides.
//
// On a limiter made by With, Update replaces what With was given. All limiters derived
// from l change with it: each becomes what With would now make of it, and a conflict
// with their names is an error. A request inside nested limiters keeps its original
// configuration throughout.
//
// A WithStore other than the limiter's own is an error, because the counts are in that
// store: an empty one would silently give everybody a fresh burst. Make a new Limiter
// for that.
//
// Observers of the new configuration get an EventUpdated.
func (l *Limiter) Update(opts ...Option) error {
	v, n, err := l.update(collect(opts))
	if err != nil {
		return err
	}
	l.notify(n)
	v.observe(&Event{Kind: EventUpdated})
	return nil
}

// update installs a generation in which l has the options c.
func (l *Limiter) update(c *config) (*version, notices, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()

	before := f.now.Load().named()
	g, err := l.next(c, before)
	if err != nil {
		return nil, notices{}, err
	}
	l.opts = c.opts
	if len(c.observers) > 0 {
		l.observers.Give(c.observers)
	}
	if c.logger != nil || c.logKeys {
		l.logger, l.logKeys = c.logger, c.logKeys
	}
	f.enlist()
	f.now.Store(g)
	for _, m := range f.members {
		m.now.Store(g.versions[m])
	}
	if all := f.process.Limits(); all != nil {
		all.Retire(before.Gone(g.names, func(l *store.Limit) bool { return l.Decider() != nil }))
	}
	f.process.WakeAll()
	return g.versions[l], f.announce(l, c), nil
}

// next makes the generation that follows the one with the names before, in which l has
// the options c. The caller holds family.mu.
func (l *Limiter) next(c *config, before *naming.Names) (*generation, error) {
	members := l.family.members
	options := make(map[*Limiter]*config, len(members))
	used := map[naming.Rule]bool{}
	for _, m := range members {
		options[m] = c
		if m != l {
			options[m] = collect(m.opts)
		}
		for _, u := range options[m].uses() {
			used[u.rule] = true
		}
	}
	g := newGeneration(l.family.process, before.Next(func(r naming.Rule) bool { return used[r] }))
	var errs []error
	for _, m := range members {
		v, wrong := m.build(options[m], g, g.names)
		g.versions[m] = v
		switch {
		case m == l:
			errs = slices.Concat(wrong, c.probe(), v.moved(c)).errors("stint: ")
		case len(errs) == 0: // otherwise these repeat l's errors
			errs = wrong.errors("stint: in a limiter derived by With: ")
		}
	}
	g.names.Settled()
	return g, errors.Join(errs...)
}

// moved returns errors for options that ask for another store than the limiter's.
func (v *version) moved(c *config) (errs mistakes) {
	if c.store != nil && !same(c.store, v.store) {
		errs.bad("WithStore", "not the limiter's store, which holds the counts", "leave it out, or make a new Limiter")
	}
	if c.memorySet && memstore.New(c.memory...).Stats().MaxKeys != v.most {
		errs.bad("WithMemory", "not the limiter's store, which holds the counts", "write what New was given, or make a new Limiter")
	}
	return errs
}

// same reports whether two stores are the same. Stores that can't be compared, such as
// structs with a slice, are taken to be different.
func same(a, b store.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// generation holds the versions of a family that belong together.
type generation struct {
	process  *process.Process
	mu       sync.Mutex // guards the rest, which With adds to
	names    *naming.Names
	versions map[*Limiter]*version
}

func newGeneration(p *process.Process, n *naming.Names) *generation {
	return &generation{process: p, names: n, versions: map[*Limiter]*version{}}
}

func (g *generation) version(l *Limiter) *version {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.versions[l]
}

// beside returns the version of v's limiter that decides a request already admitted by
// outer's limiters. An Update may come between two limiters that a request passes. The
// inner one must recognize the limits that the outer one has charged, so it uses the
// generation that the request began with.
func (v *version) beside(outer *Permit) *version {
	for p := outer; p != nil; p = p.outer {
		if p.lim.family != v.family {
			continue
		}
		if p.lim.generation != v.generation {
			if o := p.lim.generation.version(v.of); o != nil { // nil: derived later
				return o
			}
		}
		break
	}
	return v
}

// named returns the present names. With replaces them; they are never modified.
func (g *generation) named() *naming.Names {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names
}

// limit returns the store's limit for a rule that a WithLimitFunc returned.
func (g *generation) limit(r *rule) (*store.Limit, error) {
	n := g.named()
	if l, _ := n.Limit(r); l != nil {
		return l, nil
	}
	if n.Rule(r.spec.Name) != nil {
		return nil, errNamesake("", r.spec.Name)
	}
	l, wrong := r.compileOnce()
	return l, errors.Join(wrong.errors("")...)
}

// successor returns what an entry has become in g: the limit that now has its name,
// whatever its kind, with the entry's own key, cost and maximum wait. It returns the
// entry itself if that limit is the same, doesn't exist, or is of a kind that can't
// decide in its place (see kind.succeeds).
func (g *generation) successor(e *entry) *entry {
	n := g.named()
	r, ok := n.Rule(e.limit.Name()).(*rule)
	if !ok || !r.kind.succeeds() {
		return e
	}
	l, _ := n.Limit(r)
	next := newEntry(g.process, r, l, settings{key: e.key, cost: e.cost, settle: e.settle, dryRun: e.dryRun})
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

// announce registers the family's present limits, in place of the previous ones, for
// stores that other families may share. It returns the notices about conflicts and about
// l's options c. The caller holds f.mu. Requests never run it.
func (f *family) announce(l *Limiter, c *config) (n notices) {
	if f.meanings == nil && c.meanings != nil {
		f.meanings = c.meanings()
	}
	if f.meanings != nil {
		n.conflicts = f.meanings.Mean(f.lent())
	}
	for _, k := range c.keySources() {
		n.warnings = append(n.warnings, f.warn(k, k.Shown())...)
		if l.now.Load().silent&warn.Traffic != warn.Traffic && k.constant == "" && !k.given {
			k.Watch(func() { f.look(k) })
		}
	}
	return n
}

// meanings finds names with two meanings in one store: namesakes.Family, once a limiter
// has a store that others may use.
type meanings interface {
	Mean(all []namesakes.Meaning) []namesakes.Conflict
}

func newMeanings() meanings { return new(namesakes.Family) }

// lent is what the family's names mean in stores that others may use.
func (f *family) lent() (all []namesakes.Meaning) {
	for _, m := range f.members {
		v := m.now.Load()
		if !v.lent {
			continue
		}
		for e := range v.entries() {
			if e.needs&local == 0 { // a local limit is in no store
				all = append(all, namesakes.Meaning{Store: v.store, Name: e.limit.Name(), Says: e.says()})
			}
		}
	}
	return all
}

// notices are messages about a family. They are delivered without its lock, because
// loggers and observers are the application's code.
type notices struct {
	conflicts []namesakes.Conflict
	warnings  []warn.Notice
}

func (l *Limiter) notify(n notices) {
	for _, c := range n.conflicts {
		l.log.Load().Write(context.Background(), logs.Namesakes, func(bool) []slog.Attr {
			return []slog.Attr{slog.String("limit", c.Name), slog.String("rule", c.Says), slog.String("other", c.Other)}
		})
	}
	for _, w := range n.warnings {
		w.Tell()
	}
}

// look sends warnings about what a key source's requests have shown so far.
func (f *family) look(k *keySource) {
	f.mu.Lock()
	all, to := f.warn(k, k.Found()), f.members[0]
	f.mu.Unlock()
	to.notify(notices{warnings: all})
}

// warn returns notices of what was found about a key source and is new. The caller holds
// f.mu.
func (f *family) warn(k *keySource, found warn.Set) []warn.Notice {
	users := make([]warn.User, len(f.members))
	for i, m := range f.members {
		users[i] = m.now.Load()
	}
	return f.warnings.Find(users, &k.Source, found)
}

// Silent implements warn.User.
func (v *version) Silent() warn.Set { return v.silent }

// Uses implements warn.User.
func (v *version) Uses(s *warn.Source) (limits []string, uses bool) {
	for e := range v.entries() {
		if &e.key.Source == s {
			limits, uses = append(limits, e.limit.Name()), true
		}
	}
	return limits, uses || slices.ContainsFunc(v.funcs, func(f *limitFunc) bool { return &f.shared.key.Source == s })
}

// Warn implements warn.User.
func (v *version) Warn(w *warn.Warning) {
	told := warningOf(w)
	v.of.Tell(Event{Kind: EventWarning, Warning: &told})
}

// says describes an entry's limit by everything that its counting depends on.
func (e *entry) says() string {
	block, units := e.kind.unit()
	return namesakes.Says(e.limit.Spec(), block, units)
}
