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
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Permit is a granted decision that is still open. All methods are safe for concurrent
// use. They may be called on a nil Permit, which stands for a request that nothing
// limited: it allows everything and holds nothing.
type Permit struct {
	ctx      context.Context // the request's, without the permit
	version  *version
	outer    *Permit      // of the next outer limiter, or nil
	releases bool         // Done has something to release or settle
	http1    bool         // the request's connection may be upgraded to HTTP/2
	notified notification // how observers were notified of it, and will be of its end
	class    uint8        // of priority, if some limit has slots
	state    uint32       // one of the states below, for atomic access, and above its bits observersBefore
	plan     *read.Plan   // nil outside HTTP
	story    *story       // nil if nothing needs it
	response *response    // nil unless a limit needs it

	grants decide.Grants // what it owns until it is done
}

// The states of a permit.
const (
	open uint32 = iota
	over        // Done has been called
	detached

	stateBits = 2
)

// become changes the state of an open permit, once.
func (p *Permit) become(next uint32) bool {
	was := atomic.LoadUint32(&p.state)
	return was&(1<<stateBits-1) == open && atomic.CompareAndSwapUint32(&p.state, was, was|next)
}

func (p *Permit) detached() bool { return atomic.LoadUint32(&p.state)&(1<<stateBits-1) == detached }

// observersBefore says which observers get the permit's events: see Event.observersBefore. It
// shares a word with the state, so that a permit of one limit and its request fit into 512 bytes.
func (p *Permit) observersBefore() uint32 { return atomic.LoadUint32(&p.state) >> stateBits }

// These are permits with room for their grants, and for the request that carries the
// permit, so that all of it takes one allocation.
type (
	permit1 struct {
		Permit
		grants [1]decide.Grant
	}
	permit2 struct {
		Permit
		grants [2]decide.Grant
	}
	permit3 struct {
		Permit
		grants [3]decide.Grant
	}
	permit4 struct {
		Permit
		grants [4]decide.Grant
	}
	storied struct { // for observers, if the permit holds slots
		permit4
		story story
	}
	carried1 struct {
		permit1
		request http.Request
	}
	carried2 struct {
		permit2
		request http.Request
	}
	carried3 struct {
		permit3
		request http.Request
	}
	carried4 struct {
		permit4
		request http.Request
	}
	carriedStoried struct {
		storied
		request http.Request
	}
)

// permitOf makes a permit of n charges, with room for its grants, and for the request that
// carries it and for its story as far as these are asked for and part of the permit.
func permitOf(n int, carried, told bool) (p *Permit, room []decide.Grant, request *http.Request, s *story) {
	switch {
	case n == 0:
		return new(Permit), nil, nil, nil
	case told && n <= 4 && carried:
		c := new(carriedStoried)
		return &c.Permit, c.grants[:n:n], &c.request, &c.story
	case told && n <= 4:
		s := new(storied)
		return &s.Permit, s.grants[:n:n], nil, &s.story
	case n == 1 && carried:
		c := new(carried1)
		return &c.Permit, c.grants[:], &c.request, nil
	case n == 1:
		p := new(permit1)
		return &p.Permit, p.grants[:], nil, nil
	case n == 2 && carried:
		c := new(carried2)
		return &c.Permit, c.grants[:], &c.request, nil
	case n == 2:
		p := new(permit2)
		return &p.Permit, p.grants[:], nil, nil
	case n == 3 && carried:
		c := new(carried3)
		return &c.Permit, c.grants[:], &c.request, nil
	case n == 3:
		p := new(permit3)
		return &p.Permit, p.grants[:], nil, nil
	case n <= 4 && carried:
		c := new(carried4)
		return &c.Permit, c.grants[:n:n], &c.request, nil
	case n <= 4:
		p := new(permit4)
		return &p.Permit, p.grants[:n:n], nil, nil
	}
	return new(Permit), make([]decide.Grant, n), nil, nil
}

// opened reports whether r is a request of an HTTP/2 connection that the permit's request
// has been upgraded to, and so another request than the permit's.
func (p *Permit) opened(r *http.Request) bool { return p.http1 && r.ProtoMajor == 2 }

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

// FromContext returns the permit of the request, or nil. If the request has passed
// several limiters, it is the innermost one's, whose Decision and Settle also cover the
// limits of the outer ones.
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
	defer p.Done()
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

// Decision returns the decision of all limiters that the request has passed, updated by
// Settle. Limits has those of the outermost limiter first.
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
			d.addWaits(waited, q.story.seen, own)
		}
	}
	return d
}

// charged reports whether p or a permit further out, of the same family, has charged the
// limit of an entry for a key. Settle may be changing the results of grants, so a grant
// isn't copied here.
func (p *Permit) charged(by *compile.Registry, e *read.Entry, key string) bool {
	hash := e.Limit.Limit.Engine(engine.Access{}).Hash()
	for ; p != nil; p = p.outer {
		if p.version == nil || p.version.registry != by {
			continue
		}
		if p.grants.Charged(hash, key) {
			return true
		}
		for _, of := range p.paced() {
			if of.Limit.Limit.Engine(engine.Access{}).Hash() == hash && of.Key == key {
				return true
			}
		}
	}
	return false
}

