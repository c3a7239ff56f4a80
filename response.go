package stint

import (
	"net/http"
	"sync/atomic"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
)

// response is a permit's observation of the response to its request. A permit has one only
// if a limit needs it; other ResponseWriters aren't wrapped.
type response struct {
	respond.Watched
	pacing *lanes // nil if no Bandwidth paces the response
	byHand decide.Hand
	// settlers make the charges cost what the response shows: an element for each, or none.
	settlers []*read.Settler

	// A permit that has been detached ends when its handler has returned and its release
	// has been called, whichever comes last.
	returned atomic.Bool
	parts    atomic.Int32 // how many of the two have come
	freed    bool         // its slots are released
}

// endsNow is called for each of the two, and reports whether it is the second.
func (s *response) endsNow() bool { return s.parts.Add(1) == 2 }

// around returns what the next handler gets for w and r: watched, and paced if a Bandwidth
// says so. own says that r is already a copy.
func (s *response) around(w http.ResponseWriter, r *http.Request, own bool) (http.ResponseWriter, *http.Request) {
	if s.pacing != nil {
		return s.pacing.Writer(w), s.pacing.Next(r, own)
	}
	return s.Writer(w), s.Next(r)
}

// push sends a complete response to the client before the store is called for amends or
// for unsent bytes, so that the client doesn't wait for the store.
func (p *Permit) push(amends []decide.Amend) {
	if s := p.response; s != nil && (len(amends) > 0 || s.pacing != nil) {
		s.PushBefore(p.version.backend.Store)
	}
}

// returns reports, once, that the handler of a detached permit has returned, if anything
// depends on its response.
func (p *Permit) returns() bool {
	return p.detached() && p.response != nil && !p.response.returned.Swap(true)
}

// recordPanic records a handler's panic for adaptive limits and for WithSettle.
func (p *Permit) recordPanic(v any) {
	aborted := v == http.ErrAbortHandler
	if p.learns() {
		outcome := adaptive.Failed
		if aborted {
			outcome = adaptive.Ignored
		}
		p.story.outcome.Show(outcome)
	}
	if p.response != nil {
		p.response.RecordPanic(aborted)
	}
}
