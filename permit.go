package stint

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/store"
)

// Permit is a granted decision that is still open. All methods are safe for concurrent
// use. They may be called on a nil Permit, which stands for a request that nothing
// limited: it allows everything and holds nothing.
type Permit struct {
	ctx      context.Context // the request's, without the permit
	version  *version
	outer    *Permit   // of the next outer limiter, or nil
	holds    bool      // Done has something to release or settle
	http1    bool      // the request's connection may be upgraded to HTTP/2
	told     telling   // whether observers were notified of it
	class    uint8     // of priority, if some limit has slots
	state    uint32    // one of the states below, for atomic access, and above its bits which observers get its events
	plan     *plan     // nil outside HTTP
	story    *story    // nil if nothing needs it
	response *response // nil unless a limit needs it

	mu     sync.Mutex // guards the elements of grants
	grants []grant

	// fields are the values of the response's header fields, kept here to save an
	// allocation each.
	fields [2]string
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

// below returns which observers get the permit's events: see Event.below. It shares a word
// with the state, so that a permit of one limit fits into 256 bytes.
func (p *Permit) below() uint32 { return atomic.LoadUint32(&p.state) >> stateBits }

// telling is whether observers were notified that a permit was granted. If so, they are
// notified when it ends.
type telling uint8

const (
	untold telling = iota
	wholly
	plainly // to a BriefObserver in brief
)

// telling returns how observers are notified of a granted call.
func (c *call) telling() telling {
	switch {
	case !c.Timed:
		return untold
	case c.plain():
		return plainly
	}
	return wholly
}

// grant is a charge that one limit has granted.
type grant struct {
	entry  *entry
	key    string
	cost   int64 // that was charged
	result store.Result
}

// charge returns the charge that settles the grant at a cost.
func (g *grant) charge(cost int64) store.Charge {
	return store.Charge{Key: g.key, Limit: g.entry.limit, Cost: cost, DryRun: g.entry.dryRun, Receipt: g.result.Receipt}
}

// costs returns what the limit has cost the request so far.
func (g *grant) costs() int64 {
	if g.result.OK && g.entry.kind.whyUnsettled() == "" {
		if g.unknown() {
			return ^g.result.Receipt.Cost
		}
		return g.result.Receipt.Cost
	}
	return g.cost
}

// doubt records that the grant is being settled, or, called again, that it hasn't been. If
// neither that nor a result follows, it is unknown whether the store still has the
// receipt's charge, and the receipt isn't used again. It then holds the complement of its
// cost: below 0, which no charge costs, so that a permit needs no room to say so.
func (g *grant) doubt() { g.result.Receipt.Cost = ^g.result.Receipt.Cost }

// unknown reports whether a settlement of the grant may have been made or not.
func (g *grant) unknown() bool { return g.result.Receipt.Cost < 0 }

// reported reports whether the limit is a dry run that would have denied. Nothing was
// charged then.
func (g *grant) reported() bool { return g.entry.dryRun && !g.result.OK }

// These are permits with room for their grants, and for the request that carries the
// permit, so that all of it takes one allocation.
type (
	permit1 struct {
		Permit
		grants [1]grant
	}
	permit2 struct {
		Permit
		grants [2]grant
	}
	permit4 struct {
		Permit
		grants [4]grant
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
	carried4 struct {
		permit4
		request http.Request
	}
	carriedStoried struct {
		storied
		request http.Request
	}
)

// room makes a permit of n charges, with room for the request that carries it and for its
// story as far as these are asked for and part of the permit.
func room(n int, carried, told bool) (p *Permit, request *http.Request, s *story) {
	switch {
	case n == 0:
		return new(Permit), nil, nil
	case told && n <= 4 && carried:
		c := new(carriedStoried)
		c.Permit.grants = c.grants[:n:n]
		return &c.Permit, &c.request, &c.story
	case told && n <= 4:
		s := new(storied)
		s.Permit.grants = s.grants[:n:n]
		return &s.Permit, nil, &s.story
	case n == 1 && carried:
		c := new(carried1)
		c.Permit.grants = c.grants[:]
		return &c.Permit, &c.request, nil
	case n == 1:
		p := new(permit1)
		p.Permit.grants = p.grants[:]
		return &p.Permit, nil, nil
	case n == 2 && carried:
		c := new(carried2)
		c.Permit.grants = c.grants[:]
		return &c.Permit, &c.request, nil
	case n == 2:
		p := new(permit2)
		p.Permit.grants = p.grants[:]
		return &p.Permit, nil, nil
	case n <= 4 && carried:
		c := new(carried4)
		c.Permit.grants = c.grants[:n:n]
		return &c.Permit, &c.request, nil
	case n <= 4:
		p := new(permit4)
		p.Permit.grants = p.grants[:n:n]
		return &p.Permit, nil, nil
	}
	return &Permit{grants: make([]grant, n)}, nil, nil
}

// permit makes the permit of a granted call. next is the request for the next handler:
// a copy of the call's that carries the permit, or the call's own.
func (c *call) permit(ctx context.Context) (p *Permit, next *http.Request) {
	tells := c.needs&(local|slots) != 0 && c.Timed
	carries := c.r != nil && !c.version.withoutPermit && c.r.Method != preface
	p, next, s := room(len(c.Charges), carries, tells)
	p.story = s
	for i := range p.grants {
		g, ch := &p.grants[i], &c.Charges[i]
		g.entry, g.key, g.cost, g.result = c.entries[i], ch.Key, ch.Cost, c.Results[i]
	}
	p.ctx, p.version, p.outer = ctx, c.version, c.outer
	p.state = open | c.below<<stateBits
	p.class, p.plan = c.class, c.plan
	p.http1 = c.r != nil && c.r.ProtoMajor == 1
	if c.needs != 0 {
		p.holds, p.response = c.needs&releases != 0, c.newResponse()
	}
	if tells || c.needs&local != 0 || c.Waited > 0 || len(c.Seen) > 0 {
		if p.story == nil {
			p.story = new(story)
		}
		s = p.story
		s.waited, s.seen, s.since, s.learns = c.Waited, c.Seen, clock.Now(), c.needs&local != 0
	}
	if c.Timed && c.Granted {
		p.told = c.telling()
	}
	switch {
	case !carries:
		return p, c.r
	case next != nil:
		*next = *c.r.WithContext((*permitContext)(p)) // inlined, the copy in between is on the stack
		return p, next
	}
	return p, c.r.WithContext((*permitContext)(p))
}

// preface is the method of the request that net/http takes the first line of an HTTP/2
// connection for (RFC 9113 §3.4). x/net's h2c takes such a connection over, and the
// contexts of all its requests descend from that of the preface: none of them has been
// charged.
const preface = "PRI"

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

// FromContext returns the permit of the request, or nil. If the request has passed
// several limiters, it is the innermost one's, whose Decision and Settle also cover the
// limits of the outer ones.
func FromContext(ctx context.Context) *Permit {
	p, _ := ctx.Value(permitKey{}).(*Permit)
	return p
}

// pass runs the next handler with req, which permit has returned for r. A nil Permit
// passes r on.
func (p *Permit) pass(w http.ResponseWriter, r, req *http.Request, next func(http.ResponseWriter, *http.Request)) {
	if p == nil {
		next(w, req)
		return
	}
	defer p.Done()
	if p.response != nil {
		req = p.response.Next(req, req != r)
		w = p.response.Writer(w)
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
	c := calls.Get().(*call)
	defer c.end(context.Background())
	var passed []*Permit // the outermost comes last
	for q := p; q != nil; q = q.outer {
		passed = append(passed, q)
	}
	for _, q := range slices.Backward(passed) {
		q.mu.Lock()
		c.recall(q.grants)
		q.mu.Unlock()
	}
	var d Decision
	d.decide(c.entries, c.Charges, c.Results, make([]LimitStatus, len(c.Results)))
	d.Delay = 0
	rest, waited := d.Limits, time.Duration(0)
	for q := p; q != nil; q = q.outer {
		own := rest[len(rest)-len(q.grants):]
		rest = rest[:len(rest)-len(q.grants)]
		if q.story != nil {
			waited += q.story.waited
			d.add(waited, q.story.seen, own)
		}
	}
	return d
}

// has reports whether is is true for a limit, and the key it has there, that p or a permit
// further out has charged. Settle may be changing the results of grants, so a grant isn't
// copied here.
func (p *Permit) has(is func(p *Permit, e *entry, key string) bool) bool {
	for ; p != nil; p = p.outer {
		for i := range p.grants {
			if g := &p.grants[i]; is(p, g.entry, g.key) {
				return true
			}
		}
		for _, of := range p.paced() {
			if is(p, of.entry, of.key) {
				return true
			}
		}
	}
	return false
}

// recall adds grants to a call, as if it had just been granted them.
func (c *call) recall(grants []grant) {
	for i := range grants {
		g := &grants[i]
		c.entries, c.Charges, c.Results = append(c.entries, g.entry), append(c.Charges, g.charge(g.costs())), append(c.Results, g.result)
	}
}

// Done ends the permit: it releases the slots of concurrency limits, even if the
// request's context has ended. What rates and quotas were charged stays charged, unless
// a WithSettle says otherwise. Defer it, so that it runs when a handler panics. Calling
// it again does nothing.
func (p *Permit) Done() {
	if p == nil || !p.holds && p.told == untold {
		return
	}
	handed := !p.become(over)
	if handed && !p.returns() {
		return
	}
	if !p.holds {
		p.observeEnd(0)
		return
	}
	if p.learns() || p.response != nil {
		// Done is deferred, so it sees a handler's panic. It passes the panic on.
		if v := recover(); v != nil {
			p.recordPanic(v)
			defer panic(v)
		}
	}
	if handed {
		p.response.Seal()
		if p.response.ends.Add(1) < 2 {
			return
		}
	}
	p.release()
}

// release gives the slots back and makes the final settlements. Code that may panic runs
// before that or after it, never in between: WithSettle functions and writes to the client
// before, observers after, when everything is done and no lock is held.
func (p *Permit) release() {
	var amends []amend
	defer func() {
		c := calls.Get().(*call)
		defer c.end(context.Background())
		var changes []adaptive.Change
		if p.response == nil || !p.response.freed {
			changes = p.releaseSlots(c)
		}
		if p.response != nil && p.response.pacing != nil {
			c.Charges = append(c.Charges, p.response.pacing.End()...)
		}
		released := p.observeRelease(changes, p.finish(c, amends))
		p.observePaced()
		p.observeEnd(released)
	}()
	amends = p.amends()
	p.push(amends)
}

// releaseSlots releases what the process holds for the permit, and returns the limits that have
// changed by that. It adds the charges that release the permit's slots in the store to c.
func (p *Permit) releaseSlots(c *call) (changes []adaptive.Change) {
	for i := range p.grants {
		g := &p.grants[i]
		g.entry.hold(p.version.lines, g.key, g.cost, p.class, -1)
		if p.told != untold && g.entry.needs&(slots|local) != 0 {
			p.story.held = clock.Since(p.story.since)
		}
	}
	if p.response != nil {
		p.response.freed = true
	}
	if p.learns() {
		changes = p.endTiming()
	}
	c.addReleases(p)
	return changes
}

// observeRelease notifies the observers of the outcome of a release, and returns how long
// the store took if it only released slots.
func (p *Permit) observeRelease(changes []adaptive.Change, end ending) (released time.Duration) {
	for i := range changes {
		p.observeLimitChange(&changes[i])
	}
	switch {
	case end.err != nil:
		p.version.observeSettleFailed(p.plan, end.charges, end.took, end.err)
	case end.settled:
		p.observeSettled(end.took)
	default:
		released = end.took
	}
	return released
}

// observeEnd notifies the observers that the permit's request has ended.
func (p *Permit) observeEnd(took time.Duration) {
	if p.told != untold && !p.version.notifyEnd(p.told, p.below()) {
		p.sendEnd(took)
	}
}

// sendEnd sends the event of the request's end.
func (p *Permit) sendEnd(took time.Duration) {
	e := &Event{Kind: EventEnded, StoreTook: took, plain: p.told == plainly}
	if p.story != nil {
		e.Waited, e.Held = p.story.waited, p.story.held
	}
	if p.response != nil {
		if got, ok := p.response.Outcome(); ok {
			e.Status = got.Status
		}
	}
	p.tell(e)
}

// tell sends an event about the permit's request, with its decision as it is now.
func (p *Permit) tell(e *Event) {
	c := calls.Get().(*call)
	defer c.end(context.Background())
	c.version, c.plan, c.below = p.version, p.plan, p.below()
	p.mu.Lock()
	c.recall(p.grants)
	p.mu.Unlock()
	if p.story != nil {
		c.Waited, c.Seen, c.walked = p.story.waited, p.story.seen, true
	}
	c.Took = e.StoreTook
	c.tell(e)
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
	if p == nil || !p.holds && p.told == untold || !p.become(detached) {
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
	if !p.response.returned.Load() {
		c := calls.Get().(*call)
		defer c.end(context.Background())
		changes := p.releaseSlots(c)
		p.observeRelease(changes, p.finish(c, nil))
	}
	if p.response.ends.Add(1) == 2 {
		p.release()
	}
}
