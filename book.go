package stint

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// book holds the warnings about limiters that belong together, each once. It is safe for
// concurrent use. The zero book is empty.
type book struct {
	mu  sync.Mutex
	all []*finding

	seen   sync.Map // the limits of first
	limits atomic.Int64

	builds warn.Builds
	leaks  atomic.Bool  // a permit was dropped without Done
	twice  atomic.Int64 // charges inside limiters of other families that were looked at

	// Guarded by family.mu.
	brought map[string]bool // the limits that an Update has brought
	renamed bool            // an Update has renamed the limiter
}

// finding is a likely mistake that was found.
type finding struct {
	kind   WarningKind
	limits []string     // whose key it is about, or that it is about
	of     *warn.Source // of the key it is about, or nil
	text   string       // instead of the kind's
	place  string       // in the program, where the mistake is; or ""
	// still reports whether it is about something that a version has; nil: if that has of.
	still func(*version) bool
}

func (f *finding) warning() Warning {
	return Warning{f.kind, f.limits, cmp.Or(f.text, warningKinds[f.kind].text), f.kind.link()}
}

// notice is a warning that a limiter hasn't given yet.
type notice struct {
	*finding
	to *version
}

// give logs the warning, and notifies the observers.
func (n notice) give() {
	w := n.warning()
	n.to.events.sendSafely(Event{Kind: EventWarning, Warning: &w})
}

// note adds a warning about v that isn't about a key, and returns a notice if it is new.
func (b *book) note(v *version, f finding) []notice {
	if v.silent.has(f.kind) {
		return nil
	}
	return b.add([]*version{v}, v, f)
}

// warn adds a warning about v that isn't about a key, and gives it if it is new.
func (v *version) warn(f finding) {
	give(v.warnings.note(v, f))
}

// give gives warnings. The caller holds no lock: loggers and observers are the application's code.
func give(all []notice) {
	for _, n := range all {
		n.give()
	}
}

// first reports whether a limit is seen for the first time, and not many were before: the
// caller that finds something about it notes it then. Requests call it, so it mostly takes no
// lock.
func (b *book) first(limit string) bool {
	if _, seen := b.seen.Load(limit); seen || b.limits.Load() >= mostWarnings {
		return false
	}
	_, seen := b.seen.LoadOrStore(limit, nil)
	return !seen && b.limits.Add(1) <= mostWarnings
}

// mostWarnings bounds the memory for warnings if limits get other names at each Update.
const mostWarnings = 100

// add returns a notice for one of all versions, unless there already is a warning of that kind
// for the same limits.
func (b *book) add(all []*version, to *version, f finding) []notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.all {
		if o.kind == f.kind && slices.Equal(o.limits, f.limits) {
			if o.place != "" && f.place == "" {
				return nil
			}
			found := o.place == "" && f.place != ""
			o.of, o.text, o.place, o.still = f.of, f.text, f.place, f.still // an Update may have made another source
			if !found {
				return nil
			}
			return []notice{{o.copied(), to}}
		}
	}
	if len(b.all) == mostWarnings {
		i := slices.IndexFunc(b.all, func(o *finding) bool { return !slices.ContainsFunc(all, o.applies) })
		b.all = slices.Delete(b.all, max(i, 0), max(i, 0)+1)
	}
	b.all = append(b.all, &f)
	return []notice{{f.copied(), to}}
}

// end makes the warning of that kind about the same limits apply to nothing, until it is found
// again.
func (b *book) end(f finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.all {
		if o.kind == f.kind && slices.Equal(o.limits, f.limits) {
			o.still = func(*version) bool { return false }
		}
	}
}

// copied returns a copy, which is read without the book's lock.
func (f finding) copied() *finding { return &f }

// applies reports whether the finding is about something that a version has.
func (f *finding) applies(v *version) bool {
	if f.still != nil {
		return f.still(v)
	}
	limits, uses := v.uses(f.of)
	has := func(limit string) bool { return slices.Contains(limits, limit) }
	return uses && (len(f.limits) == 0 || slices.ContainsFunc(f.limits, has))
}

// about returns the warnings that apply to v.
func (b *book) about(v *version) (all []Warning) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.all {
		if !v.silent.has(f.kind) && f.applies(v) {
			all = append(all, f.warning())
		}
	}
	return all
}

// largest is the largest cost that a limit ever lets pass.
func largest(l *store.Limit) int64 { return l.Engine(engine.Access{}).Terms().Largest }

// uses reports whether limits of the version have their key from a source, and returns their
// names: those that a function makes have none yet.
func (v *version) uses(s *warn.Source) (limits []string, uses bool) {
	for e := range v.plans.Entries {
		if e.Source == s {
			limits, uses = append(limits, e.Name()), true
		}
	}
	return limits, uses || slices.ContainsFunc(v.compiled.Funcs, func(f *compile.Func) bool { return f.Has(s) })
}
