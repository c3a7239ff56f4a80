package stint

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/respond"
)

// permit makes the permit of an admission whose call has been granted its charges, with room
// for them. It owns nothing until handTo. next is the request for the next handler: a copy
// that carries the permit, or the request itself.
func (a *admission) permit(ctx context.Context, needs limit.Needs) (p *Permit, next *http.Request, room []decide.Grant) {
	d := &a.call
	carries := a.reading.R != nil && !a.version.withoutPermit
	if carries {
		c := new(carried)
		p, next = &c.Permit, &c.request
		p.carrier = next
	} else {
		p, next = new(Permit), a.reading.R
	}
	if n := len(d.Charges); n <= len(p.room) {
		room = p.room[:n]
	} else {
		room = make([]decide.Grant, n)
	}
	p.ctx, p.version = ctx, a.version
	if a.outer != nil { // zero fields aren't written: see Call.Add of package decide
		p.outer = a.outer
	}
	p.class, p.plan = d.Rank, a.reading.Plan
	if needs != 0 {
		p.releases, p.response = needs&limit.Releases != 0, a.newResponse(p, needs)
	}
	if a.to != nil {
		p.to, p.told = a.to, d.Allowed
	}
	if needs&limit.Local != 0 || needs&limit.Slots != 0 && p.told || d.Waited > 0 || len(d.Seen) > 0 {
		p.story = &story{waited: d.Waited, seen: d.Seen, since: time.Now(), learns: needs&limit.Local != 0}
	}
	if carries {
		*next = *a.reading.R.WithContext((*permitContext)(p)) // inlined, the copy in between is on the stack
	}
	return p, next, room
}

// handTo makes p the owner of what the call was granted. From then on p notifies the observers of
// the end.
func (a *admission) handTo(p *Permit, room []decide.Grant) {
	a.call.HandTo(&p.grants, room)
	a.endDue = false
}

// newResponse makes the response of a permit, or returns nil if no limit needs it.
func (a *admission) newResponse(p *Permit, needs limit.Needs) *response {
	r := a.reading.R
	if r == nil || needs&(limit.Watches|limit.Releases) == 0 {
		return nil
	}
	decides, paced := a.call.Needs&limit.Watches != 0, len(a.reading.Paced) > 0
	held := a.call.Needs&limit.Releases != 0 && (r.Method == http.MethodConnect || upgrades(r))
	if !decides && !paced && !held {
		return nil
	}
	s := &response{settlers: a.reading.Settlers()}
	s.Begin(r)
	s.Decides = decides
	if held {
		s.Taken = p.hold
	}
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
