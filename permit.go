package stint

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/permit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// Permit is the permission to run a request, until its slots are released and its costs
// settled. All methods are safe for concurrent use. They may be called on a nil Permit, which
// is the permit of a request without limits: it holds no slots.
type Permit struct{ core permit.Core }

// coreOrNil returns the core of p, or nil for a nil Permit.
func (p *Permit) coreOrNil() *permit.Core {
	if p == nil {
		return nil
	}
	return &p.core
}

// carried is a permit with the request that carries it, so that both take one allocation.
type carried struct {
	Permit
	request http.Request
}

// outerPermit returns the permit of the next limiter further out that a request has passed, or nil.
func outerPermit(r *http.Request) *permit.Core {
	if c := carriedBy(r.Context()); c != nil && !c.upgradedTo(r) {
		return &c.core
	}
	return nil
}

// upgradedTo reports whether r is a request on the HTTP/2 connection that c's request was upgraded to, and so
// another request than c's. The contexts of all requests on the connection descend from c's. The version of
// r alone isn't enough: a handler in between may have changed it.
func (c *carried) upgradedTo(r *http.Request) bool {
	return r.ProtoMajor == 2 && upgrades(&c.request) && !upgrades(r)
}

// upgrades reports whether a request asks for another protocol on its connection. x/net's h2c takes
// a connection over by an Upgrade, which no request of HTTP/2 has (RFC 9113 §8.2.2), or by the
// first line of HTTP/2, of which net/http makes a request (§3.4). This is net/http's own test for
// that; it has Close set on it, but not on a request of HTTP/2 in the same words.
func upgrades(r *http.Request) bool {
	return r.Method == "PRI" && len(r.Header) == 0 && r.URL.Path == "*" && r.Proto == "HTTP/2.0" && r.Close ||
		r.Header["Upgrade"] != nil
}

// permitContext is the context of a carried request. It adds the permit to the context that the request came with.
type permitContext carried

type permitKey struct{}

func (c *permitContext) Deadline() (time.Time, bool) { return c.core.Context.Deadline() }

func (c *permitContext) Done() <-chan struct{} { return c.core.Context.Done() }

func (c *permitContext) Err() error { return c.core.Context.Err() }

func (c *permitContext) Value(key any) any {
	if key == (permitKey{}) {
		return (*carried)(c)
	}
	return c.core.Context.Value(key)
}

// FromContext returns the permit of the request, or nil. If the request has passed several
// limiters, FromContext returns the permit of the innermost limiter. Its Decision, Settle and
// Extend also include the limits of the outer limiters.
func FromContext(ctx context.Context) *Permit {
	if c := carriedBy(ctx); c != nil {
		return &c.Permit
	}
	return nil
}

// carriedBy returns the permit in a context, with the request that carries it, or nil.
func carriedBy(ctx context.Context) *carried {
	c, _ := ctx.Value(permitKey{}).(*carried)
	return c
}

// runNext runs the next handler with req, which admission.permit has returned for r. A nil Permit
// passes r on.
func (p *Permit) runNext(w http.ResponseWriter, r, req *http.Request, next func(http.ResponseWriter, *http.Request)) {
	if p == nil {
		next(w, req)
		return
	}
	defer p.core.Finish()
	if s := p.core.Response; s != nil {
		w, req = s.Around(w, req, req != r)
	}
	if req != r {
		// Outer handlers look at the request they passed on: loggers at its Pattern, the
		// server at the files it has to remove. A handler may pass one request on to several
		// at once, so nothing is written that is the same.
		defer func() {
			if r.Pattern != req.Pattern {
				r.Pattern = req.Pattern
			}
			if r.MultipartForm != req.MultipartForm {
				r.MultipartForm = req.MultipartForm
			}
		}()
	}
	next(w, req)
}

// Decision returns the decision of all limiters that the request has passed, updated by Settle
// and Extend. Decision.Limits begins with the limits of the outermost limiter.
func (p *Permit) Decision() Decision {
	if p == nil {
		return Decision{Allowed: true}
	}
	c := decide.Borrow()
	defer c.Free()
	p.core.RecallAll(c)
	var d Decision
	d.addUp(c, make([]LimitStatus, len(c.Results)))
	d.Delay = 0
	d.addWaits(c.Waited, c.LineWaits)
	return d
}

