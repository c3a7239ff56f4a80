package stint

import (
	"sync"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// family is the state shared by a limiter and all limiters derived from it. They are updated
// together: a derived limiter is With applied to the present state of its parent.
type family struct {
	mu      sync.Mutex // held by one New, With or Update at a time
	members []*Limiter // each limiter before those derived from it
	// registry has the names of their limits, and the limits of this process.
	registry *compile.Registry

	lines sync.Map // of *waiting.Lines: those of each store are the same across Updates

	meanings namesakes.Family // for other families on the same store; guarded by mu

	warnings book
}

func newFamily() *family {
	f := new(family)
	f.registry = compile.NewRegistry(adaptive.NewKeys(f.wake))
	return f
}

// linesOf returns the lines of a store, which other limiters of the family may have too. The caller holds f.mu.
func (f *family) linesOf(s store.Store) *waiting.Lines {
	for _, m := range f.members {
		if v := m.now.Load(); same(v.backend.Store, s) {
			return v.backend.Lines
		}
	}
	return new(waiting.Lines)
}

// wake wakes those who wait for slots of a limit of this process, whatever their store.
func (f *family) wake(limit, key string) {
	for ls := range f.lines.Range {
		ls.(*waiting.Lines).Wake(waiting.Key{Limit: limit, Key: key, Decided: true})
	}
}

// announce registers the family's present limits, in place of the previous ones, for
// stores that other families may share. It returns the notices about conflicts and about
// l's options c, to be given without f.mu. The caller holds f.mu. Requests never run it.
func (f *family) announce(l *Limiter, c *config) (all []notice) {
	v := l.now.Load()
	for _, c := range f.meanings.Mean(f.lend()) {
		all = append(all, f.warnings.add(v, conflicting(&f.meanings, c))...)
	}
	all = append(all, f.warnings.add(v, nothingWaits(v)...)...)
	all = append(all, f.warnings.add(v, unreachable(v)...)...)
	for _, k := range c.Keys() {
		s := f.registry.Names().Now().Look(k)
		if s == nil {
			continue // no limit has it
		}
		all = append(all, f.found(s)...)
		if warnsOfKeys(v) {
			s.Begin(func() { f.look(s) })
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
		if !v.compiled.Lent || v.silent.has(warnNameConflict) {
			continue
		}
		for e := range v.plans.Entries {
			if e.Needs&limit.Local == 0 { // a local limit is in no store
				all = append(all, namesakes.Meaning{Store: v.backend.Store, Name: e.Name(), Says: compile.Text(e)})
			}
		}
	}
	return all
}

// look sends warnings about what the requests with a key have shown so far.
func (f *family) look(l *warn.Look) {
	f.mu.Lock()
	all := f.found(l)
	f.mu.Unlock()
	give(all)
}

// found returns notices of what a look has found and is new. The caller holds f.mu.
func (f *family) found(l *warn.Look) (news []notice) {
	all := make([]*version, len(f.members))
	for i, m := range f.members {
		all[i] = m.now.Load()
	}
	shown := l.Found()
	for _, w := range keyWarnings {
		if shown&w.found == 0 {
			continue
		}
		if to, found := wrongKey(all, l, w.kind); to != nil && f.warnings.enter(all, found) {
			news = append(news, notice{found, &to.events})
		}
	}
	return news
}
