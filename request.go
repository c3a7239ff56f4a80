package stint

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/permit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// admission is one request or job on its way through a limiter. Its charges are read, the
// call with them is decided, and observers are notified of the outcome. Admissions are pooled:
// what outlives one is copied into a Permit or a DeniedError.
type admission struct {
	reading read.Reading // of the request, or of the key that is given
	call    decide.Call  // the charges that were read, and what was decided
	version *version
	outer   *permit.Core // the permit of the next limiter further out that the request has passed
	fields  field.Writer

	// to are the observers that get its events: those at its beginning.
	observers *observerList
	// outcomeSent: the observers were notified of its outcome, which ends a wait.
	outcomeSent bool
	// endDue: the observers were notified that it is admitted, and not yet of its end. A permit
	// takes that over, with what was granted.
	endDue bool
}

var admissions = sync.Pool{New: func() any {
	a := new(admission)
	a.reading.Init(&a.call, a.charged)
	a.call.Init(a.reading.Class, a.reading.Tenant, a.sendWaiting)
	return a
}}

// beginAdmission returns an admission by a version, of a request or, if r is nil, of a job. Its
// caller defers end.
func beginAdmission(v *version, r *http.Request, outer *permit.Core) *admission {
	a := admissions.Get().(*admission)
	if a.version != v {
		a.version = v
		a.reading.SetPlans(v.plans)
		a.call.By(v.backend)
	}
	if to := v.events.observers(); a.observers != to { // as in Call.Add of package decide
		a.observers = to
	}
	a.outer = outer
	a.reading.Begin(r, outer != nil)
	return a
}

// end returns the admission to the pool. It keeps its version, by which the next request of the
// pool is likely to be decided, too. The application's functions, which may panic, are called at
// many points: with this defer none of those points has to know what the call owns, or what
// observers wait for.
func (a *admission) end(ctx context.Context) {
	if a.call.Owns() || a.waitOpen() || a.endDue {
		a.abandon(ctx)
	}
	a.reading.End()
	a.call.Reset()
	a.outer, a.outcomeSent = nil, false
	admissions.Put(a)
}

// waitOpen reports whether the observers were notified that the call waits, and not yet of
// what became of it.
func (a *admission) waitOpen() bool { return a.call.BeganWaiting && !a.outcomeSent }

// abandon gives back what was granted, and notifies observers of the end that they wait for. It is
// called when a panic goes through the admission.
func (a *admission) abandon(ctx context.Context) {
	defer func() { // also if the store panics
		if a.waitOpen() {
			a.sendOutcome(EventCanceled, errWaitPanicked)
		}
		a.sendEnd()
	}()
	s := a.call.Undo(ctx)
	if s.Err == nil && a.endDue { // the event of the end says what the request has cost: nothing
		for i := range a.call.Charges {
			a.call.Charges[i].Cost = 0
		}
	}
	a.version.events.sendUnsettled(a.subject(), s)
}

// errWaitPanicked is why a wait ended that a panic went through.
var errWaitPanicked = &decide.Canceled{Err: errors.New("a panic ended the wait")}

// admit has a version decide a request. If it returns no error, next is the request for the next
// handler, and p its permit, or nil if there is nothing to end. If mayAnswer is set, admit answers
// denials by limits that no handler sees, and returns errAnswered.
func admit(
	v *version, w http.ResponseWriter, r *http.Request, mayAnswer bool,
) (p *Permit, next *http.Request, err error) {
	ctx := r.Context()
	outer := outerPermit(r)
	if v.handles() && isAnswering(ctx, v.events.destinations) {
		return nil, r, nil
	}
	if len(v.plans.Skip)+len(v.plans.Block) > 0 {
		if exempt, err := skipOrBlock(v, r); exempt || err != nil {
			if err != nil {
				outer.RecordInnerDenial()
			}
			return nil, r, err
		}
	}
	a := beginAdmission(v, r, outer)
	defer a.end(ctx)
	err = a.reading.Request(v.plan(r))
	if len(a.reading.Failures) > 0 {
		a.sendFailures()
	}
	if err != nil {
		outer.RecordInnerDenial()
		return nil, nil, err
	}
	if len(a.call.Charges) == 0 && len(a.reading.Paced) == 0 {
		return nil, r, nil
	}
	if err := a.decide(ctx); err != nil {
		return a.finishUndecided(ctx, err)
	}
	if !a.call.Allowed {
		return nil, nil, a.finishDenied(w, mayAnswer)
	}
	next = r
	needs := a.reading.Needs()
	if !v.withoutPermit || needs&limit.Releases != 0 || a.observers != nil { // observers are notified when it ends
		p, next = a.permit(ctx, needs)
	}
	if v.styles != 0 {
		a.setFields(w.Header())
	}
	if a.observers != nil || needs&limit.Counts != 0 || v.events.destinations.storeFailed.Load() != 0 || v.dryRuns {
		a.sendOutcome(EventAdmitted, nil)
	}
	if p == nil {
		a.call.LeaveCharged()
	} else {
		a.handTo(p)
	}
	return p, next, nil
}

