package stint

import (
	"slices"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// The events of a request begin here, but for three that have no call: of a request that is
// blocked before it is read, of bytes that the store didn't decide, and of what is settled
// after the call.

// event returns an event about the call's request.
func (c *call) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Route: c.Plan.Route(), Request: c.R, Err: err, below: c.below}
}

// outcome returns the event of what has become of the call: it ends a wait that has begun.
func (c *call) outcome(kind EventKind, err error) Event {
	c.told = true
	e := c.event(kind, err)
	e.Waited, e.StoreTook, e.EndsWait = c.Call.Waited, c.Call.Took, c.Call.Begun
	return e
}

// event returns an event about the permit's request, which belongs to the server by then.
func (p *Permit) event(kind EventKind) Event {
	return Event{Kind: kind, Route: p.plan.Route(), below: p.below()}
}

// observe notifies the observers of a decision, and logs it if the log shows such decisions.
func (c *call) observe(kind EventKind, err error) {
	to := c.version.reporter.audience.Load()
	decided := kind == EventAdmitted || kind == EventDenied
	if to == nil { // only the log may say something
		if decided && c.bans() || kind == EventDenied && c.version.reporter.log.Load().Shows(contextOf(c.R), logs.Denied) {
			c.report(kind, err, false)
		}
		return
	}
	if to.failing && decided && slices.ContainsFunc(c.Call.Limits, func(l *limit.Limit) bool { return l.Needs&limit.Local == 0 }) {
		c.version.recordAnswer()
	}
	if kind == EventAdmitted {
		c.endDue = c.telling()
		if c.plain() {
			if to.whole(c.below) {
				defer c.report(kind, err, true) // also if a brief observer panics
			}
			to.notifyPassed(c.below, c.Plan.Route(), c.Call.Charges, c.Call.Results, c.Call.Took)
			return
		}
	}
	c.report(kind, err, false)
}

// report sends the event of a decision. It isn't inlined, so that a request that is
// reported only in brief touches no stack for an event.
//
//go:noinline
func (c *call) report(kind EventKind, err error, plain bool) {
	e := c.outcome(kind, err)
	e.plain = plain
	c.tell(&e)
}

// plain reports whether a granted request has nothing to say that its charges and results
// don't, now or when it ends: see BriefObserver.
func (c *call) plain() bool {
	if c.Needs()&^limit.Counts != 0 || c.Call.Begun {
		return false
	}
	for i := range c.Call.Results {
		if !c.Call.Results[i].OK {
			return false
		}
	}
	return true
}

// observeEnd notifies the observers that a granted request has ended: brief ones in brief, if
// they were told so that it was admitted, and all others by an event, which send sends.
func (v *version) observeEnd(told telling, below uint32, send func(plain bool)) {
	to := v.reporter.audience.Load()
	switch {
	case to == nil || told == untold:
	case told == wholly:
		send(false)
	default:
		if to.whole(below) {
			defer send(true) // also if a brief observer panics
		}
		to.notifyEnded(below)
	}
}

// observeEnd notifies the observers that the call has ended, if they were told that it was
// admitted, and no permit tells them.
func (c *call) observeEnd() {
	told := c.endDue
	c.endDue = untold
	c.version.observeEnd(told, c.below, func(plain bool) {
		e := c.event(EventEnded, nil)
		e.Waited, e.plain = c.Call.Waited, plain
		c.tell(&e)
	})
}

// tell sends an event about the call, with its decision and keys.
func (c *call) tell(e *Event) {
	v := c.version
	c.setDecision(&e.Decision, make([]LimitStatus, len(c.Call.Results)))
	e.keys = keysOf(c.Call.Charges)
	if e.Kind == EventCanceled { // no limit has denied it
		e.Decision.Allowed, e.Decision.RetryAfter = false, 0
		for i := range e.Decision.Limits {
			e.Decision.Limits[i].RetryAfter = 0
		}
	}
	v.observe(e)
	if e.Kind != EventAdmitted && e.Kind != EventDenied {
		return
	}
	also := *e // what the same decision has led to
	also.EndsWait = false
	for i := range c.Call.Results {
		if c.Call.Results[i].Begun {
			also.Kind, also.Decision = EventBanned, e.Decision.deniedBy(i)
			v.observe(&also)
		}
	}
	for i := range c.Call.Results {
		if c.Call.Charges[i].DryRun && !c.Call.Results[i].OK {
			also.Kind, also.Err, also.Decision = EventDryRunDenied, nil, e.Decision.deniedBy(i)
			v.observe(&also)
		}
	}
}

// bans reports whether the decision has started a ban.
func (c *call) bans() bool {
	return c.Call.Needs&limit.Counts != 0 && slices.ContainsFunc(c.Call.Results, func(r store.Result) bool { return r.Begun })
}

// setDecision sets d to the call's decision, from its results and its waits.
func (c *call) setDecision(d *Decision, statuses []LimitStatus) {
	d.decide(&c.Call, statuses)
	d.add(c.Call.Waited, c.Call.Seen, statuses)
}
