package stint

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// Permit is a granted decision that is still open. All methods are safe for concurrent use.
// They may be called on a nil Permit, which stands for a request without limits: it allows
// everything and holds nothing.
type Permit struct {
	ctx      context.Context // the request's, without the permit
	version  *version
	outer    *Permit       // of the next outer limiter, or nil
	to       *audience     // gets its events, or nil
	told     bool          // that the request is admitted, so the end will be told, too
	releases bool          // its end has something to release or settle
	class    uint8         // of priority, if some limit has slots
	state    atomic.Uint32 // of its end, in the bits below
	plan     *read.Plan    // nil outside HTTP
	story    *story        // nil if nothing needs it
	response *response     // nil unless a limit needs it

	grants decide.Grants // what it owns until it is done

	room    [2]decide.Grant // for the grants of most requests
	carrier *http.Request   // the request that carries the permit, or nil
}

// carried is a permit with the request that carries it, so that both take one allocation.
type carried struct {
	Permit
	request http.Request
}

// How far the end of a permit has come.
const (
	claimed  uint32 = 1 << iota // somebody releases its slots, now or later
	released                    // nothing is held any more
	returned                    // the handler has returned, and what its response shows is settled
)

// claim makes the caller the one who releases the permit, unless there is one already.
func (p *Permit) claim() bool { return p.state.Or(claimed)&claimed == 0 }

// over records that parts of the end are over, and reports whether the permit is at its end by that.
func (p *Permit) over(parts uint32) bool {
	return p.response == nil || (p.state.Or(parts)|parts)&(released|returned) == released|returned
}

// opened reports whether r is a request of an HTTP/2 connection that the permit's request has
// become, and so another request than the permit's. The contexts of all of them descend from that
// of the one that opened the connection. Which version a request says it has isn't enough: a
// handler in between may have changed it.
func (p *Permit) opened(r *http.Request) bool {
	return r.ProtoMajor == 2 && upgrades(p.carrier) && !upgrades(r)
}

// upgrades reports whether a request asks for another protocol on its connection. x/net's h2c takes
// a connection over by an Upgrade, which no request of HTTP/2 has (RFC 9113 §8.2.2), or by the
// first line of HTTP/2, of which net/http makes a request (§3.4). This is net/http's own test for
// that; it has Close set on it, but not on a request of HTTP/2 in the same words.
func upgrades(r *http.Request) bool {
	return r.Method == "PRI" && len(r.Header) == 0 && r.URL.Path == "*" && r.Proto == "HTTP/2.0" && r.Close ||
		r.Header["Upgrade"] != nil
}

// permitContext is a Permit as the context that carries it.
type permitContext Permit

type permitKey struct{}

func (c *permitContext) Deadline() (time.Time, bool) { return c.ctx.Deadline() }

func (c *permitContext) Done() <-chan struct{} { return c.ctx.Done() }

func (c *permitContext) Err() error { return c.ctx.Err() }

func (c *permitContext) Value(key any) any {
	if key == (permitKey{}) {
		return (*Permit)(c)
	}
	return c.ctx.Value(key)
}

// withoutCancel is the context of what is done when a permit's request is over: the request's
// own, as context.WithoutCancel would make it, without its allocation.
type withoutCancel Permit

func (*withoutCancel) Deadline() (none time.Time, ok bool) { return none, false }

func (*withoutCancel) Done() <-chan struct{} { return nil }

func (*withoutCancel) Err() error { return nil }

func (o *withoutCancel) Value(key any) any { return o.ctx.Value(key) }

// FromContext returns the permit of the request, or nil. If the request has passed several
// limiters, it is the permit of the innermost, whose Decision and Settle also cover the limits
// of the outer limiters.
func FromContext(ctx context.Context) *Permit {
	p, _ := ctx.Value(permitKey{}).(*Permit)
	return p
}

