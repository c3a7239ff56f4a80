package stint

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
)

// admission is one request or job on its way through a limiter. Its charges are read, the
// call with them is decided, and observers are notified of the outcome. Admissions are pooled:
// what outlives one is copied into a Permit or a DeniedError.
type admission struct {
	reading read.Reading // of the request, or of the key that is given
	call    decide.Call  // the charges that were read, and what was decided
	version *version
	outer   *Permit // of the next limiter further out that the request has passed
	fields  field.Writer

	// to are the observers that get its events: those at its beginning.
	to *audience
	// concluded: the observers were notified of its outcome, which ends a wait.
	concluded bool
	// endDue: the observers were notified that it is admitted, and not yet of its end. A permit
	// takes that over, with what was granted.
	endDue bool
}

var admissions = sync.Pool{New: func() any {
	a := new(admission)
	a.reading.Init(&a.call, a.charged)
	a.call.Init(a.reading.Class, a.sendWaiting)
	return a
}}

// beginAdmission returns an admission by a version, of a request or, if r is nil, of a job. Its
// caller defers end.
func beginAdmission(v *version, r *http.Request, outer *Permit) *admission {
	a := admissions.Get().(*admission)
	if a.version != v {
		a.version = v
		a.reading.By(v.plans)
		a.call.By(v.backend)
	}
	if to := v.events.observers(); a.to != to { // as in Call.Add of package decide
		a.to = to
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
	if a.call.Owns() || a.waitIsOpen() || a.endDue {
		a.abandon(ctx)
	}
	a.reading.End()
	a.call.Reset()
	a.outer, a.concluded = nil, false
	admissions.Put(a)
}

// waitIsOpen reports whether the observers were notified that the call waits, and not yet of
// what became of it.
func (a *admission) waitIsOpen() bool { return a.call.BeganWaiting && !a.concluded }

// abandon gives back what was granted, and notifies observers of the end that they wait for. It is
// called when a panic goes through the admission.
func (a *admission) abandon(ctx context.Context) {
	defer func() { // also if the store panics
		if a.waitIsOpen() {
			a.sendOutcome(EventCanceled, errWaitPanicked)
		}
		a.sendEnd()
	}()
	undone := a.call.GiveBack(ctx)
	if undone.Err == nil && a.endDue {
		for i := range a.call.Charges { // what it has cost in the end
			a.call.Charges[i].Cost = 0
		}
	}
	a.version.events.sendUnsettled(a.subject(), undone)
}

// errWaitPanicked is why a wait ended that a panic went through.
var errWaitPanicked = &decide.Canceled{Err: errors.New("a panic ended the wait")}

// admit has a version decide a request. If it returns no error, next is the request for the next
// handler, and p its permit, or nil if there is nothing to end. If mayAnswer is set, admit answers
// denials by limits that no handler sees, and returns errAnswered.
func admit(v *version, w http.ResponseWriter, r *http.Request, mayAnswer bool) (p *Permit, next *http.Request, err error) {
	ctx := r.Context()
	outer := FromContext(ctx)
	if outer != nil && outer.opened(r) {
		outer = nil
	}
	if v.handles() && isAnswering(ctx, v.events.to) {
		return nil, r, nil
	}
	if len(v.plans.Skip)+len(v.plans.Block) > 0 {
		if exempt, err := sift(v, r); exempt || err != nil {
			if err != nil {
				outer.recordInnerDenial()
			}
			return nil, r, err
		}
	}
	a := beginAdmission(v, r, outer)
	defer a.end(ctx)
	err = a.reading.Request(v.plan(r))
	if len(a.reading.Wrong) > 0 {
		a.sendWrong()
	}
	if err != nil {
		outer.recordInnerDenial()
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
	var room []decide.Grant
	if !v.withoutPermit || needs&limit.Releases != 0 || a.to != nil { // observers are notified when it ends
		p, next, room = a.permit(ctx, needs)
	}
	if v.styles != 0 {
		a.setFields(w.Header())
	}
	if a.to != nil || needs&limit.Counts != 0 || v.events.to.failed.Load() != 0 || v.dryRuns {
		a.sendOutcome(EventAdmitted, nil)
	}
	if p == nil {
		a.call.Spend()
	} else {
		a.handTo(p, room)
	}
	return p, next, nil
}

// sendWrong notifies the observers of what kept the request from being charged.
func (a *admission) sendWrong() {
	for _, w := range a.reading.Wrong {
		e := a.event(eventOf[w.What], w.Err)
		e.Decision.Limit = w.Limit
		a.version.events.send(a.to, &e)
	}
}

// eventOf has the event of each thing that keeps a request from being charged.
var eventOf = [...]EventKind{
	read.KeyFailed: EventKeyFailed, read.EmptyKey: EventEmptyKey,
	read.LimitsFailed: EventLimitsFailed, read.SourceFailed: EventSourceFailed, read.NoLimits: EventLimitsFailed, read.DryRunDenied: EventDryRunDenied,
}

// charged reports whether a limiter of the family further out has charged the limit for
// that key already: a request is charged once, however many limiters it passes.
func (a *admission) charged(e *read.Entry, key string) bool {
	return !e.Kind.Traits().Nested && a.outer.charged(a.version.registry, e, key)
}

// decide has the charges decided. If it returns nil, either all of them are granted
// (Allowed), or the results say which limit denied.
func (a *admission) decide(ctx context.Context) error {
	a.call.Timed = a.to != nil
	err := a.call.Decide(ctx)
	if lost := a.call.Lost; lost != nil { // limits of this process have decided without the store
		e := a.event(EventStoreFailed, lost.Err)
		a.version.events.sendAbout(a.to, &e, lost.Charges)
	}
	if a.call.Renewed {
		a.reading.Differs = true
	}
	if err != nil {
		return err
	}
	if !a.call.Allowed || a.version.dryRuns || a.call.Needs&limit.Waits != 0 {
		a.recordResults()
	}
	return nil
}

// sendWaiting notifies the observers that the call begins to wait.
func (a *admission) sendWaiting(i int, queued int64, d time.Duration) {
	if a.to != nil {
		e := a.event(EventWaiting, nil)
		e.Decision = Decision{Limit: a.call.Charges[i].Limit.Name(), Queued: queued, Delay: d}
		a.version.events.sendAbout(a.to, &e, a.call.Charges)
	}
}

// errBlocked is the error of a request that a WithBlock denies.
var errBlocked error = &failure.Error{Err: ErrBlocked, Status: http.StatusForbidden}

// sift applies the predicates of WithSkip and WithBlock.
func sift(v *version, r *http.Request) (exempt bool, err error) {
	exempt, blocked := v.plans.Sift(r)
	if !blocked {
		return exempt, nil
	}
	err = errBlocked
	of := subject{request: r, to: v.events.observers()}
	if of.to != nil { // the route is only for observers
		of.route = v.plans.Find(r).Route()
	}
	e := of.event(EventBlocked, err)
	v.events.send(of.to, &e)
	return false, err
}

// finishFailed gives back what the call has got, and turns the error of its decision into that
// of Admit or Take: nil if the request passes despite a store's failure.
func (a *admission) finishFailed(ctx context.Context, err error) error {
	a.version.events.sendUnsettled(a.subject(), a.call.GiveBack(ctx))
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
	a.version.events.sendAbout(a.to, &e, a.call.Charges)
	return err
}

// finishUndecided finishes a request that could not be decided: it is denied with the error,
// or passes, with a permit if its bytes are paced.
func (a *admission) finishUndecided(ctx context.Context, err error) (p *Permit, next *http.Request, _ error) {
	if err = a.finishFailed(ctx, err); err != nil {
		a.outer.recordInnerDenial()
		return nil, nil, err
	}
	if len(a.reading.Paced) == 0 {
		return nil, a.reading.R, nil
	}
	// Bandwidths ask the store themselves, which may be back by then, and have a
	// FailurePolicy of their own.
	a.call.Keep(func(*limit.Limit) bool { return false })
	a.call.Waited = 0 // the permit has none of the limits that it waited for
	p, next, _ = a.permit(ctx, a.reading.Needs())
	return p, next, nil
}

// finishDenied sets the fields of a denial and returns its error. Building that error costs as
// much as setting all fields, so it is skipped when no handler will see it.
func (a *admission) finishDenied(w http.ResponseWriter, mayAnswer bool) error {
	a.outer.recordInnerDenial()
	if _, passesOn := w.(ErrorWriter); !mayAnswer || a.version.handles() || passesOn && !a.version.problem {
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

// leader is a writer of a router that keeps a context of its own: see Admit.
type leader interface {
	Lead(r *http.Request) *http.Request
}

// lead returns a copy of a request that leads to the context of a router, if w is of one that has
// its own. The copy is for the application's functions, so it is made only if a version shows them
// requests.
func lead(w http.ResponseWriter, r *http.Request) *http.Request {
	if w, ok := w.(leader); ok {
		return w.Lead(r)
	}
	return r
}
