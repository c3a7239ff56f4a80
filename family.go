package stint

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// family is the state shared by a limiter and all limiters derived from it. They are updated
// together: a derived limiter is With applied to the present state of its parent.
type family struct {
	mu      sync.Mutex // held by one New, With or Update at a time
	members []*Limiter // each limiter before those derived from it
	names   atomic.Pointer[names]

	// The limits of this process, and the lines of waiters of each
	// store, are the same across Updates.
	adaptive *adaptive.Keys
	lines    atomic.Pointer[[]*waiting.Lines] // replaced under mu

	meanings namesakes.Family // for other families on the same store; guarded by mu

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
	l.observeStore(v, c.store)
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
	return v, next, joined(errs)
}

// announce registers the family's present limits, in place of the previous ones, for
// stores that other families may share. It returns the notices about conflicts and about
// l's options c. The caller holds f.mu. Requests never run it.
func (f *family) announce(l *Limiter, c *config) (n notices) {
	n.conflicts = f.meanings.Mean(f.lent())
	for _, k := range c.keys() {
		s := f.names.Load().now.Load().sources[k]
		if s == nil {
			continue // no limit has it
		}
		n.warnings = append(n.warnings, f.warn(s, s.Shown())...)
		if l.now.Load().silent&warn.Traffic != warn.Traffic && k.Constant == "" && !k.Given {
			s.Watch(func() { f.look(s) })
		}
	}
	return n
}

// lent returns the meanings of the family's names in stores that others may use.
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