// Done releases the permit's slots of concurrency limits, and those of the outer limiters that
// the request has passed. It does so even if the request's context has ended. The charges of
// rates and quotas remain. Further calls do nothing.
//
// Outside HTTP, Done ends the permit: defer the call, so that it also runs when the work
// panics. A handler need not call Done: the limiter ends the permit when the handler has
// returned or panicked. A handler may call Done on any goroutine to release slots early. A
// WithSettle and a Bandwidth depend on the response, so they are still settled when the handler
// has returned. After an early Done, an AdaptiveConcurrency measures only the time that the
// slot was held, not the status.
func (p *Permit) Done() {
	core := p.coreOrNil()
	if core.AnyLearns() {
		// Done is deferred, so it sees a panic. It passes the panic on.
		if v := recover(); v != nil {
			core.RecordPanic(v)
			defer panic(v)
		}
	}
	core.Done()
}

// Detach transfers the release of the permit's slots to the caller: only the returned function
// releases them, including the slots of the outer limiters that the request has passed. Use it
// in handlers that return before their work is done:
//
//	release := stint.FromContext(r.Context()).Detach()
//	go func() { defer release(); work() }()
//
// The function may be called on any goroutine, while the handler runs or later. A WithSettle
// and a Bandwidth depend on the response, so they are still settled when the handler has
// returned. After Done, Detach returns a function that does nothing.
//
// After a Hijack, Detach isn't needed if the request has an Upgrade field or is a CONNECT: its
// slots are held until the handler closes the net.Conn that Hijack has returned. The slots of
// any other hijacked request are released when the handler returns.
func (p *Permit) Detach() (release func()) { return p.coreOrNil().Detach() }

// Drop reports that the request failed for lack of capacity, for instance because a backend was
// overloaded or timed out. An AdaptiveConcurrency cuts its limit if at least one request in
// twenty is dropped. Drop applies to all limiters that the request has passed. It has no effect
// after Done or without an AdaptiveConcurrency.
func (p *Permit) Drop() { p.coreOrNil().Report(adaptive.Dropped) }

// Ignore reports that the request's duration isn't related to the service's load, for instance
// because the request waited for an event. An AdaptiveConcurrency doesn't measure an ignored
// request. Ignore applies to all limiters that the request has passed. It has no effect after
// Done or without an AdaptiveConcurrency.
func (p *Permit) Ignore() { p.coreOrNil().Report(adaptive.Ignored) }

// permitReporter sends the events of the permits that a version has issued.
type permitReporter version

// permitObservers returns the observers of a permit, or nil.
func permitObservers(p *permit.Core) *observerList {
	to, _ := p.Observers.(*observerList)
	return to
}

// permitSubject returns the subject of a permit's events. Its request belongs to the server by then.
func permitSubject(p *permit.Core) subject { return subject{p.Plan.Route(), nil, permitObservers(p)} }

// Settled implements permit.Reporter.
func (v *permitReporter) Settled(p *permit.Core, s decide.Settlement) {
	if p.Observers == nil {
		return
	}
	of := permitSubject(p)
	if p.Response != nil {
		of.request = p.Response.Request()
	}
	e := of.event(EventSettled, nil)
	e.StoreTook = s.Took
	v.sendDecision(p, &e)
	for _, inc := range s.Increases {
		v.events.sendIfNear(of, inc.Limit, &s.Charges[inc.Charge], &s.Results[inc.Charge], inc.Added)
	}
}

