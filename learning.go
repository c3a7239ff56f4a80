package stint

import (
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/store"
)

// learns reports whether an AdaptiveConcurrency learns from the request.
func (p *Permit) learns() bool { return p.story != nil && p.story.learns }

// learnsAnywhere is learns for all limiters that the request has passed.
func (p *Permit) learnsAnywhere() bool {
	for ; p != nil; p = p.outer {
		if p.learns() {
			return true
		}
	}
	return false
}

// Drop reports that the request failed for lack of capacity, for instance because a
// backend was overloaded or timed out. An AdaptiveConcurrency cuts its limit if at
// least one in twenty requests does. It applies to all limiters that the request has
// passed, and does nothing after Done or without such a limit.
func (p *Permit) Drop() { p.recordEnding((*adaptive.Outcome).Report, adaptive.Dropped) }

// Ignore reports that the request's duration says nothing about the service's load, for
// instance because it waited for an event. An AdaptiveConcurrency doesn't learn from
// it. It applies to all limiters that the request has passed, and does nothing after
// Done or without such a limit.
func (p *Permit) Ignore() { p.recordEnding((*adaptive.Outcome).Report, adaptive.Ignored) }

// recordInnerDenial records that an inner limiter has denied: the response then says nothing
// about the work.
func (p *Permit) recordInnerDenial() { p.recordEnding((*adaptive.Outcome).Show, adaptive.Ignored) }

// recordEnding records how the request ends, for all limiters that it has passed.
func (p *Permit) recordEnding(by func(*adaptive.Outcome, adaptive.Ending), e adaptive.Ending) {
	for ; p != nil; p = p.outer {
		if p.learns() {
			by(&p.story.outcome, e)
		}
	}
}

// sample returns what was observed of the request, or nil. Outside HTTP its context
// says nothing: it may have bounded the wait and ended before the work.
func (p *Permit) sample() *adaptive.Sample {
	took, err := time.Since(p.story.since), p.ctx.Err()
	switch {
	case p.response == nil:
		err = nil
	case p.response.pacing != nil:
		took -= p.response.pacing.HeldUp()
	}
	return p.story.outcome.Sample(took, err)
}

// endLearning ends the observation of the request, and returns what was observed. answered says that
// the response may be looked at.
func (p *Permit) endLearning(answered bool) *adaptive.Sample {
	if answered && p.story.outcome.Open() {
		switch got, ok := p.response.Outcome(); {
		case !ok:
		case got.Hijacked:
			p.story.outcome.Show(adaptive.Ignored) // the duration is that of a connection, not of a request
		case got.Status >= http.StatusInternalServerError:
			p.story.outcome.Show(adaptive.Failed)
		}
	}
	return p.sample()
}

// sendLimitChange notifies the observers that a limit has changed.
func (p *Permit) sendLimitChange(c *adaptive.Change) {
	e := p.event(EventLimitChanged)
	e.Change = &LimitChange{
		Limit: c.Charge.Limit.Name(), From: c.From, To: c.To, Reason: AdaptiveReason(c.Reason),
		InFlight: c.InFlight, Latency: c.Latency, Baseline: c.Baseline,
	}
	to := p.version.events.observers() // it is about a key, not about the request
	p.version.events.sendAbout(to, &e, []store.Charge{c.Charge})
}
