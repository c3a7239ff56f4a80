package stint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/keyfunc"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// family is what a limiter and all limiters derived from it share. They are updated
// together: a derived limiter is With applied to the present state of its parent.
type family struct {
	mu      sync.Mutex // held by one New, With or Update at a time
	members []*Limiter // each limiter before those derived from it
	names   atomic.Pointer[names]

	// The limits of this process, and the lines of those who wait for something of each
	// store, are the same across Updates.
	adaptive *adaptive.Keys
	lines    atomic.Pointer[[]*waiting.Lines] // replaced under mu

	meanings namesakes.Family // what others are to know of it; guarded by mu

	warnings warn.Book
}

func newFamily() *family {
	f := new(family)
	f.adaptive = adaptive.NewKeys(f.wake)
	f.lines.Store(new([]*waiting.Lines))
	n := new(names)
	n.now.Store(newNaming())
	f.names.Store(n)
	return f
}

// linesOf returns the lines of a store, and the streams that wait for its bytes, which
// other limiters of the family may have too. The caller holds f.mu.
func (f *family) linesOf(s store.Store) (*waiting.Lines, *respond.Queues) {
	for _, m := range f.members {
		if v := m.now.Load(); same(v.store, s) {
			return v.lines, v.streams
		}
	}
	return new(waiting.Lines), new(respond.Queues)
}

// meet adds the lines of a store, if the family doesn't have them yet. The caller holds
// f.mu.
func (f *family) meet(ls *waiting.Lines) {
	if all := *f.lines.Load(); !slices.Contains(all, ls) {
		all = append(slices.Clip(all), ls)
		f.lines.Store(&all)
	}
}

// wake wakes those who wait for slots of a limit of this process, whatever their store.
func (f *family) wake(limit, key string) {
	for _, ls := range *f.lines.Load() {
		ls.Wake(waiting.Key{Limit: limit, Key: key, Decided: true})
	}
}

// begin gives a new limiter its first version.
func (l *Limiter) begin(opts []Option) (*Limiter, error) {
	n, err := l.first(opts)
	if err != nil {
		return nil, err
	}
	l.notify(n)
	l.notify(notices{warnings: l.family.warnings.Built(l.now.Load(), l.parent != nil)})
	return l, nil
}

// first puts the first version of a new limiter in place.
func (l *Limiter) first(opts []Option) (notices, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()
	c := collect(opts, l.inherited())
	v, naming, err := l.try(c)
	if err != nil {
		return notices{}, err
	}
	l.opts = c.opts
	v.names.now.Store(naming)
	f.members = append(f.members, l)
	f.meet(v.lines)
	l.now.Store(v)
	l.hear(v, c.store)
	l.observers.give(c.observers)
	l.logger, l.logKeys = c.logger, c.logKeys
	f.enlist()
	return f.announce(l, c), nil
}

// try makes what would be the first version of a new limiter, and the naming that goes
// with it. It changes nothing. The caller holds family.mu.
func (l *Limiter) try(c *config) (*version, *naming, error) {
	n := l.family.names.Load()
	next := n.now.Load().clone()
	var parent *version
	if l.parent != nil {
		parent = l.parent.now.Load()
	}
	v, errs := l.build(c, parent, n, next)
	return v, next, joined(append(errs, c.probe()...))
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
// in until enough slots are free. If that limit is gone, or has become one of another
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
	n, err := l.update(opts)
	if err != nil {
		return err
	}
	l.notify(n)
	l.Tell(Event{Kind: EventUpdated})
	return nil
}

// update puts versions in place in which l has the options opts.
func (l *Limiter) update(opts []Option) (notices, error) {
	f := l.family
	f.mu.Lock()
	defer f.mu.Unlock()

	c, before := collect(opts, l.inherited()), f.names.Load().now.Load()
	versions, n, err := l.next(c, before)
	if err != nil {
		return notices{}, err
	}
	l.opts = c.opts
	if len(c.observers) > 0 {
		l.observers.give(c.observers)
	}
	if c.logger != nil || c.logKeys {
		l.logger, l.logKeys = c.logger, c.logKeys
	}
	f.enlist()
	f.names.Store(n)
	for _, m := range f.members {
		m.now.Store(versions[m])
	}
	f.adaptive.Retire(before.gone(n.now.Load(), func(l *store.Limit) bool { return l.Decider() != nil }))
	for _, ls := range *f.lines.Load() {
		ls.WakeAll()
	}
	return f.announce(l, c), nil
}

