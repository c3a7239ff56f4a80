package stint

import (
	"slices"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/respond"
)

// newResponse makes the permit's response, or returns nil if no limit needs it.
func (a *admission) newResponse(needs limit.Needs) *response {
	if a.reading.R == nil || needs&limit.Watches == 0 {
		return nil
	}
	decides, paced := a.call.Needs&limit.Watches != 0, len(a.reading.Paced) > 0
	if !decides && !paced {
		return nil
	}
	s := &response{settlers: a.reading.Settlers()}
	s.Begin(a.reading.R)
	s.Decides = decides
	if paced {
		s.pacing = a.pace(&s.Watched)
	}
	return s
}

// pace paces a response by the call's Bandwidths.
func (a *admission) pace(w *respond.Watched) *lanes {
	s := &lanes{all: slices.Clone(a.reading.Paced)}
	s.Begin(w, payer(a.version, a.subject()), byteLimitsOf(s.all))
	return s
}
