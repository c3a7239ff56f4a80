package stint

import (
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/store"
)

// sender sends events to a limiter's observers, and writes their lines to its log. It has the
// limiter's name, which an Update may change, and its recipients, which outlive Updates.
type sender struct {
	name string // by WithLimiterName, or ""
	to   *recipients
}

// hasObservers reports whether the limiter has observers now.
func (s *sender) hasObservers() bool { return s.to.audience.Load() != nil }

// send writes an event's line, if it has one, and sends the event to the observers.
func (s *sender) send(e *Event) {
	e.Limiter = s.name
	defer s.sendToObservers(e) // also if the log panics
	if m := e.Kind.message(e.Err); m != 0 {
		s.write(m, *e)
	}
}

func (s *sender) sendToObservers(e *Event) {
	// After the line: if writeRecovery comes in between, the store's next answer is
	// reported, too.
	if e.Kind == EventStoreFailed && !s.to.failing.Load() {
		s.to.failing.Store(true)
	}
	if to := s.to.audience.Load(); to != nil {
		to.each(e.observersBefore, func(o *observer) {
			if !e.briefed || o.brief == nil {
				o.notify(e.own())
			}
		})
	}
}

// sendSafely is send for an event that isn't a request's: a panic is logged, and goes no
// further.
func (s *sender) sendSafely(e Event) {
	background.Do("notifying observers", func() { s.send(&e) })
}

// sendAbout sends an event that is about charges, and about no decision.
func (s *sender) sendAbout(e *Event, charges []store.Charge) {
	e.about(charges)
	s.send(e)
}

// sendDecision sends an event with a call's decision and keys. If it says that the call is
// admitted or denied, the events of what else the decision has led to follow.
func (s *sender) sendDecision(e *Event, c *decide.Call) {
	e.Decision.set(c, make([]LimitStatus, len(c.Results)))
	e.keys = keysOf(c.Charges)
	if e.Kind == EventCanceled { // no limit has denied it
		e.Decision.Allowed, e.Decision.RetryAfter = false, 0
		for i := range e.Decision.Limits {
			e.Decision.Limits[i].RetryAfter = 0
		}
	}
	s.send(e)
	if e.Kind != EventAdmitted && e.Kind != EventDenied {
		return
	}
	also := *e // with all that the decision's event says, but for what only one event may say
	also.EndsWait = false
	for i := range c.Results {
		if c.Results[i].Begun {
			also.Kind, also.Decision = EventBanned, e.Decision.deniedBy(i)
			s.send(&also)
		}
	}
	for i := range c.Results {
		if c.Charges[i].DryRun && !c.Results[i].OK {
			also.Kind, also.Err, also.Decision = EventDryRunDenied, nil, e.Decision.deniedBy(i)
			s.send(&also)
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
	s.sendAbout(&e, charges)
}

// sendEnd sends the end of an admitted request, in the way in which observers were notified that
// it is admitted. sendEvent sends the event, which brief observers don't get if they are notified
// in brief.
func (s *sender) sendEnd(by notification, before uint32, sendEvent func(briefed bool)) {
	to := s.to.audience.Load()
	switch {
	case to == nil || by == notNotified:
	case by == byEvent:
		sendEvent(false)
	default:
		if to.whole(before) {
			defer sendEvent(true) // also if a brief observer panics
		}
		to.sendEnded(before)
	}
}
