package stint

import (
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// response is what a permit knows of the response to its request. A permit has one only
// if a limit needs it; other ResponseWriters aren't wrapped.
type response struct {
	watched
	pacing  pacing // nil if no Bandwidth paces the response
	decides bool   // some limit decides by the response
	byHand  []bool // for each charge, whether the handler has settled it; or nil

	// A permit that has been detached ends when its handler has returned and its release
	// has been called, whichever comes last.
	returned atomic.Bool
	ends     atomic.Int32 // how many of the two have come
	freed    bool         // its slots are released
}

// watched is a respond.Watched or a respond.Paced.
type watched interface {
	Next(r *http.Request, own bool) *http.Request
	Writer(w http.ResponseWriter) http.ResponseWriter
	Request() *http.Request
	Panicked(aborted bool)
	Outcome() (o respond.Outcome, ok bool)
	Seal()
	PushBefore(to store.Store)
}

// pacing is how Bandwidths pace a response.
type pacing interface {
	// bandwidths returns them.
	bandwidths() []paced
	// HeldUp returns how long writes have been delayed.
	HeldUp() time.Duration
	// End stops pacing, and returns the charges that give back what was paid for but not
	// moved.
	End() []store.Charge
	// observe sends an EventPaced for each of them.
	observe(p *Permit)
}

// responded makes the permit's response, or returns nil if no limit needs it.
func (c *call) responded() *response {
	if c.r == nil || c.needs&watches == 0 {
		return nil
	}
	var s *response
	i := slices.IndexFunc(c.entries, func(e *entry) bool { return e.watch != nil })
	switch {
	case len(c.paced) > 0:
		s = c.paced[0].entry.watch(c)
	case i >= 0:
		s = c.entries[i].watch(c)
	default:
		return nil
	}
	s.decides = i >= 0
	return s
}

// watch makes a response that is observed but not paced. Only options that need it refer
// to watch, and likewise to pace, so that other servers are linked with neither.
func watch(c *call) *response {
	s := new(struct {
		response
		of respond.Watched
	})
	s.of.Begin(c.r)
	s.watched = &s.of
	return &s.response
}

// push sends a complete response to the client before the store is called for amends or
// for unsent bytes, so that the client doesn't wait for the store.
func (p *Permit) push(amends []amend) {
	if s := p.response; s != nil && (len(amends) > 0 || s.pacing != nil) {
		s.PushBefore(p.lim.store)
	}
}

// returns reports, once, that the handler of a detached permit has returned, if anything
// depends on its response.
func (p *Permit) returns() bool {
	return p.detached() && p.response != nil && !p.response.returned.Swap(true)
}

// panicked records a handler's panic for adaptive limits and for WithSettle.
func (p *Permit) panicked(v any) {
	aborted := v == http.ErrAbortHandler
	if p.learns() {
		outcome := adaptive.Failed
		if aborted {
			outcome = adaptive.Ignored
		}
		p.story.outcome.Show(outcome)
	}
	if p.response != nil {
		p.response.Panicked(aborted)
	}
}