// sendFailures notifies the observers of what kept the request from being charged.
func (a *admission) sendFailures() {
	for _, w := range a.reading.Failures {
		e := a.event(failureEvents[w.Kind], w.Err)
		e.Decision.Limit = w.Limit
		a.version.events.send(a.observers, &e)
	}
}

// failureEvents has the event of each kind of failure.
var failureEvents = [...]EventKind{
	read.KeyFailed: EventKeyFailed, read.EmptyKey: EventEmptyKey,
	read.LimitsFailed: EventLimitsFailed, read.SourceFailed: EventSourceFailed,
	read.NoLimits: EventLimitsFailed, read.DryRunDenied: EventDryRunDenied,
}

// charged reports whether a limiter of the family further out has charged the limit for
// that key already: a request is charged once, however many limiters it passes.
func (a *admission) charged(e *read.Entry, key string) bool {
	return !e.Kind.Traits().Nested && a.outer.Charged(a.version.backend, e.StoreLimit, key)
}

// decide has the charges decided. If it returns nil, either all of them are granted
// (Allowed), or the results say which limit denied.
func (a *admission) decide(ctx context.Context) error {
	a.call.Timed = a.observers != nil
	err := a.call.Decide(ctx)
	if lost := a.call.Lost; lost != nil { // limits of this process have decided without the store
		e := a.event(EventStoreFailed, lost.Err)
		a.version.events.sendAbout(a.observers, &e, lost.Charges)
	}
	if a.call.Renewed {
		a.reading.PolicyDiffers = true
	}
	if err != nil {
		return err
	}
	if !a.call.Allowed || a.version.dryRuns || a.call.Needs&limit.Waits != 0 {
		a.version.recordResults(&a.call)
	}
	return nil
}

// sendWaiting notifies the observers that the call begins to wait.
func (a *admission) sendWaiting(i int, queued int64, d time.Duration) {
	if a.observers != nil {
		e := a.event(EventWaiting, nil)
		e.Decision = Decision{Limit: a.call.Charges[i].Limit.Name(), Queued: queued, Delay: d}
		a.version.events.sendAbout(a.observers, &e, a.call.Charges)
	}
}

// errBlocked is the error of a request that a WithBlock denies.
var errBlocked error = &failure.Error{Err: ErrBlocked, Status: http.StatusForbidden}

// skipOrBlock applies the predicates of WithSkip and WithBlock.
func skipOrBlock(v *version, r *http.Request) (exempt bool, err error) {
	exempt, blocked := v.plans.SkipOrBlock(r)
	if !blocked {
		return exempt, nil
	}
	err = errBlocked
	s := subject{request: r, observers: v.events.observers()}
	if s.observers != nil { // the route is only for observers
		s.route = v.plans.Find(r).Route()
	}
	e := s.event(EventBlocked, err)
	v.events.send(s.observers, &e)
	return false, err
}

// finishFailed gives back what the call has got, and turns the error of its decision into that
// of Admit or Take: nil if the request passes despite a store's failure.
func (a *admission) finishFailed(ctx context.Context, err error) error {
	a.version.events.sendUnsettled(a.subject(), a.call.Undo(ctx))
	failed, ok := err.(*decide.Failed)
	if !ok {
		a.sendOutcome(EventCanceled, err)
		return err
	}
	e := a.outcome(EventStoreFailed, failed.Err)
	err = nil
	if failed.Closed {
		err = &StoreError{failed.Err}
		e.Err = err
	}
	a.version.events.sendAbout(a.observers, &e, a.call.Charges)
	return err
}

// finishUndecided finishes a request that could not be decided: it is denied with the error,
// or passes, with a permit if its bytes are paced.
func (a *admission) finishUndecided(ctx context.Context, err error) (p *Permit, next *http.Request, _ error) {
	if err = a.finishFailed(ctx, err); err != nil {
		a.outer.RecordInnerDenial()
		return nil, nil, err
	}
	if len(a.reading.Paced) == 0 {
		return nil, a.reading.R, nil
	}
	// Bandwidths ask the store themselves, which may be back by then, and have a
	// FailurePolicy of their own.
	a.call.Keep(func(*limit.Limit) bool { return false })
	a.call.Waited = 0 // the permit has none of the limits that it waited for
	p, next = a.permit(ctx, a.reading.Needs())
	return p, next, nil
}