// next makes the versions of all the family's limiters in which l has the options c, and
// their names, which follow those before. The caller holds family.mu.
func (l *Limiter) next(c *config, before *naming) (map[*Limiter]*version, *names, error) {
	members := l.family.members
	options := make(map[*Limiter]*config, len(members))
	used := map[*rule]bool{}
	for _, m := range members {
		switch {
		case m == l:
			options[m] = c
		case m.parent == nil:
			options[m] = collect(m.opts, usual)
		default:
			options[m] = collect(m.opts, options[m.parent].conduct)
		}
		for _, u := range options[m].uses() {
			used[u.rule] = true
		}
	}
	versions, n, next := make(map[*Limiter]*version, len(members)), new(names), before.next(used)
	var errs []error
	for _, m := range members {
		v, wrong := m.build(options[m], versions[m.parent], n, next)
		versions[m] = v
		switch {
		case m == l:
			errs = optionErrors(slices.Concat(wrong, c.probe(), v.moved(c)), "stint: ")
		case len(errs) == 0: // otherwise these repeat l's errors
			errs = optionErrors(wrong, "stint: in a limiter derived by With: ")
		}
	}
	next.before = nil
	n.now.Store(next)
	return versions, n, errors.Join(errs...)
}

// announce registers the family's present limits, in place of the previous ones, for
// stores that other families may share. It returns the notices about conflicts and about
// l's options c. The caller holds f.mu. Requests never run it.
func (f *family) announce(l *Limiter, c *config) (n notices) {
	n.conflicts = f.meanings.Mean(f.lent())
	for _, k := range c.keySources() {
		n.warnings = append(n.warnings, f.warn(k, k.Shown())...)
		if l.now.Load().silent&warn.Traffic != warn.Traffic && k.Constant == "" && !k.Given {
			k.Watch(func() { f.look(k) })
		}
	}
	return n
}

// lent is what the family's names mean in stores that others may use.
func (f *family) lent() (all []namesakes.Meaning) {
	for _, m := range f.members {
		v := m.now.Load()
		if !v.lent {
			continue
		}
		for e := range v.entries() {
			if e.needs&local == 0 { // a local limit is in no store
				all = append(all, namesakes.Meaning{Store: v.store, Name: e.limit.Name(), Says: e.kind.says(e.limit.Spec())})
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
func (f *family) look(k *keyfunc.Source) {
	f.mu.Lock()
	all, to := f.warn(k, k.Found()), f.members[0]
	f.mu.Unlock()
	to.notify(notices{warnings: all})
}

// warn returns notices of what was found about a key source and is new. The caller holds
// f.mu.
func (f *family) warn(k *keyfunc.Source, found warn.Set) []warn.Notice {
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

// WarningKind is a kind of likely mistake that a limiter warns about. docs/warnings.md
// says for each what it means, when it is found and how to fix it.
type WarningKind uint8

const (
	// WarnForwardingHeader: the key is a forwarding header, which any client can
	// write. New finds it.
	WarnForwardingHeader = WarningKind(warn.ForwardingHeader)
	// WarnPortInKey: the key contains the caller's port.
	WarnPortInKey = WarningKind(warn.PortInKey)
	// WarnUntrustedProxy: requests come through a proxy, and their key is the proxy's
	// address.
	WarnUntrustedProxy = WarningKind(warn.UntrustedProxy)
	// WarnNoPattern: the key contains the request's pattern, and no request has one.
	WarnNoPattern = WarningKind(warn.NoPattern)
	// WarnKeysNeverRepeat: no key came twice in the first 10,000 requests.
	WarnKeysNeverRepeat = WarningKind(warn.KeysNeverRepeat)
	// WarnOneKey: almost all of the first 10,000 requests have the same key.
	WarnOneKey = WarningKind(warn.OneKey)
	// WarnRebuilt: limiters are built again and again while requests are served.
	WarnRebuilt = WarningKind(warn.Rebuilt)
)

// String returns the kind as logs and links have it: "one-key".
func (k WarningKind) String() string {
	if !warn.Kind(k).Known() {
		return fmt.Sprintf("WarningKind(%d)", k)
	}
	return warn.Kind(k).Name()
}

// Warning is a likely mistake that a limiter has found.
type Warning struct {
	Kind WarningKind
	// Limits are the names of the limits whose key the warning is about. It is empty
	// if the warning isn't about a key, or about one of a WithLimitFunc.
	Limits []string
	// Text says what was found and what to write instead. Link leads to the section
	// on it in docs/warnings.md.
	Text, Link string
}

func warningOf(w *warn.Warning) Warning {
	return Warning{WarningKind(w.Kind), w.Limits, w.Kind.Text(), w.Kind.Link()}
}

// WithoutWarnings turns off warnings of these kinds, for the limiter and those derived
// from it. Without arguments it turns off all.
//
// By default each likely mistake is logged once, observers get an EventWarning, and
// Limiter.Describe lists it. To find mistakes the limiter looks at half of about the
// first 10,000 requests of each WithKey, and keeps no key. It looks at none if all
// warnings that need it are turned off.
func WithoutWarnings(kinds ...WarningKind) Option {
	return limiterOption(func(c *config) {
		if len(kinds) == 0 {
			c.silent = warn.All
		}
		for _, k := range kinds {
			if !warn.Kind(k).Known() {
				c.errs.Bad(fmt.Sprintf("WithoutWarnings(%d)", k), "", "write constants such as stint.WarnOneKey")
				continue
			}
			c.silent |= 1 << k
		}
	})
}
