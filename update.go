package stint

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
)

// Update changes the options of l while requests run. Options that aren't given stay as they
// are:
//
//   - Limits in opts replace all limits of l. Routes in opts replace all routes, and limit
//     functions in opts replace all limit functions. WithoutRoutes removes all routes, and
//     WithoutLimitFuncs all limit functions.
//   - Any other option replaces its earlier values: after Update(WithSkip(f)), only f exempts
//     requests. nil clears an option, as in WithSkip(nil) or WithDenyHandler(nil).
//
// As in New, the error reports all problems of the resulting options at once. After an error
// nothing has changed. Update returns an error for a WithStore with another store, because the
// counts are in the limiter's store. Update is safe for concurrent use; the last call wins.
//
// A limit with the same name and algorithm keeps its counts, so give names to the limits of a
// limiter that is updated. docs/algorithms.md describes how counts change with a limit's
// numbers. Each request is decided by one configuration: requests in flight keep the
// configuration that they began with, with one exception. A waiting request uses the new numbers
// and shares of its limits; see "Changes while requests wait" in docs/waiting.md.
//
// On a limiter made by With, Update changes the options that were passed to With. An Update of
// l also changes all limiters derived from l, as if With were called again on the new l. If a
// new name is already used by a derived limiter, Update returns an error.
//
// Observers get an EventUpdated once the change is in force. If an observer panics on that
// event, the panic is recovered and logged.
func (l *Limiter) Update(opts ...Option) error {
	l.currentVersion()
	all, err := l.update(opts)
	if err != nil {
		return err
	}
	sendWarnings(all)
	l.logChanges()
	l.sendSafely(Event{Kind: EventUpdated})
	return nil
}

// logChanges writes the changes of the limits since the log last showed them.
func (l *Limiter) logChanges() {
	if changesBetween(l.logged.Load(), l.current.Load()) == "" {
		return
	}
	l.destinations.log.Load().Write(context.Background(),
		logs.Line{Message: logs.LimitsChanged, About: &l.destinations, Attrs: func(bool) []slog.Attr {
			v := l.current.Load()
			logged := l.logged.Swap(v)
			return v.events.attrs(slog.String("changes", cmp.Or(changesBetween(logged, v), "none")))
		}})
}

// WithoutRoutes removes the routes in an Update. New and With return an error for it.
func WithoutRoutes() Option { return without("WithRoute", "WithoutRoutes()") }

// WithoutLimitFuncs removes the functions of WithLimitFunc in an Update. New and With return
// an error for it.
func WithoutLimitFuncs() Option { return without("WithLimitFunc", "WithoutLimitFuncs()") }

// without returns an option that clears a setting in an Update. written is the option as it is written.
func without(name, written string) Option {
	return limiterOption{setting{name, true}, func(c *config) {
		c.Errs.Add(written, "it has an effect only in Update", "leave it out")
	}}
}

// Complete makes an Update clear every option that isn't passed to the same Update, except the
// store, the observers and the logger. The options of a policy file begin with Complete. In New
// and With it has no effect.
func Complete() Option { return complete{} }

type complete struct{}

func (complete) sets() setting { return setting{} }

func (complete) applyLimiter(*config) {}

// merge returns the options of a limiter after an Update.
func merge(before, changed []Option) []Option {
	all, replaced := slices.Clone(before), map[string]bool{}
	if slices.Contains(changed, Complete()) {
		all = slices.DeleteFunc(all, func(o Option) bool { return !slices.Contains(surviving, o.sets().name) })
	}
	for i, o := range changed {
		if o == nil {
			o = nilOption(i)
		}
		s := o.sets()
		if s.clears || !replaced[s.name] {
			replaced[s.name] = true
			all = slices.DeleteFunc(all, func(o Option) bool { return o.sets().name == s.name })
		}
		if !s.clears {
			all = append(all, o)
		}
	}
	return all
}

// surviving are the settings that Complete doesn't clear.
var surviving = []string{"WithStore", "WithObserver", "WithLogger", "WithLogKeys"}