// finishDenied sets the fields of a denial and returns its error. Building that error costs as
// much as setting all fields, so it is skipped when no handler will see it.
func (a *admission) finishDenied(w http.ResponseWriter, mayAnswer bool) error {
	a.outer.RecordInnerDenial()
	if _, passesOn := w.(errorWriter); !mayAnswer || a.version.handles() || passesOn && !a.version.problem {
		err := newDenied(a.version, &a.call)
		a.setFields(w.Header())
		a.sendOutcome(EventDenied, nil)
		return err
	}
	a.setFields(w.Header())
	a.sendOutcome(EventDenied, nil)
	a.fields.Problem(w, a.reading.R, problems[whyDenied(&a.call)])
	return errAnswered
}

// errAnswered is the error of a request that has been denied and answered.
var errAnswered = errors.New("stint: denied and answered")

// routerRequest returns a copy of a request that leads to the context of a router, if w is of one that has
// its own. The copy is for the application's functions, so it is made only if a version shows them
// requests.
func routerRequest(w http.ResponseWriter, r *http.Request) *http.Request {
	if w, ok := w.(contextWriter); ok {
		return w.RequestWithContext(r)
	}
	return r
}

// setFields sets the header fields of the call's decision in h. Dry runs have none.
func (a *admission) setFields(h http.Header) {
	a.fields.Begin()
	for i, l := range a.call.Limits {
		ch, r := &a.call.Charges[i], &a.call.Results[i]
		if ch.DryRun {
			continue
		}
		capacity := int64(0)
		if l.Needs&limit.Local != 0 || r.Processes > 0 {
			capacity, _ = limit.DecidedCapacity(ch, r)
			a.reading.PolicyDiffers = true
		}
		setItem(a.fields.Add(), l, capacity, r)
	}
	a.fields.Jitter = a.version.retryJitter
	a.fields.Write(h, a.version.styles, a.reading.Policy())
}

// setItem sets what header fields say of a limit that has answered a charge with r. capacity is that of
// an adaptive limit at the decision, or of the part that has decided; other limits have their own.
func setItem(item *field.Item, l *limit.Limit, capacity int64, r *store.Result) {
	policy := l.Policy.Load()
	if l.Needs&limit.Local != 0 && policy.Text != "" && policy.Capacity != capacity { // it changes less often than it decides
		policy = &limit.Policy{Capacity: capacity, Text: field.Policy(l.StoreLimit.Name(), capacity, 0)}
		l.Policy.Store(policy)
	}
	item.Name, item.Policy, item.Capacity = l.StoreLimit.Name(), policy.Text, policy.Capacity
	if r.Processes > 0 {
		setPart(item, l.StoreLimit, capacity, r.Processes)
	}
	item.Remaining, item.Reset, item.Denied, item.Retry, item.More = r.Remaining, r.ResetAfter, !r.OK, r.RetryAfter, -1
	if after, known := inside.MoreAfter(l.StoreLimit, r); known {
		item.More = after
	}
}

// setPart sets what header fields say of the part of a limit for one of several processes.
func setPart(item *field.Item, l *store.Limit, capacity int64, processes uint32) {
	if item.Capacity = capacity; item.Policy != "" {
		item.Policy = field.Policy(item.Name, inside.Part(l, int64(processes)).Spec().Units, compile.Span(l.Spec()))
	}
}

// permit makes the permit of an admission whose call has been granted its charges. The permit owns nothing until
// handTo. next is the request for the next handler: a copy that carries the permit, or the request itself.
func (a *admission) permit(ctx context.Context, needs limit.Needs) (p *Permit, next *http.Request) {
	next = a.reading.R
	if next == nil || a.version.withoutPermit {
		p = new(Permit)
		a.fillIn(&p.core, ctx, needs)
		return p, next
	}
	c := new(carried)
	a.fillIn(&c.core, ctx, needs)
	c.request = *next.WithContext((*permitContext)(c)) // inlined, the copy in between is on the stack
	return &c.Permit, &c.request
}

// fillIn sets the fields of a new permit. Fields that stay zero aren't written: see Call.Add of package decide.
func (a *admission) fillIn(p *permit.Core, ctx context.Context, needs limit.Needs) {
	p.Context, p.Issuer, p.Plan, p.Class = ctx, &a.version.issuer, a.reading.Plan, a.call.Class
	if a.outer != nil {
		p.Outer = a.outer
	}
	if a.observers != nil {
		p.Observers, p.AdmissionSent = a.observers, a.call.Allowed
	}
	if needs != 0 {
		p.Releases, p.Response = needs&limit.Releases != 0, a.newResponse(p)
	}
	waited := a.call.Waited > 0 || len(a.call.LineWaits) > 0
	if learns := needs&limit.Local != 0; learns || waited || needs&limit.Slots != 0 && p.AdmissionSent {
		p.Times = &permit.Times{Waited: a.call.Waited, LineWaits: a.call.LineWaits, Admitted: time.Now(), Learns: learns}
	}
}

