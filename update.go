package stint

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store/memstore"
)

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
// A request that waits for a turn keeps its turn; later ones wait by the
// new numbers. A request that waits for a slot stays in line, for the limit of that
// name as it now is: a larger one lets the line in at once, a smaller one lets none
// in until enough slots are free, and denies a request that asks for more slots than it
// has. If that limit is gone, or has become one of another
// kind, the one that the request waits for decides.
//
// On a limiter made by With, Update replaces what With was given. All limiters derived
// from l change with it: each becomes what With would now make of it, and a conflict
// with their names is an error. If an Update comes between two nested limiters, the inner
// one decides by the new configuration, and charges no limit that the outer one has
// charged for the same key.
//
// A WithStore other than the limiter's own is an error, because the counts are in that
// store: an empty one would silently give everybody a fresh burst. Make a new Limiter
// for that.
//
// Observers of the new configuration get an EventUpdated. It is in force then, so a panic
// of theirs is logged and goes no further.
func (l *Limiter) Update(opts ...Option) error {
	l.inForce()
	all, err := l.update(opts)
	if err != nil {
		return err
	}
	give(all)
	l.logChanges()
	l.sendSafely(Event{Kind: EventUpdated})
	return nil
}

// logChanges writes what of the limits has changed since the log last showed them.
func (l *Limiter) logChanges() {
	if changesBetween(l.logged.Load(), l.now.Load()) == "" {
		return
	}
	l.recipients.log.Load().Write(context.Background(), logs.Line{Message: logs.LimitsChanged, About: &l.recipients, Attrs: func(bool) []slog.Attr {
		v := l.now.Load()
		was := l.logged.Swap(v)
		return v.events.attrs(slog.String("changes", cmp.Or(changesBetween(was, v), "none")))
	}})
}

// update puts versions in place in which l has the options opts.
func (l *Limiter) update(opts []Option) ([]notice, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()

	c, before := collect(opts, l.inherited()), f.registry.Names().Now()
	versions, n, err := l.next(c, before)
	if err != nil {
		return nil, err
	}
	l.opts = c.opts
	if len(c.observers) > 0 {
		l.observers.given = c.observers
	}
	if c.logger != nil || c.logKeys {
		l.logger, l.logKeys = c.logger, c.logKeys
	}
	f.enlist()
	was, earlier := f.limits(), l.now.Load()
	for _, m := range f.members { // all of them first: members share limits, which no request has yet
		follow(versions[m], m.now.Load())
	}
	f.registry.Put(n)
	for _, m := range f.members {
		m.ready.Store(nil)
	}
	for _, m := range f.members {
		m.now.Store(versions[m])
	}
	f.registry.Adaptive.Retire(before.Gone(n.Now()))
	for ls := range f.lines.Range {
		ls.(*waiting.Lines).Slots.WakeAll()
	}
	news, v := f.announce(l, c), l.now.Load()
	return append(news, f.warnings.add(v, f.warnings.dropped(earlier, v, was, f.limits())...)...), nil
}

// follow makes a version go on with what limits of the same numbers have recorded before.
func follow(v, before *version) {
	was := map[string]*read.Plan{}
	for _, q := range before.plans.All() {
		was[q.Pattern] = q
	}
	for _, p := range v.plans.All() {
		q := was[p.Pattern]
		if q == nil {
			continue
		}
		if q.Met() {
			p.Meet()
		}
		named := map[string]*read.Entry{}
		for _, o := range q.Entries {
			named[o.Name()] = o
		}
		for _, e := range p.Entries {
			if o := named[e.Name()]; o != nil && list(p, e) == list(q, o) {
				e.Record = o.Record
			}
		}
	}
}

// limits returns what the limits of the family are, by their names. Those of a dry run, which
// protect nothing, are left out. The caller holds f.mu.
func (f *family) limits() map[string]string {
	all := map[string]string{}
	for _, m := range f.members {
		for e := range m.now.Load().plans.Entries {
			if !e.DryRun {
				all[e.Name()] = compile.Text(e)
			}
		}
	}
	return all
}

// next makes the versions of all the family's limiters in which l has the options c, and
// their names, which follow those before. The caller holds family.mu.
func (l *Limiter) next(c *config, before *compile.Naming) (map[*Limiter]*version, *compile.Names, error) {
	members := l.family.members
	options := make(map[*Limiter]*config, len(members))
	all := make([]*compile.Config, 0, len(members))
	for _, m := range members {
		switch {
		case m == l:
			options[m] = c
		case m.parent == nil:
			options[m] = collect(m.opts, usual)
		default:
			options[m] = collect(m.opts, options[m.parent].conduct)
		}
		all = append(all, &options[m].Config)
	}
	versions, n, next := make(map[*Limiter]*version, len(members)), compile.NewNames(), before.Next(all)
	var errs []error
	for _, m := range members {
		v, wrong := m.build(options[m], versions[m.parent], n, next)
		versions[m] = v
		switch {
		case m == l:
			errs = optionErrors(slices.Concat(wrong, checkStore(v, c)), "stint: ")
		case len(errs) == 0: // otherwise these repeat l's errors
			errs = optionErrors(wrong, "stint: in a limiter derived by With: ")
		}
	}
	n.Put(next)
	return versions, n, errors.Join(errs...)
}

// checkStore returns errors for options that ask for another store than the limiter's.
func checkStore(v *version, c *config) (errs mistake.List) {
	if c.Store != nil && !same(c.Store, v.backend.Store) {
		errs.Bad("WithStore", "not the limiter's store, which holds the counts", "leave it out, or make a new Limiter")
	}
	if c.MemorySet && memstore.New(c.Memory...).Stats().MaxKeys != v.most {
		errs.Bad("WithMemory", "not the limiter's store, which holds the counts", "write what New was given, or make a new Limiter")
	}
	return errs
}
