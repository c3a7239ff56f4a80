package stint

import (
	"errors"
	"reflect"
	"slices"

	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// Update replaces what New was given by opts, while requests run: limits,
// routes, limit functions, keys, handlers, fields and observers. Nothing of the
// old options is left, so opts are all of the new ones, as New takes them. The
// store stays; see below. An error reports everything that is wrong at once, as
// New's does, and then nothing has changed.
//
// A request is decided by one configuration whole: requests under way go on with
// the one they began with, and their permits settle and release what they were
// charged. A limit keeps what has been consumed under its name and algorithm,
// clamped to its new numbers. A larger burst, window, quota or number of slots
// has the difference left at once: with 10 of 10 used, 15 leaves 5, not 15. A
// faster rate with the same burst lets nothing more through at once, and refills
// faster. Limits that are to be told apart across updates need a WithName, as
// default names change with the limits before them. A limit with another algorithm
// is another limit, and starts anew.
//
// Who waits for a turn keeps the turn it was told; the next to come wait by the
// new numbers. Who waits for a slot goes on waiting in line, for the limit of
// that name as it now is: a larger one lets the line in at once, a smaller one
// lets nobody in before as many slots are free. Where it has become a limit of
// another kind, that one decides, also if it refuses; where there is none of that
// name any more, the old one does.
//
// On a limiter made by With, Update replaces what With was given. All limiters
// derived from l change with it, each being what With would make of it now; a
// conflict with their names is an error. A request between a limiter and one
// derived from it that is mounted inside is in neither's way: the inner one
// decides it as it was when the outer one did.
//
// Another WithStore than the limiter's own is an error: counts are in the store,
// and to begin with an empty one would give everybody a fresh burst behind a
// word that promises not to. Make a new Limiter for that.
//
// Observers of the new configuration are told (EventUpdated). Update is safe for
// concurrent use; the last one counts.
func (l *Limiter) Update(opts ...Option) error {
	v, conflicts, err := l.update(collect(opts))
	if err != nil {
		return err
	}
	warn(conflicts)
	v.observe(Event{Kind: EventUpdated})
	return nil
}

// update makes a generation in which l has the options c, and puts it in place.
func (l *Limiter) update(c *config) (*version, []namesakes.Conflict, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()

	options := make(map[*Limiter]*config, len(f.members))
	used := map[*rule]bool{}
	for _, m := range f.members {
		options[m] = c
		if m != l {
			options[m] = collect(m.opts)
		}
		for _, u := range options[m].uses() {
			used[u.rule] = true
		}
	}
	before := f.now.Load().named()
	names := before.without(func(r *rule) bool { return used[r] })
	g := newGeneration(names)

	var errs []error
	for _, m := range f.members {
		v, wrong := m.build(options[m], g, names)
		g.versions[m] = v
		switch {
		case m == l:
			errs = slices.Concat(wrong, c.probe(), v.moved(c)).errors("stint: ")
		case len(errs) == 0: // or they are l's once more
			errs = wrong.errors("stint: in a limiter derived by With: ")
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	names.before = nil
	l.opts = c.opts
	f.now.Store(g)
	for _, m := range f.members {
		m.now.Store(g.versions[m])
	}
	if all := f.adaptive.now(); all != nil {
		all.Retire(before.gone(names))
	}
	f.lines.WakeAll()
	return g.versions[l], f.announce(), nil
}

// moved reports options that ask for another store than the limiter has.
func (v *version) moved(c *config) (errs mistakes) {
	if c.store != nil && !same(c.store, v.store) {
		errs.bad("WithStore", "another store than the limiter's, which has the counts", "leave it out, or make a new Limiter")
	}
	if c.memorySet && !v.sized(c.memory) {
		errs.bad("WithMemory", "another store than the limiter's, which has the counts", "write what New was given, or make a new Limiter")
	}
	return errs
}

// sized reports whether the limiter has a store of its own such as opts make.
func (v *version) sized(opts []memstore.Option) bool {
	own, memory := v.store.(*memstore.Store)
	return memory && !v.lent && own.Stats().MaxKeys == memstore.New(opts...).Stats().MaxKeys
}

// same reports whether two stores are one. Those that can't be compared, as
// values with a slice in them, are taken for two.
func same(a, b store.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