// handTo makes p the owner of what the call was granted. From then on p notifies the observers of the end.
func (a *admission) handTo(p *Permit) {
	a.call.HandTo(&p.core.Grants)
	a.endDue = false
}

// newResponse makes the response of a permit, or returns nil if no limit needs it.
func (a *admission) newResponse(p *permit.Core) *permit.Response {
	r := a.reading.R
	if r == nil {
		return nil
	}
	watched, paced := a.call.Needs&limit.Watches != 0, len(a.reading.Paced) > 0
	holdsHijacked := a.call.Needs&limit.Releases != 0 && (r.Method == http.MethodConnect || upgrades(r))
	if !watched && !paced && !holdsHijacked {
		return nil
	}
	s := &permit.Response{Settlers: a.reading.Settlers()}
	s.Begin(r)
	s.Decides = watched
	if holdsHijacked {
		s.OnHijack = p.Hold
	}
	if paced {
		s.Pace(bytePayer(a.version, a.subject()), a.reading.Paced)
	}
	return s
}

// bytePayer returns what Bandwidths charge bytes with: the version's store. Events are about a request.
func bytePayer(v *version, about subject) respond.Payer {
	return respond.Payer{
		Backend: v.bytes,
		Refund: func(ctx context.Context, charges []store.Charge) {
			v.events.sendUnsettled(about, v.backend.Settle(ctx, charges, about.observers != nil))
		},
		StoreFailed: func(charges []store.Charge, err error, failsClosed bool) error {
			if failsClosed {
				err = &StoreError{err}
			}
			e := about.event(EventStoreFailed, err)
			v.events.sendAbout(about.observers, &e, charges)
			return err
		},
	}
}

// recordResults records which limits have denied the call or made it wait, and which dry runs
// would have denied it. A plain call that passes has nothing to record.
func (v *version) recordResults(c *decide.Call) {
	for i, l := range c.Limits {
		ch, r := &c.Charges[i], &c.Results[i]
		switch {
		case !r.OK && ch.DryRun:
			l.Record.CountDryRunDenial()
		case !r.OK, c.Allowed && (r.Delay > 0 || c.Waited > 0 && l.Needs&limit.Waits != 0):
			l.Record.MarkBound()
		}
		if r.RetryAfter == store.Never && !ch.DryRun && l.Record.MarkTooCostly() {
			v.warnTooCostly(ch)
		}
	}
}

// subject returns the subject of the admission's events.
func (a *admission) subject() subject {
	return subject{a.reading.Plan.Route(), a.reading.R, a.observers}
}

// event returns an event about the request.
func (a *admission) event(kind EventKind, err error) Event { return a.subject().event(kind, err) }

// outcome returns the event of the call's outcome, which ends a wait that has begun.
func (a *admission) outcome(kind EventKind, err error) Event {
	a.outcomeSent = true
	e := a.event(kind, err)
	e.Waited, e.StoreTook, e.EndsWait = a.call.Waited, a.call.Took, a.call.BeganWaiting
	return e
}

// sendOutcome notifies the observers of a decision, and logs it if the log shows such decisions. If the store
// had failed before and has now decided a limit, the log says so. Observers of an admission are owed its end
// (endDue).
func (a *admission) sendOutcome(kind EventKind, err error) {
	s := &a.version.events
	decided := kind == EventAdmitted || kind == EventDenied
	inStore := func(l *limit.Limit) bool { return l.Needs&limit.Local == 0 }
	if decided && s.destinations.storeFailed.Load() != 0 && slices.ContainsFunc(a.call.Limits, inStore) {
		s.writeRecovery()
	}
	if a.observers == nil && !a.logged(kind) {
		return
	}
	a.endDue = kind == EventAdmitted && a.observers != nil
	e := a.outcome(kind, err)
	s.sendDecision(a.observers, &e, &a.call)
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
	a.version.events.sendDecision(a.observers, &e, &a.call)
}

// logged reports whether the log shows a decision, or what else it has led to.
func (a *admission) logged(kind EventKind) bool {
	shown := kind == EventDenied || kind == EventAdmitted && (a.bans() || a.version.dryRuns && a.wouldDeny())
	return shown && a.version.events.destinations.log.Load().Shows(contextOf(a.reading.R), logs.Denied)
}

// wouldDeny reports whether a limit in a dry run would have denied the call.
func (a *admission) wouldDeny() bool {
	return slices.ContainsFunc(a.call.Results, func(r store.Result) bool { return !r.OK })
}

// bans reports whether the decision has started a ban.
func (a *admission) bans() bool {
	return a.call.Needs&limit.Counts != 0 &&
		slices.ContainsFunc(a.call.Results, func(r store.Result) bool { return r.Begun })
}