// Extended implements permit.Reporter.
func (v *permitReporter) Extended(p *permit.Core, c *decide.Call, done decide.Raised) error {
	of := permitSubject(p)
	if p.Response != nil {
		of.request = p.Response.Request()
	}
	_ = v.events.sendUnsettled(of, done.Undone)
	e := of.event(EventExtended, done.Err)
	e.Waited, e.StoreTook = c.Waited, c.Took
	failed, storeFailed := done.Err.(*decide.Failed)
	switch {
	case storeFailed && failed.Closed:
		done.Err = &StoreError{failed.Err}
		v.sendRaiseFailed(p, e, c.Charges, done.Err)
		return done.Err
	case storeFailed:
		v.sendRaiseFailed(p, e, c.Charges, failed.Err)
		return nil
	case c.Lost != nil: // all limits are dry runs
		v.sendRaiseFailed(p, e, c.Lost.Charges, c.Lost.Err)
		return nil
	case done.Err != nil:
		e.setDecision(c)
		e.Decision.setCanceled()
	default:
		if v.events.destinations.storeFailed.Load() != 0 {
			v.events.writeRecovery()
		}
		(*version)(v).recordResults(c)
		if !done.Passed {
			done.Err = newDeniedOutsideHTTP((*version)(v), c)
		}
		e.setDecision(c)
	}
	v.events.send(permitObservers(p), &e)
	if done.Passed {
		v.events.sendNearLimits(of, c)
	}
	return done.Err
}

// sendRaiseFailed sends the event of a raise for which the store has failed, and logs the failure.
func (v *permitReporter) sendRaiseFailed(p *permit.Core, e Event, charges []store.Charge, err error) {
	e.Err = err
	e.setCharges(charges)
	e.Decision.Allowed = !errors.As(err, new(*StoreError))
	s := &v.events
	s.destinations.storeFailed.Store(time.Now().UnixNano())
	defer s.send(permitObservers(p), &e) // also if the log panics
	s.write(logs.StoreFailed, &e)
}

// Unsettled implements permit.Reporter.
func (v *permitReporter) Unsettled(p *permit.Core, s decide.Settlement) error {
	if len(s.Charges) == 0 {
		return &StoreError{s.Err}
	}
	return v.events.sendUnsettled(permitSubject(p), s)
}

// WrongCost implements permit.Reporter.
func (v *permitReporter) WrongCost(p *permit.Core, c store.Charge, err error) {
	v.events.sendSettleFailed(permitSubject(p), []store.Charge{c}, 0, err)
}

// LimitChanged implements permit.Reporter. The event is about a key, so the current observers of the limiter get it,
// instead of the observers at the beginning of the request.
func (v *permitReporter) LimitChanged(p *permit.Core, c *adaptive.Change) {
	e := permitSubject(p).event(EventLimitChanged, nil)
	e.Change = &LimitChange{
		Limit: c.Charge.Limit.Name(), From: c.From, To: c.To, Reason: AdaptiveReason(c.Reason),
		InFlight: c.InFlight, Latency: c.Latency, Baseline: c.Baseline,
	}
	v.events.sendAbout(v.events.observers(), &e, []store.Charge{c.Charge})
}

// Paced implements permit.Reporter.
func (v *permitReporter) Paced(p *permit.Core, b *read.Paced, moved respond.Moved) {
	e := permitSubject(p).event(EventPaced, nil)
	e.Request = p.Response.Request()
	e.setCharges([]store.Charge{{Key: b.Key, Limit: b.StoreLimit, DryRun: b.DryRun}})
	e.Pacing = &Pacing{
		Limit: b.Name(), Bytes: moved.Bytes, RequestBytes: moved.RequestBytes,
		Waited: moved.Waited, DryRun: b.DryRun, Err: moved.Err,
	}
	v.events.send(permitObservers(p), &e)
}

// Ended implements permit.Reporter.
func (v *permitReporter) Ended(p *permit.Core, took time.Duration) {
	e := permitSubject(p).event(EventEnded, nil)
	e.StoreTook = took
	if p.Times != nil {
		e.Waited, e.Held = p.Times.Waited, p.Times.Held
	}
	if p.Response != nil {
		if got, ok := p.Response.Outcome(); ok {
			e.Status = got.Status
		}
	}
	v.sendDecision(p, &e)
}

// sendDecision sends an event with a permit's decision as it is now.
func (v *permitReporter) sendDecision(p *permit.Core, e *Event) {
	c := decide.Borrow()
	defer c.Free()
	p.Recall(c)
	v.events.sendDecision(permitObservers(p), e, c)
}
