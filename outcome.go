package stint

import (
	"slices"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

func (a *admission) subject() subject {
	return subject{a.reading.Plan.Route(), a.reading.R, a.observersBefore}
}

func (p *Permit) subject() subject { return subject{p.plan.Route(), nil, p.observersBefore()} }

// event returns an event about the request.
func (a *admission) event(kind EventKind, err error) Event { return a.subject().event(kind, err) }

// event returns an event about the permit's request, which belongs to the server by then.
func (p *Permit) event(kind EventKind) Event { return p.subject().event(kind, nil) }

// outcome returns the event of what has become of the call: it ends a wait that has begun.
func (a *admission) outcome(kind EventKind, err error) Event {
	a.concluded = true
	e := a.event(kind, err)
	e.Waited, e.StoreTook, e.EndsWait = a.call.Waited, a.call.Took, a.call.Begun
	return e
}

// observed reports whether there were observers when the decision began. Only then is the time
// measured that the store takes.
func (a *admission) observed() bool { return a.call.Timed }

// observe notifies the observers of a decision, and logs it if the log shows such decisions.
func (a *admission) observe(kind EventKind, err error) {
	to := a.version.events.to.audience.Load()
	decided := kind == EventAdmitted || kind == EventDenied
	if decided && a.version.events.to.failing.Load() && slices.ContainsFunc(a.call.Limits, func(l *limit.Limit) bool { return l.Needs&limit.Local == 0 }) {
		a.version.events.recordAnswer()
	}
	if to == nil { // only the log may say something
		if decided && a.bans() || kind == EventDenied && a.version.events.to.log.Load().Shows(contextOf(a.reading.R), logs.Denied) {
			a.report(kind, err, false)
		}
		return
	}
	if kind == EventAdmitted {
		a.endDue = a.notification()
		if a.endDue == inBrief {
			if to.whole(a.observersBefore) {
				defer a.report(kind, err, true) // also if a brief observer panics
			}
			to.notifyPassed(a.observersBefore, a.reading.Plan.Route(), a.call.Charges, a.call.Results, a.call.Took)
			return
		}
	}
	a.report(kind, err, false)
}

// report sends the event of a decision. It isn't inlined, so that a request that is
// reported only in brief touches no stack for an event.
//
//go:noinline
func (a *admission) report(kind EventKind, err error, briefed bool) {
	e := a.outcome(kind, err)
	e.briefed = briefed
	a.observeDecision(&e)
}

// plain reports whether a granted request has nothing to say that its charges and results
// don't, now or when it ends: see BriefObserver.
func (a *admission) plain() bool {
	if a.reading.Needs()&^limit.Counts != 0 || a.call.Begun {
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
	case !a.observed():
		return notNotified
	case a.plain():
		return inBrief
	}
	return byEvent
}

// observeEnd notifies the observers that the call has ended, if they were notified that it is
// admitted, and no permit notifies them.
func (a *admission) observeEnd() {
	by := a.endDue
	a.endDue = notNotified
	a.version.events.sendEnd(by, a.observersBefore, func(briefed bool) {
		e := a.event(EventEnded, nil)
		e.Waited, e.briefed = a.call.Waited, briefed
		a.observeDecision(&e)
	})
}

// observeDecision notifies the observers of an event with the call's decision and keys.
func (a *admission) observeDecision(e *Event) {
	v := a.version
	a.setDecision(&e.Decision, make([]LimitStatus, len(a.call.Results)))
	e.keys = keysOf(a.call.Charges)
	if e.Kind == EventCanceled { // no limit has denied it
		e.Decision.Allowed, e.Decision.RetryAfter = false, 0
		for i := range e.Decision.Limits {
			e.Decision.Limits[i].RetryAfter = 0
		}
	}
	v.events.send(e)
	if e.Kind != EventAdmitted && e.Kind != EventDenied {
		return
	}
	also := *e // what the same decision has led to
	also.EndsWait = false
	for i := range a.call.Results {
		if a.call.Results[i].Begun {
			also.Kind, also.Decision = EventBanned, e.Decision.deniedBy(i)
			v.events.send(&also)
		}
	}
	for i := range a.call.Results {
		if a.call.Charges[i].DryRun && !a.call.Results[i].OK {
			also.Kind, also.Err, also.Decision = EventDryRunDenied, nil, e.Decision.deniedBy(i)
			v.events.send(&also)
		}
	}
}

// bans reports whether the decision has started a ban.
func (a *admission) bans() bool {
	return a.call.Needs&limit.Counts != 0 && slices.ContainsFunc(a.call.Results, func(r store.Result) bool { return r.Begun })
}

// setDecision sets d to the call's decision, from its results and its waits.
func (a *admission) setDecision(d *Decision, statuses []LimitStatus) {
	d.addUp(&a.call, statuses)
	d.addWaits(a.call.Waited, a.call.Seen, statuses)
}
