package stint

import (
	"net/http"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// response is a permit's observation of the response to its request. A permit has one only
// if a limit needs it; other ResponseWriters aren't wrapped.
type response struct {
	respond.Watched
	pacing *lanes // nil if no Bandwidth paces the response
	byHand decide.Hand
	// settlers make the charges cost what the response shows: an element for each, or none.
	settlers []*read.Settler
}

// unmoved ends the pacing, and returns the charges that give back bytes that were paid for and
// haven't moved.
func (s *response) unmoved() []store.Charge {
	if s.pacing == nil {
		return nil
	}
	return s.pacing.End()
}

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

// recordPanic records a handler's panic for adaptive limits and for WithSettle.
func (p *Permit) recordPanic(v any) {
	if p.learns() {
		p.story.outcome.Show(endingBy(v))
	}
	if p.response != nil {
		p.response.RecordPanic(v == http.ErrAbortHandler)
	}
}

// endingBy returns what adaptive limits learn from a panic.
func endingBy(v any) adaptive.Ending {
	if v == http.ErrAbortHandler {
		return adaptive.Ignored
	}
	return adaptive.Failed
}