// update puts versions in place in which l has what is given of the options opts.
func (l *Limiter) update(opts []Option) ([]notice, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()

	c, names := collect(merge(l.opts, opts), l.inherited()), f.registry.Generation().Names()
	versions, generation, err := l.buildAll(c, names)
	if err != nil {
		return nil, err
	}
	l.opts = c.opts
	l.observers.byOption, l.logger, l.logKeys = c.observers, c.logger, c.logKeys
	f.updateDestinations()
	before := mistakes.Limits(f.views())
	records := map[*limit.Record]*limit.Record{}
	for _, m := range f.members { // all of them first: members share limits, which no request has yet
		keepRecords(versions[m], m.current.Load(), records)
	}
	f.registry.Put(generation)
	for _, m := range f.members {
		m.installed.Store(nil)
	}
	for _, m := range f.members {
		m.current.Store(versions[m])
	}
	f.registry.Adaptive.Retire(names.Gone(generation.Names()))
	for ls := range f.lines.Range {
		ls.(*lines.Lines).WakeAll()
	}
	v := l.current.Load()
	dropped := f.updates.Compare(&v.view, before, mistakes.Limits(f.views()))
	return append(f.checkLimiter(l, c), f.notices(v, dropped...)...), nil
}

// keepRecords makes a version record what happens to its limits where the version before has recorded it,
// for limits that haven't changed. records has the old record in the place of a new one: versions of a family share
// limits, and with them records.
func keepRecords(v, before *version, records map[*limit.Record]*limit.Record) {
	plans := map[string]*read.Plan{}
	for _, p := range before.plans.All() {
		plans[p.Pattern] = p
	}
	for _, p := range v.plans.All() {
		old := plans[p.Pattern]
		if old == nil {
			continue
		}
		if old.Matched() {
			p.MarkMatched()
		}
		texts := map[limitText]*limit.Record{}
		for _, e := range old.Declared {
			texts[textOf(old, e)] = e.Record
		}
		for _, e := range p.Declared {
			if record := texts[textOf(p, e)]; record != nil {
				records[e.Record] = record
			}
		}
	}
	for _, p := range v.plans.All() {
		for _, e := range append(slices.Clip(p.Entries), p.Declared...) {
			if old := records[e.Record]; old != nil {
				e.Record = old
			}
		}
	}
}

// buildAll makes the versions of all the family's limiters in which l has the options c, and the
// generation of their names, which follow those before. The caller holds family.mu.
func (l *Limiter) buildAll(c *config, before *compile.Names) (map[*Limiter]*version, *compile.Generation, error) {
	members := l.family.members
	options := make(map[*Limiter]*config, len(members))
	all := make([]*compile.Config, 0, len(members))
	for _, m := range members {
		switch {
		case m == l:
			options[m] = c
		case m.parent == nil:
			options[m] = collect(m.opts, defaultBehavior)
		default:
			options[m] = collect(m.opts, options[m.parent].behavior)
		}
		all = append(all, &options[m].Config)
	}
	versions, generation, names := make(map[*Limiter]*version, len(members)), compile.NewGeneration(), before.Next(all)
	var errs []error
	for _, m := range members {
		v, problems := m.build(options[m], versions[m.parent], generation, names)
		versions[m] = v
		switch {
		case m == l:
			errs = optionErrors(slices.Concat(problems, checkStore(v, c)), "stint: ")
		case len(errs) == 0: // otherwise these repeat l's errors
			errs = optionErrors(problems, "stint: in a limiter derived by With: ")
		}
	}
	generation.Put(names)
	return versions, generation, errors.Join(errs...)
}

// checkStore returns errors for options that ask for another store than the limiter's.
func checkStore(v *version, c *config) (errs optionerror.List) {
	if c.Store != nil && !v.view.SharesStore(c.Store) {
		errs.Add("WithStore", "Update can't change the store, because it has the counts",
			"leave WithStore out, or make a new Limiter")
	}
	return errs
}