// chargedIn reports whether p or a permit further out has charged the limit of an entry for a key
// in a store that limiters of several families use.
func (p *Permit) chargedIn(s store.Store, e *read.Entry, key string) bool {
	hash := e.Limit.Limit.Engine(engine.Access{}).Hash()
	for ; p != nil; p = p.outer {
		if p.version != nil && p.version.compiled.Lent && same(p.version.backend.Store, s) && p.grants.Charged(hash, key) {
			return true
		}
	}
	return false
}

// Done ends the permit: it releases the slots of concurrency limits, even if the
// request's context has ended. What rates and quotas were charged stays charged, unless
// a WithSettle says otherwise. Defer it, so that it runs when a handler panics. Calling
// it again does nothing.
func (p *Permit) Done() {
	if p == nil || !p.releases && p.notified == notNotified {
		return
	}
	last := p.become(over)
	if !last && !p.returns() {
		return // it has ended already, or its release ends it
	}
	if !p.releases {
		p.sendEnd(0)
		return
	}
	if p.learns() || p.response != nil {
		// Done is deferred, so it sees a handler's panic. It passes the panic on.
		if v := recover(); v != nil {
			p.recordPanic(v)
			defer panic(v)
		}
	}
	if !last { // detached: the handler has returned, and the release may have been called
		p.response.Seal()
		last = p.response.endsNow()
	}
	if last {
		p.release()
	}
}

// release gives the slots back and makes the final settlements. Code that may panic runs
// before that or after it, never in between: WithSettle functions and writes to the client
// before, observers after, when everything is done and no lock is held.
func (p *Permit) release() {
	var amends []decide.Amend
	defer func() {
		var changes []adaptive.Change
		leases := p.response == nil || !p.response.freed
		if leases {
			changes = p.releaseHere()
		}
		var unmoved []store.Charge
		if p.response != nil && p.response.pacing != nil {
			unmoved = p.response.pacing.End()
		}
		e := decide.Ending{Leases: leases, Unmoved: unmoved, Amends: amends, ByHand: p.hand(), Timed: p.version.events.hasObservers()}
		p.grants.End((*withoutCancel)(p), p.version.backend, e, func(end decide.Settlement) {
			released := time.Duration(0)
			defer func() { p.sendEnd(released) }() // if an observer panics, too
			defer p.sendPaced()
			released = p.sendRelease(changes, end)
		})
	}()
	amends = p.amends()
	p.push(amends)
}

// releaseHere releases what the process counts for the permit, and returns the limits that
// have changed by that.
func (p *Permit) releaseHere() []adaptive.Change {
	if p.notified != notNotified && p.story != nil && !p.story.since.IsZero() {
		p.story.held = time.Since(p.story.since)
	}
	if p.response != nil {
		p.response.freed = true
	}
	var learned *adaptive.Sample
	if p.learns() {
		learned = p.endLearning()
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
func (p *Permit) subject() subject { return subject{p.plan.Route(), nil, p.observersBefore()} }

// event returns an event about the permit's request.
func (p *Permit) event(kind EventKind) Event { return p.subject().event(kind, nil) }

// sendEnd notifies the observers that the permit's request has ended.
func (p *Permit) sendEnd(took time.Duration) {
	p.version.events.sendEnd(p.notified, p.observersBefore(), func(briefed bool) { p.sendEnded(took, briefed) })
}

// sendEnded sends the event of the request's end.
func (p *Permit) sendEnded(took time.Duration, briefed bool) {
	e := p.event(EventEnded)
	e.StoreTook, e.briefed = took, briefed
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
		c.Waited, c.Seen = p.story.waited, p.story.seen
	}
	p.version.events.sendDecision(e, c)
}

// Detach transfers the release of the permit's slots to the caller: Done doesn't release
// them, and the returned function does. Use it in handlers that return while their
// connection lives on, as after a Hijack, or their work does:
//
//	release := stint.FromContext(r.Context()).Detach()
//	go func() { defer release(); serve(conn) }()
//
// The function may be called on any goroutine, while the handler runs or later. What
// depends on the response (WithSettle, a Bandwidth) is settled when both the handler has
// returned and release has been called. After Done, Detach returns a function that does
// nothing.
func (p *Permit) Detach() (release func()) {
	if p == nil || !p.releases && p.notified == notNotified || !p.become(detached) {
		return func() {}
	}
	if p.learns() {
		p.story.outcome.Show(adaptive.Ignored) // how long a connection lives says nothing
	}
	if p.response != nil {
		return sync.OnceFunc(p.releaseDetached)
	}
	return sync.OnceFunc(p.release)
}

// releaseDetached releases a detached permit with a response. While the handler runs,
// only the handler's goroutine may look at that.
func (p *Permit) releaseDetached() {
	defer func() { // also if an observer panics
		if p.response.endsNow() {
			p.release()
		}
	}()
	if !p.response.returned.Load() {
		changes := p.releaseHere()
		e := decide.Ending{Leases: true, Timed: p.version.events.hasObservers()}
		p.grants.End((*withoutCancel)(p), p.version.backend, e, func(end decide.Settlement) {
			p.sendRelease(changes, end)
		})
	}
}
