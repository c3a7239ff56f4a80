package warn

import (
	"net/http"
	"sync/atomic"
)

// Source is the record of a key in use: what it consists of, and what its first requests
// show. It is safe for concurrent use. Nothing is known of the zero Source.
type Source struct {
	// Lookout looks at the source's first requests. It is nil before and after those.
	Lookout atomic.Pointer[Lookout]

	signs  Signs
	trusts func(*http.Request) bool // see NewSource
	begun  atomic.Bool              // there is a Lookout, or was one
}

// NewSource returns the Source of a key with these signs. trusts reports whether the key
// believes what a request's peer writes about the client; it is nil if the key believes no peer.
func NewSource(signs Signs, trusts func(*http.Request) bool) *Source {
	return &Source{signs: signs, trusts: trusts}
}

// Shown returns what the signs alone show.
func (s *Source) Shown() Found { return s.signs.found() }

// Watch begins to look at the source's requests, unless that was begun before. ask is
// called when Found may return something new, on a goroutine of its own.
func (s *Source) Watch(ask func()) {
	if !s.begun.Swap(true) {
		s.Lookout.Store(&Lookout{of: s, ask: ask})
	}
}

// Found returns what the requests so far have shown. When they can show nothing more,
// it ends the Lookout.
func (s *Source) Found() Found {
	l := s.Lookout.Load()
	if l == nil {
		return Found{}
	}
	found, over := l.seen.found(s.signs)
	if over {
		s.Lookout.Store(nil)
	}
	return found
}

// Lookout looks at a source's first requests.
type Lookout struct {
	of   *Source
	ask  func()
	seen watch
}

// Look looks at a request with a key.
func (l *Lookout) Look(r *http.Request, key string) {
	if key != "" && l.seen.look(r, key, l.of) {
		go l.ask()
	}
}
