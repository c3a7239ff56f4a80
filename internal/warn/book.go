package warn

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// User is a limiter, with its present options. It is an interface because requests are looked
// at below the package of limiters, which therefore can't be imported here.
type User interface {
	// Silent returns the kinds that it doesn't warn of.
	Silent() Set
	// Uses reports whether limits of its have their key from a source, and returns their
	// names: those that a function makes have none yet.
	Uses(*Source) (limits []string, uses bool)
	// Idle reports whether it orders requests that wait, although none waits.
	Idle() bool
	// Denies reports whether a limit of its never lets a request of that cost pass.
	Denies(limit string, cost int64) bool
	// Warn reports the warning to whoever should get it.
	Warn(*Warning)
}

// Warning is a mistake that was found.
type Warning struct {
	Kind   Kind
	Limits []string // whose key it is about, or that it is about
	of     *Source  // that it is about, or nil
	text   string   // instead of the kind's
	still  func(User) bool
}

// Text returns what was found and what to write instead.
func (w *Warning) Text() string { return cmp.Or(w.text, w.Kind.Text()) }

// Notice is a warning for a User who hasn't been told.
type Notice struct {
	*Warning
	to User
}

// Tell tells the User.
func (n Notice) Tell() { n.to.Warn(n.Warning) }

// Note adds a warning about u that isn't about a key, and returns a notice if it is new. text
// is said instead of the kind's, unless it is empty. still reports whether the warning
// applies to a limiter with its present options.
func (b *Book) Note(u User, kind Kind, limits []string, text string, still func(User) bool) []Notice {
	if u.Silent().Has(kind) {
		return nil
	}
	return b.add([]User{u}, u, Warning{Kind: kind, Limits: limits, text: text, still: still})
}

// First reports whether a limit is seen for the first time, and not many were before: whoever
// finds something about it notes it then. Requests call it, so it mostly takes no lock.
func (b *Book) First(limit string) bool {
	if _, seen := b.seen.Load(limit); seen || b.limits.Load() >= most {
		return false
	}
	_, seen := b.seen.LoadOrStore(limit, nil)
	return !seen && b.limits.Add(1) <= most
}

// most bounds the memory for warnings if limits get other names at each Update.
const most = 100

// Book holds the warnings about limiters that belong together, each once. It is safe for
// concurrent use. The zero Book is empty.
type Book struct {
	mu  sync.Mutex
	all []*Warning

	seen   sync.Map // the limits of First
	limits atomic.Int64

	derived  atomic.Int64 // how many limiters were derived in requests
	lifetime *lifetime    // nil unless the first was made in a request
}

// Find adds what was found about a source, and returns a notice for each kind that is
// new. It goes to the first of the users who use the source and warn of the kind.
func (b *Book) Find(users []User, of *Source, found Set) (news []Notice) {
	for kind := range Kinds {
		if !found.Has(kind) {
			continue
		}
		var to User
		var limits []string
		for _, u := range users {
			names, uses := u.Uses(of)
			if !uses || u.Silent().Has(kind) {
				continue
			}
			to = cmp.Or(to, u)
			for _, name := range names {
				if !slices.Contains(limits, name) {
					limits = append(limits, name)
				}
			}
		}
		if to != nil {
			news = append(news, b.add(users, to, Warning{Kind: kind, Limits: limits, of: of})...)
		}
	}
	return news
}

// add returns a notice for one of the users, unless there already is a warning of that kind
// for the same limits.
func (b *Book) add(users []User, to User, w Warning) []Notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.all {
		if o.Kind == w.Kind && slices.Equal(o.Limits, w.Limits) {
			o.of, o.text, o.still = w.of, w.text, w.still // an Update may have made another source
			return nil
		}
	}
	if len(b.all) == most {
		i := slices.IndexFunc(b.all, func(o *Warning) bool { return !o.applies(users) })
		b.all = slices.Delete(b.all, max(i, 0), max(i, 0)+1)
	}
	b.all = append(b.all, &w)
	return []Notice{{&w, to}}
}

// applies reports whether the warning is about something that one of the users has.
func (w *Warning) applies(users []User) bool {
	if w.still != nil {
		return slices.ContainsFunc(users, w.still)
	}
	return w.of == nil || slices.ContainsFunc(users, func(u User) bool {
		limits, uses := u.Uses(w.of)
		has := func(limit string) bool { return slices.Contains(limits, limit) }
		return uses && (len(w.Limits) == 0 || slices.ContainsFunc(w.Limits, has))
	})
}

// About returns the warnings that apply to u.
func (b *Book) About(u User) (all []*Warning) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.all {
		if !u.Silent().Has(w.Kind) && w.applies([]User{u}) {
			all = append(all, w)
		}
	}
	return all
}
