package stint

import (
	"slices"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// subject returns the subject of the admission's events.
func (a *admission) subject() subject {
	return subject{a.reading.Plan.Route(), a.reading.R, a.to}
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

// sendOutcome notifies the observers of a decision, and logs it if the log shows such decisions.
func (a *admission) sendOutcome(kind EventKind, err error) {
	s := &a.version.events
	decided := kind == EventAdmitted || kind == EventDenied
	if decided && s.to.failed.Load() != 0 && slices.ContainsFunc(a.call.Limits, func(l *limit.Limit) bool { return l.Needs&limit.Local == 0 }) {
		s.writeRecovery()
	}
	if a.to == nil && !a.logged(kind) {
		return
	}
	a.endDue = kind == EventAdmitted && a.to != nil
	e := a.outcome(kind, err)
	s.sendDecision(a.to, &e, &a.call)
}

// sendEnd notifies the observers that the call has ended, if they were notified that it is
// admitted, and no permit notifies them.
func (a *admission) sendEnd() {
	if !a.endDue {
		return
	}
	a.endDue = false
	e := a.subject().later().event(EventEnded, nil)
	e.Waited = a.call.Waited
	a.version.events.sendDecision(a.to, &e, &a.call)
}

// logged reports whether the log shows a decision, or what else it has led to.
func (a *admission) logged(kind EventKind) bool {
	says := kind == EventDenied || kind == EventAdmitted && (a.bans() || a.version.dryRuns && a.wouldDeny())
	return says && a.version.events.to.log.Load().Shows(contextOf(a.reading.R), logs.Denied)
}

// wouldDeny reports whether a limit in a dry run would have denied the call.
func (a *admission) wouldDeny() bool {
	return slices.ContainsFunc(a.call.Results, func(r store.Result) bool { return !r.OK })
}

// bans reports whether the decision has started a ban.
func (a *admission) bans() bool {
	return a.call.Needs&limit.Counts != 0 && slices.ContainsFunc(a.call.Results, func(r store.Result) bool { return r.Begun })
}
