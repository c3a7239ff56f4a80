package warn

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// User is a limiter, with its present options.
type User interface {
	// Silent returns the kinds that it doesn't warn of.
	Silent() Set
	// Uses reports whether limits of its have their key from a source, and returns their
	// names: those that a function makes have none yet.
	Uses(*Source) (limits []string, uses bool)
	// Warn tells whoever should know of the warning.
	Warn(*Warning)
}

// Warning is a mistake that was found.
type Warning struct {
	Kind   Kind
	Limits []string // whose key it is about
	of     *Source  // that it is about, or nil
}

// Notice is a warning for a User who hasn't been told.
type Notice struct {
	*Warning
	to User
}

// Tell tells the User.
func (n Notice) Tell() { n.to.Warn(n.Warning) }

// most bounds the memory for warnings if limits get other names at each Update.
const most = 100

// Book holds the warnings about limiters that belong together, each once. It is safe for
// concurrent use. The zero Book is empty.
type Book struct {
	mu  sync.Mutex
	all []*Warning

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
			news = append(news, b.add(users, to, Warning{kind, limits, of})...)
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
			o.of = w.of // an Update may have made another source
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
