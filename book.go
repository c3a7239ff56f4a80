package stint

import (
	"cmp"
	"slices"
	"sync"

	"github.com/stint-go/stint/internal/warn"
)

// book holds the warnings about limiters that belong together, each once. It is safe for
// concurrent use. The zero book is empty.
type book struct {
	mu  sync.Mutex
	all []*finding

	builds  warn.Builds     // of the limiters
	brought map[string]bool // the limits that an Update has brought; guarded by family.mu
}

// finding is a likely mistake that was found.
type finding struct {
	kind   string
	limits []string // whose key it is about, or that it is about
	text   string   // instead of the kind's
	// applies reports whether it is about something that a version has.
	applies func(*version) bool
}

func (f *finding) warning() Warning {
	return Warning{f.kind, f.limits, cmp.Or(f.text, warningKinds[warningOf(f.kind)].text), warningLink(f.kind)}
}

// notice is a warning that is new, and not given yet.
type notice struct {
	finding
	to *sender
}

// give gives warnings: it logs them, and notifies the observers. The caller holds no lock, since
// loggers and observers are the application's code.
func give(all []notice) {
	for i := range all {
		w := all[i].warning()
		all[i].to.sendSafely(Event{Kind: EventWarning, Warning: &w})
	}
}

// warn adds what was found about a version, and gives the warnings that are new.
func (b *book) warn(v *version, found ...finding) {
	give(b.add(v, found...))
}

// add adds what was found about a version, and returns notices of the warnings that are new. Those
// that the version doesn't give are left out.
func (b *book) add(v *version, found ...finding) (news []notice) {
	for _, f := range found {
		if !v.silent.has(f.kind) && b.enter([]*version{v}, f) {
			news = append(news, notice{f, &v.events})
		}
	}
	return news
}

// mostWarnings bounds the memory for warnings if limits get other names at each Update.
const mostWarnings = 100

// enter adds a warning, or replaces the one of the same kind about the same limits. It reports
// whether the warning is new. A full book drops a warning that
// applies to none of the versions, or the oldest.
func (b *book) enter(all []*version, f finding) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.find(f); old != nil {
		*old = f // an Update may have made another key that it is about
		return false
	}
	if len(b.all) == mostWarnings {
		i := slices.IndexFunc(b.all, func(o *finding) bool { return !slices.ContainsFunc(all, o.applies) })
		b.all = slices.Delete(b.all, max(i, 0), max(i, 0)+1)
	}
	b.all = append(b.all, &f)
	return true
}

// find returns the warning of the same kind about the same limits, or nil. The caller holds b.mu.
func (b *book) find(f finding) *finding {
	for _, o := range b.all {
		if o.kind == f.kind && slices.Equal(o.limits, f.limits) {
			return o
		}
	}
	return nil
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