// pass runs the next handler with req, which admission.permit has returned for r. A nil Permit
// passes r on.
func (p *Permit) pass(w http.ResponseWriter, r, req *http.Request, next func(http.ResponseWriter, *http.Request)) {
	if p == nil {
		next(w, req)
		return
	}
	defer p.finish()
	if p.response != nil {
		w, req = p.response.around(w, req, req != r)
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

// Decision returns the decision of all limiters that the request has passed, updated by Settle.
// Limits begins with the limits of the outermost limiter.
func (p *Permit) Decision() Decision {
	if p == nil {
		return Decision{Allowed: true}
	}
	c := decide.Borrow()
	defer c.Free()
	var passed []*Permit // the outermost comes last
	for q := p; q != nil; q = q.outer {
		passed = append(passed, q)
	}
	for _, q := range slices.Backward(passed) {
		q.grants.Recall(c)
	}
	var d Decision
	d.addUp(c, make([]LimitStatus, len(c.Results)))
	d.Delay = 0
	rest, waited := d.Limits, time.Duration(0)
	for q := p; q != nil; q = q.outer {
		own := rest[len(rest)-q.grants.Len():]
		rest = rest[:len(rest)-q.grants.Len()]
		if q.story != nil {
			waited += q.story.waited
			d.addWaits(waited, q.story.inLines, own)
		}
	}
	return d
}

// charged reports whether p or a permit further out, of the same family, has charged the
// limit of an entry for a key. Settle may be changing the results of grants, so a grant
// isn't copied here.
func (p *Permit) charged(by *compile.Registry, e *read.Entry, key string) bool {
	hash := inside.Hash(e.StoreLimit)
	for ; p != nil; p = p.outer {
		if p.version == nil || p.version.registry != by {
			continue
		}
		if p.grants.Charged(hash, key) {
			return true
		}
		for _, of := range p.paced() {
			if inside.Hash(of.Limit.StoreLimit) == hash && of.Key == key {
				return true
			}
		}
	}
	return false
}

// Done releases the slots of concurrency limits, even if the request's context has ended. What
// rates and quotas were charged stays charged. It also releases the slots of the outer limiters
// that the request has passed. Calling it again does nothing.
//
// Outside HTTP, Done ends the permit: defer it, so that it also runs when the work panics. In a
// handler it isn't needed: the limiter ends the permit when the handler has returned or
// panicked. A handler may call it earlier, on any goroutine, to release slots early. A
// WithSettle and a Bandwidth depend on the response, so they are settled only when the handler
// has returned. An AdaptiveConcurrency then measures how long the slot was held, without the
// status.
func (p *Permit) Done() {
	if p.learnsAnywhere() {
		// Done is deferred, so it sees a panic. It passes the panic on.
		if v := recover(); v != nil {
			p.recordEnding((*adaptive.Outcome).Show, endingBy(v))
			defer panic(v)
		}
	}
	p.release()
}

// release ends p and the permits further out, or releases their slots, unless that is done already
// or left to the function that Detach has returned.
func (p *Permit) release() {
	if p == nil {
		return
	}
	defer p.outer.release() // also if an observer panics
	if p.ends() && p.claim() {
		p.end(released)
	}
}

// ends reports whether anything is to be done at the permit's end.
func (p *Permit) ends() bool { return p.releases || p.told }

// finish ends the permit when its handler has returned or panicked. It is deferred.
func (p *Permit) finish() {
	if !p.ends() {
		return
	}
	if p.learns() || p.response != nil {
		if v := recover(); v != nil {
			p.recordPanic(v)
			defer panic(v)
		}
	}
	parts := uint32(0)
	if p.response != nil {
		parts = returned
	}
	if p.claim() {
		parts |= released
	}
	if parts != 0 {
		p.end(parts)
	}
}

// end releases the slots (released), or makes the final settlements (returned), or both in one call
// of the store. Code that may panic runs before that or after it, never in between: WithSettle
// functions and writes to the client before, observers after, when everything is done and no lock is
// held. Only the goroutine of the handler looks at the response, when that has returned.
func (p *Permit) end(parts uint32) {
	if !p.releases {
		p.sendEnd(0)
		return
	}
	var amends []decide.Amend
	defer func() {
		e := decide.Ending{Leases: parts&released != 0, Timed: p.to != nil}
		var changes []adaptive.Change
		if e.Leases {
			changes = p.releaseHere(parts&returned != 0)
		}
		if parts&returned != 0 {
			p.response.Seal()
			e.Amends, e.ByHand, e.Unmoved = amends, &p.response.byHand, p.response.unmoved()
		}
		p.grants.End((*withoutCancel)(p), p.version.backend, e, func(done decide.Settlement) {
			took := time.Duration(0)
			defer func() { // if an observer panics, too
				if p.over(parts) {
					p.sendEnd(took)
				}
			}()
			if parts&returned != 0 {
				defer p.sendPaced()
			}
			took = p.sendRelease(changes, done)
		})
	}()
	if parts&returned != 0 {
		amends = p.amends()
		p.push(amends)
	}
}

// releaseHere releases what the process counts for the permit, and returns the limits that
// have changed by that. answered says that the response may be looked at.
func (p *Permit) releaseHere(answered bool) []adaptive.Change {
	if p.told && p.story != nil && !p.story.since.IsZero() {
		p.story.held = time.Since(p.story.since)
	}
	var learned *adaptive.Sample
	if p.learns() {
		learned = p.endLearning(answered)
	}
	return p.grants.ReleaseHere(p.version.backend, p.class, p.learns(), learned)
}

// sendRelease notifies the observers of the outcome of a release, and returns how long
// the store took if it only released slots.
func (p *Permit) sendRelease(changes []adaptive.Change, end decide.Settlement) (released time.Duration) {
	for i := range changes {
		p.sendLimitChange(&changes[i])
	}
	switch {
	case end.Err != nil:
		p.version.events.sendUnsettled(p.subject(), end)
	case end.Amended:
		p.sendSettled(end.Took)
	default:
		released = end.Took
	}
	return released
}

// subject returns the subject of the permit's events. Its request belongs to the server by then.
func (p *Permit) subject() subject { return subject{p.plan.Route(), nil, p.to} }

// event returns an event about the permit's request.
func (p *Permit) event(kind EventKind) Event { return p.subject().event(kind, nil) }

// sendEnd notifies the observers that the permit's request has ended, if they were told of it.
func (p *Permit) sendEnd(took time.Duration) {
	if !p.told {
		return
	}
	e := p.event(EventEnded)
	e.StoreTook = took
	if p.story != nil {
		e.Waited, e.Held = p.story.waited, p.story.held
	}
	if p.response != nil {
		if got, ok := p.response.Outcome(); ok {
			e.Status = got.Status
		}
	}
	p.sendDecision(&e)
}

// sendDecision sends an event about the permit's request, with its decision as it is now.
func (p *Permit) sendDecision(e *Event) {
	c := decide.Borrow()
	defer c.Free()
	p.grants.Recall(c)
	if p.story != nil {
		c.Waited, c.LineWaits = p.story.waited, p.story.inLines
	}
	p.version.events.sendDecision(p.to, e, c)
}

// Detach transfers the release of the permit's slots to the caller: only the returned function
// releases them, including the slots of the outer limiters that the request has passed. Use it
// in handlers that return before their work is done:
//
//	release := stint.FromContext(r.Context()).Detach()
//	go func() { defer release(); work() }()
//
// The function may be called on any goroutine, while the handler runs or later. A WithSettle and a
// Bandwidth depend on the response, so they are settled when the handler has returned. After Done,
// Detach returns a function that does nothing.
//
// After a Hijack, Detach isn't needed if the request has an Upgrade field or is a CONNECT: its
// slots are held until the handler closes the net.Conn that Hijack has returned. The slots of
// any other hijacked request are released when the handler returns.
func (p *Permit) Detach() (release func()) {
	var all []*Permit
	for q := p; q != nil; q = q.outer {
		if q.detach() {
			all = append(all, q)
		}
	}
	return sync.OnceFunc(func() {
		for _, q := range all {
			defer q.end(released) // also if an observer panics
		}
	})
}

// hold makes the permit end when a connection that its handler has taken over is closed. Outer
// permits see to that themselves.
func (p *Permit) hold() (closed func()) {
	if !p.detach() {
		return func() {}
	}
	return sync.OnceFunc(func() { p.end(released) })
}

// detach makes the caller the one who releases the permit, and reports whether there is anything to
// release.
func (p *Permit) detach() bool {
	if !p.ends() || !p.claim() {
		return false
	}
	if p.learns() {
		p.story.outcome.Show(adaptive.Ignored) // how long a connection lives says nothing
	}
	return true
}

// response is a permit's observation of the response to its request. A permit has one only
// if a limit needs it; other ResponseWriters aren't wrapped.
type response struct {
	respond.Watched
	pacing *lanes // nil if no Bandwidth paces the response
	byHand decide.Hand
	// settlers make the charges cost what the response shows: an element for each, or none.
	settlers []*read.Settler
}

// unmoved ends the pacing, and returns the charges that give back bytes that were paid for and
// haven't moved.
func (s *response) unmoved() []store.Charge {
	if s.pacing == nil {
		return nil
	}
	return s.pacing.End()
}

// around returns what the next handler gets for w and r: watched, and paced if a Bandwidth
// says so. own says that r is already a copy.
func (s *response) around(w http.ResponseWriter, r *http.Request, own bool) (http.ResponseWriter, *http.Request) {
	if s.pacing != nil {
		return s.pacing.Writer(w), s.pacing.Next(r, own)
	}
	return s.Writer(w), s.Next(r)
}

// push sends a complete response to the client before the store is called for amends or
// for unsent bytes, so that the client doesn't wait for the store.
func (p *Permit) push(amends []decide.Amend) {
	if s := p.response; s != nil && (len(amends) > 0 || s.pacing != nil) {
		s.PushBefore(p.version.backend.Store)
	}
}

// recordPanic records a handler's panic for adaptive limits and for WithSettle.
func (p *Permit) recordPanic(v any) {
	if p.learns() {
		p.story.outcome.Show(endingBy(v))
	}
	if p.response != nil {
		p.response.RecordPanic(v == http.ErrAbortHandler)
	}
}

// endingBy returns what adaptive limits learn from a panic.
func endingBy(v any) adaptive.Ending {
	if v == http.ErrAbortHandler {
		return adaptive.Ignored
	}
	return adaptive.Failed
}

// story is what happens to a permit's request: how it has waited, how long it holds slots, and what
// adaptive limits learn from it. It changes until the permit ends. A permit of which nobody asks
// these things has none.
type story struct {
	waited  time.Duration
	inLines []decide.LineWait
	since   time.Time     // when it was admitted
	held    time.Duration // how long it held slots, once they are released
	learns  bool          // whether an AdaptiveConcurrency learns from it
	outcome adaptive.Outcome
}

// learns reports whether an AdaptiveConcurrency learns from the request.
func (p *Permit) learns() bool { return p.story != nil && p.story.learns }

// learnsAnywhere is learns for all limiters that the request has passed.
func (p *Permit) learnsAnywhere() bool {
	for ; p != nil; p = p.outer {
		if p.learns() {
			return true
		}
	}
	return false
}

// Drop reports that the request failed for lack of capacity, for instance because a backend was
// overloaded or timed out. An AdaptiveConcurrency cuts its limit if at least one request in
// twenty is dropped. Drop applies to all limiters that the request has passed. It has no effect
// after Done or without an AdaptiveConcurrency.
func (p *Permit) Drop() { p.recordEnding((*adaptive.Outcome).Report, adaptive.Dropped) }

// Ignore reports that the request's duration isn't related to the service's load, for instance
// because the request waited for an event. An AdaptiveConcurrency leaves it out of its
// measurements. Ignore applies to all limiters that the request has passed. It has no effect
// after Done or without an AdaptiveConcurrency.
func (p *Permit) Ignore() { p.recordEnding((*adaptive.Outcome).Report, adaptive.Ignored) }

// recordInnerDenial records that an inner limiter has denied: the response then says nothing
// about the work.
func (p *Permit) recordInnerDenial() { p.recordEnding((*adaptive.Outcome).Show, adaptive.Ignored) }

// recordEnding records how the request ends, for all limiters that it has passed.
func (p *Permit) recordEnding(by func(*adaptive.Outcome, adaptive.Ending), e adaptive.Ending) {
	for ; p != nil; p = p.outer {
		if p.learns() {
			by(&p.story.outcome, e)
		}
	}
}

// sample returns what was observed of the request, or nil. Outside HTTP its context
// says nothing: it may have bounded the wait and ended before the work.
func (p *Permit) sample() *adaptive.Sample {
	took, err := time.Since(p.story.since), p.ctx.Err()
	switch {
	case p.response == nil:
		err = nil
	case p.response.pacing != nil:
		took -= p.response.pacing.Delayed()
	}
	return p.story.outcome.Sample(took, err)
}

// endLearning ends the observation of the request, and returns what was observed. answered says that
// the response may be looked at.
func (p *Permit) endLearning(answered bool) *adaptive.Sample {
	if answered && p.story.outcome.Open() {
		switch got, ok := p.response.Outcome(); {
		case !ok:
		case got.Hijacked:
			p.story.outcome.Show(adaptive.Ignored) // the duration is that of a connection, not of a request
		case got.Status >= http.StatusInternalServerError:
			p.story.outcome.Show(adaptive.Failed)
		}
	}
	return p.sample()
}

// sendLimitChange notifies the observers that a limit has changed.
func (p *Permit) sendLimitChange(c *adaptive.Change) {
	e := p.event(EventLimitChanged)
	e.Change = &LimitChange{
		Limit: c.Charge.Limit.Name(), From: c.From, To: c.To, Reason: AdaptiveReason(c.Reason),
		InFlight: c.InFlight, Latency: c.Latency, Baseline: c.Baseline,
	}
	to := p.version.events.observers() // it is about a key, not about the request
	p.version.events.sendAbout(to, &e, []store.Charge{c.Charge})
}

// lanes are the Bandwidths that pace a response.
type lanes struct {
	respond.Paced
	all []read.Paced
}

// payer returns what a paced response charges its bytes with: the version's store.
func payer(v *version, of subject) respond.Payer {
	return respond.Payer{
		Store: v.backend.Store, Lines: &v.backend.Lines.Turns,
		GiveBack: func(ctx context.Context, charges []store.Charge) []store.Result {
			return giveBack(ctx, v, of, charges)
		},
		StoreFailed: func(charges []store.Charge, err error, cut bool) error {
			if cut {
				err = &StoreError{err}
			}
			e := of.event(EventStoreFailed, err)
			v.events.sendAbout(of.to, &e, charges)
			return err
		},
	}
}

func byteLimitsOf(all []read.Paced) []respond.ByteLimit {
	limits := make([]respond.ByteLimit, len(all))
	for i := range all {
		limits[i] = byteLimitOf(&all[i])
	}
	return limits
}

// byteLimitOf returns p as package respond takes it.
func byteLimitOf(p *read.Paced) respond.ByteLimit {
	return respond.ByteLimit{
		Limit: p.StoreLimit, Key: p.Key, Block: p.Bytes.Block, Piece: p.Bytes.Piece,
		Responses: p.Bytes.Responses, Requests: p.Bytes.Requests, DryRun: p.DryRun, Closed: p.Closed,
	}
}

// sendPacing sends what has moved under one of the Bandwidths.
func (p *Permit) sendPacing(of *read.Paced, got respond.Moved) {
	e := p.event(EventPaced)
	e.Request = p.response.Request()
	e.about([]store.Charge{{Key: of.Key, Limit: of.Limit.StoreLimit, DryRun: of.DryRun}})
	e.Pacing = &Pacing{
		Limit: of.Name(), Bytes: got.Bytes, RequestBytes: got.RequestBytes,
		Waited: got.Waited, DryRun: of.DryRun, Err: got.Err,
	}
	p.version.events.send(p.to, &e)
}

// paced returns the Bandwidths that pace the response.
func (p *Permit) paced() []read.Paced {
	if p.response == nil || p.response.pacing == nil {
		return nil
	}
	return p.response.pacing.all
}

// sendPaced notifies the observers how the response was paced.
func (p *Permit) sendPaced() {
	s := p.response
	if s == nil || s.pacing == nil || p.to == nil {
		return
	}
	if _, ok := s.Outcome(); !ok {
		return
	}
	for i := range s.pacing.all {
		of := &s.pacing.all[i]
		p.sendPacing(of, s.pacing.Moved(byteLimitOf(of)))
	}
}
