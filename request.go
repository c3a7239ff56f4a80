package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// call is one request or job on its way through a limiter: its charges are read, decided,
// and what has become of them is told. Calls are pooled; the outcome is copied into a Permit
// or a DeniedError.
type call struct {
	read.Reading
	version *version
	outer   *Permit
	below   uint32  // which observers get its events: see Event.below
	told    bool    // what has become of it
	endDue  telling // observers were told so that it is admitted, and not yet of its end
	fields  field.Writer
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.Init(c.charged, c.waits)
	return c
}}

// begin returns a call of a version, for a request or, if r is nil, for a job. Whoever
// begins a call defers its end.
func (v *version) begin(r *http.Request, outer *Permit) *call {
	c := calls.Get().(*call)
	c.version, c.outer = v, outer
	c.Begin(r, outer != nil, v.plans, v.backend, v.leases)
	return c
}

// end returns the call to the pool. If a panic goes through the call, end gives back what it
// still owns, and tells observers that its wait is over or that it has ended; otherwise the
// permit owns it, or it was denied. The application's functions, which may panic, are called at
// many points: with this defer none of those points has to know what is owned.
func (c *call) end(ctx context.Context) {
	if c.Call.Owns() || c.waiting() || c.endDue != untold {
		c.abandon(ctx)
	}
	c.Reading.End()
	c.version, c.outer, c.below, c.told = nil, nil, 0, false
	calls.Put(c)
}

// waiting reports whether the observers take the call for one that waits.
func (c *call) waiting() bool { return c.Call.Begun && !c.told }

// abandon ends a call that a panic goes through.
func (c *call) abandon(ctx context.Context) {
	defer func() { // also if the store panics
		if c.waiting() {
			c.observe(EventCanceled, errPanicked)
		}
		c.observeEnd()
	}()
	undone := c.Call.GiveBack(ctx)
	if undone.Err == nil && c.endDue != untold {
		for i := range c.Call.Charges { // what it has cost in the end
			c.Call.Charges[i].Cost = 0
		}
	}
	c.version.observeUnsettled(c.Plan, undone)
}

// errPanicked is why a wait ended that a panic went through.
var errPanicked = &decide.Canceled{Err: errors.New("a panic ended the wait")}

// admit decides a request. Without an error, next is the request for the next handler, and p
// its permit, or nil if there is nothing to end. If mayAnswer is set, it answers denials by
// limits that no handler sees, and returns errAnswered.
func (v *version) admit(w http.ResponseWriter, r *http.Request, mayAnswer bool) (p *Permit, next *http.Request, err error) {
	ctx := r.Context()
	outer := FromContext(ctx)
	if outer != nil && outer.opened(r) {
		outer = nil
	}
	if v.answering(ctx) {
		return nil, r, nil
	}
	if len(v.plans.Skip)+len(v.plans.Block) > 0 {
		if exempt, err := v.sift(r); exempt || err != nil {
			if err != nil {
				outer.recordInnerDenial()
			}
			return nil, r, err
		}
	}
	c := v.begin(r, outer)
	defer c.end(ctx)
	if err := c.read(); err != nil {
		outer.recordInnerDenial()
		return nil, nil, err
	}
	if len(c.Call.Charges) == 0 && len(c.Paced) == 0 {
		return nil, r, nil
	}
	if err := c.decide(ctx); err != nil {
		return c.finishUndecided(ctx, err)
	}
	if !c.Call.Allowed {
		return nil, nil, c.deny(w, mayAnswer)
	}
	next = r
	needs := c.Needs()
	var values []string // of the header fields, kept in the permit
	var room []decide.Grant
	if !v.withoutPermit || needs&limit.Releases != 0 || c.Call.Timed { // observers are notified when it ends
		p, next, room = c.permit(ctx, needs)
		values = p.fields[:]
	}
	if v.styles != 0 {
		c.setFields(w.Header(), values)
	}
	if c.Call.Timed || needs&limit.Counts != 0 {
		c.observe(EventAdmitted, nil)
	}
	if p == nil {
		c.Call.Spend()
	} else {
		c.handTo(p, room)
	}
	return p, next, nil
}

// read makes the charges of a request. The error denies it.
func (c *call) read() error {
	plan := c.version.plans.Base
	if c.version.plans.Router != nil {
		plan = c.version.plans.Find(c.R)
	}
	err := c.Request(plan)
	if err == nil && c.Planless && !c.Held {
		err = c.LimitsFailed(ErrNoLimits, false)
	}
	for i := range c.Wrong {
		w := &c.Wrong[i]
		e := c.event(eventOf[w.What], w.Err)
		e.Decision.Limit = w.Limit
		c.version.observe(&e)
	}
	return err
}

