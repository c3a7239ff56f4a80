package stint

import (
	"slices"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// subject returns the subject of the admission's events.
func (a *admission) subject() subject {
	return subject{a.reading.Plan.Route(), a.reading.R, a.observersBefore}
}

// event returns an event about the request.
func (a *admission) event(kind EventKind, err error) Event { return a.subject().event(kind, err) }

// outcome returns the event of what has become of the call: it ends a wait that has begun.
func (a *admission) outcome(kind EventKind, err error) Event {
	a.concluded = true
	e := a.event(kind, err)
	e.Waited, e.StoreTook, e.EndsWait = a.call.Waited, a.call.Took, a.call.BeganWaiting
	return e
}

// hadObservers reports whether there were observers when the decision began. Only then is the time
// measured that the store takes.
func (a *admission) hadObservers() bool { return a.call.Timed }

// sendOutcome notifies the observers of a decision, and logs it if the log shows such decisions.
func (a *admission) sendOutcome(kind EventKind, err error) {
	to := a.version.events.to.audience.Load()
	decided := kind == EventAdmitted || kind == EventDenied
	if decided && a.version.events.to.failing.Load() && slices.ContainsFunc(a.call.Limits, func(l *limit.Limit) bool { return l.Needs&limit.Local == 0 }) {
		a.version.events.writeRecovery()
	}
	if to == nil { // only the log may say something
		if decided && a.bans() || kind == EventDenied && a.version.events.to.log.Load().Shows(contextOf(a.reading.R), logs.Denied) {
			a.sendOutcomeEvent(kind, err, false)
		}
		return
	}
	if kind == EventAdmitted {
		a.endDue = a.notification()
		if a.endDue == inBrief {
			if to.whole(a.observersBefore) {
				defer a.sendOutcomeEvent(kind, err, true) // also if a brief observer panics
			}
			to.sendPassed(a.observersBefore, a.reading.Plan.Route(), a.call.Charges, a.call.Results, a.call.Took)
			return
		}
	}
	a.sendOutcomeEvent(kind, err, false)
}

// sendOutcomeEvent sends the event of a decision. It isn't inlined, so that a request that is
// reported only in brief touches no stack for an event.
//
//go:noinline
func (a *admission) sendOutcomeEvent(kind EventKind, err error, briefed bool) {
	e := a.outcome(kind, err)
	e.briefed = briefed
	a.version.events.sendDecision(&e, &a.call)
}

// brief reports whether the charges and results of a granted request say all that there is to
// say of it, now and when it ends: it is plain, as BriefObserver means it.
func (a *admission) brief() bool {
	if a.reading.Needs()&^limit.Counts != 0 || a.call.BeganWaiting {
		return false
	}
	for i := range a.call.Results {
		if !a.call.Results[i].OK {
			return false
		}
	}
	return true
}

// notification returns how observers are notified that the call is granted.
func (a *admission) notification() notification {
	switch {
	case !a.hadObservers():
		return notNotified
	case a.brief():
		return inBrief
	}
	return byEvent
}

// sendEnd notifies the observers that the call has ended, if they were notified that it is
// admitted, and no permit notifies them.
func (a *admission) sendEnd() {
	by := a.endDue
	a.endDue = notNotified
	a.version.events.sendEnd(by, a.observersBefore, func(briefed bool) {
		e := a.subject().later().event(EventEnded, nil)
		e.Waited, e.briefed = a.call.Waited, briefed
		a.version.events.sendDecision(&e, &a.call)
	})
}

// bans reports whether the decision has started a ban.
func (a *admission) bans() bool {
	return a.call.Needs&limit.Counts != 0 && slices.ContainsFunc(a.call.Results, func(r store.Result) bool { return r.Begun })
}
