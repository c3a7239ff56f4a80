package stint

import (
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/store"
)

// subject is the request that an event is about. Its method event makes every event of a
// request, and sets what all of them have. Functions that know more set the rest.
// Events about the limiter are made where they occur.
type subject struct {
	route   string
	request *http.Request // nil outside HTTP, and when it may belong to the server again
	to      *audience     // that the request began with
}

// event returns an event about a request.
func (s subject) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Route: s.route, Request: s.request, Err: err}
}

// later returns the subject of events that come when the request may be over.
func (s subject) later() subject {
	s.request = nil
	return s
}

// sender sends events to a limiter's observers, and writes their lines to its log. It has the
// limiter's name, which an Update may change, and its recipients, which outlive Updates.
type sender struct {
	name  string // by WithLimiterName, or ""
	to    *recipients
	store store.Store // in which the limiter counts
}

// observers returns those who observe the limiter now, or nil if nobody does.
func (s *sender) observers() *audience { return s.to.audience.Load() }

// send writes an event's line, if it has one, and sends the event to the observers.
func (s *sender) send(to *audience, e *Event) {
	e.Limiter = s.name
	if e.Kind == EventStoreFailed {
		s.to.failed.Store(time.Now().UnixNano())
	}
	defer to.send(e) // also if the log panics
	if m := e.message(); m != 0 {
		s.write(m, e)
	}
}

// sendSafely sends an event that isn't a request's to those who observe the limiter now. A panic is
// logged, and goes no further.
func (s *sender) sendSafely(e Event) {
	background.Do("notifying observers", func() { s.send(s.observers(), &e) })
}

// sendAbout sends an event that is about charges, and about no decision.
func (s *sender) sendAbout(to *audience, e *Event, charges []store.Charge) {
	e.about(charges)
	s.send(to, e)
}

// sendDecision sends an event with a call's decision and keys. If it says that the call is
// admitted or denied, the events of what else the decision has led to follow.
func (s *sender) sendDecision(to *audience, e *Event, c *decide.Call) {
	e.Decision.set(c, make([]LimitStatus, len(c.Results)))
	e.keys = keysOf(c.Charges)
	if e.Kind == EventCanceled { // no limit has denied it
		e.Decision.Allowed, e.Decision.RetryAfter = false, 0
		for i := range e.Decision.Limits {
			e.Decision.Limits[i].RetryAfter = 0
		}
	}
	s.send(to, e)
	if e.Kind != EventAdmitted && e.Kind != EventDenied {
		return
	}
	also := *e // with all that the decision's event says, but for what only one event may say
	also.EndsWait = false
	for i := range c.Results {
		if c.Results[i].Begun {
			also.Kind, also.Decision = EventBanned, e.Decision.deniedBy(i)
			s.send(to, &also)
		}
	}
	for i := range c.Results {
		if c.Charges[i].DryRun && !c.Results[i].OK {
			also.Kind, also.Err, also.Decision = EventDryRunDenied, nil, e.Decision.deniedBy(i)
			s.send(to, &also)
		}
	}
}

// sendUnsettled sends the event of a settlement that the store could not make, and returns its
// error.
func (s *sender) sendUnsettled(of subject, done decide.Settlement) error {
	if done.Err == nil {
		return nil
	}
	err := &StoreError{done.Err}
	s.sendSettleFailed(of, done.Charges, done.Took, err)
	return err
}

// sendSettleFailed sends the event of charges that could not be settled.
func (s *sender) sendSettleFailed(of subject, charges []store.Charge, took time.Duration, err error) {
	e := of.later().event(EventSettleFailed, err)
	e.StoreTook = took
	s.sendAbout(of.to, &e, charges)
}