// eventOf has the event of each thing that keeps a request from being charged.
var eventOf = [...]EventKind{
	read.KeyFailed: EventKeyFailed, read.EmptyKey: EventEmptyKey,
	read.LimitsFailed: EventLimitsFailed, read.DryRunDenied: EventDryRunDenied,
}

// charged reports whether a limiter of the family further out has charged the limit for
// that key already: a request is charged once, however many limiters it passes.
func (c *call) charged(e *read.Entry, key string) bool {
	return !e.Kind.Traits().Nested && c.outer.charged(c.version.registry, e, key)
}

// decide has the charges decided. If it returns nil, either all of them are granted
// (Allowed), or the results say which limit denied.
func (c *call) decide(ctx context.Context) error {
	to := c.version.reporter.audience.Load()
	c.Call.Timed, c.below = to != nil, to.next()
	err := c.Call.Decide(ctx)
	if lost := c.Call.Lost; lost != nil { // limits of this process have decided without the store
		e := c.event(EventStoreFailed, lost.Err)
		c.version.observeOf(&e, lost.Charges)
	}
	if c.Call.Renewed {
		c.Policy = ""
	}
	if err == nil && !c.Call.Allowed {
		c.excessive()
	}
	return err
}

// excessive warns of a denied call whose cost a limit never lets pass. It costs a denial a
// look at its results.
func (c *call) excessive() {
	for i := range c.Call.Results {
		ch := &c.Call.Charges[i]
		if c.Call.Results[i].RetryAfter != store.Never || ch.Cost <= 1 || ch.DryRun {
			continue
		}
		name, cost, most := ch.Limit.Name(), ch.Cost, largest(ch.Limit)
		if cost <= most || !c.version.warnings.First(name) {
			continue
		}
		text := fmt.Sprintf("a request costs %d, and limit %q never lets more than %d pass: lower the cost, or raise the limit", cost, name, most)
		if isBucket(ch.Limit) {
			text += fmt.Sprintf(", such as by stint.WithBurst(%d)", cost)
		}
		still := func(u warn.User) bool {
			for e := range u.(*version).plans.Entries {
				if e.Name() == name {
					return largest(e.Limit.Limit) < cost
				}
			}
			return false
		}
		for _, n := range c.version.warnings.Note(c.version, warn.CostTooHigh, []string{name}, text, still) {
			n.Tell()
		}
	}
}

// largest is the largest cost that a limit ever lets pass.
func largest(l *store.Limit) int64 { return l.Engine(engine.Access{}).Terms().Largest }

// isBucket reports whether WithBurst raises what a limit lets pass.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket || a == store.IntervalBucket
}

// waits notifies the observers that the call begins to wait.
func (c *call) waits(i int, queued int64, d time.Duration) {
	if c.Call.Timed {
		e := c.event(EventWaiting, nil)
		e.Decision = Decision{Limit: c.Call.Charges[i].Limit.Name(), Queued: queued, Delay: d}
		c.version.observeOf(&e, c.Call.Charges)
	}
}

// sift applies the predicates of WithSkip and WithBlock.
func (v *version) sift(r *http.Request) (exempt bool, err error) {
	exempt, blocked := v.plans.Sift(r)
	if !blocked {
		return exempt, nil
	}
	err = &failure.Error{Err: ErrBlocked, Status: http.StatusForbidden}
	told := Event{Kind: EventBlocked, Request: r, Err: err}
	if v.reporter.audience.Load() != nil { // the route is only for observers
		told.Route = v.plans.Find(r).Route()
	}
	v.observe(&told)
	return false, err
}

// failed turns the error of a decision into that of Admit or Take: nil if the request
// passes despite a store's failure.
func (c *call) failed(ctx context.Context, err error) error {
	c.version.observeUnsettled(c.Plan, c.Call.GiveBack(ctx))
	failed, ok := err.(*decide.Failed)
	if !ok {
		c.observe(EventCanceled, err)
		return err
	}
	told := c.outcome(EventStoreFailed, failed.Err)
	err = nil
	if failed.Closed {
		err = &StoreError{failed.Err}
		told.Err = err
	}
	c.version.observeOf(&told, c.Call.Charges)
	return err
}

// finishUndecided finishes a request that could not be decided: it is denied with the error,
// or passes, with a permit if its bytes are paced.
func (c *call) finishUndecided(ctx context.Context, err error) (p *Permit, next *http.Request, _ error) {
	if err = c.failed(ctx, err); err != nil {
		c.outer.recordInnerDenial()
		return nil, nil, err
	}
	if len(c.Paced) == 0 {
		return nil, c.R, nil
	}
	// Bandwidths ask the store themselves, which may be back by then, and have a
	// FailurePolicy of their own.
	c.Call.Keep(func(*limit.Limit) bool { return false })
	c.Call.Waited = 0 // the permit has none of the limits that it waited for
	p, next, _ = c.permit(ctx, c.Needs())
	return p, next, nil
}
