// Package permit implements stint.Permit. A permit holds what a request or a job was granted, until it ends.
//
// A permit has two parts, which end separately:
//
//   - The slots are released by the first of Done, the function of Detach, the close of a hijacked connection, and
//     the return of the handler. The first claims them, and only the claimant releases them.
//   - The response is settled when the handler returns, because only the handler's goroutine may access it. A job has
//     no response. Nor has a request if no limit depends on its response.
//
// These are the states of a permit with a response:
//
//	state     slots     response
//	running   held      open
//	detached  claimed   open      after Detach, or while Done releases the slots
//	released  released  open
//	returned  claimed   settled   the handler returned before the slots were released
//	ended     released  settled
//
// These are the moves between them. In any other state, a move does nothing:
//
//	from      to        move
//	running   detached  Done, Detach or a hijack claims the slots
//	running   ended     the handler returns; one call of the store releases the slots and settles the response
//	detached  released  the claimant has released the slots
//	detached  returned  the handler returns
//	released  ended     the handler returns
//	returned  ended     the claimant has released the slots
//
// A permit without a response ends when its slots are released. The move that ends a permit reports its end, once, to
// the [Reporter].
package permit

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// Issuer is what all permits of one version of a limiter share.
type Issuer struct {
	Backend  *decide.Backend
	Reporter Reporter
}

// Reporter is notified of what happens to permits. No lock is held while its methods are called. They may panic: the
// permit ends all the same.
type Reporter interface {
	// LimitChanged reports that the end of a permit has changed an adaptive limit.
	LimitChanged(*Core, *adaptive.Change)
	// Settled reports that a settlement has changed the cost of a permit. Its slices are valid until Settled returns.
	Settled(*Core, decide.Settlement)
	// Unsettled reports that the store has failed to settle a permit, and returns the error for the caller of
	// Settle. If there are no charges, the store wasn't called, and only the caller needs to know.
	Unsettled(*Core, decide.Settlement) error
	// WrongCost reports that a function of WithSettle has returned a cost that is out of range.
	WrongCost(*Core, store.Charge, error)
	// Extended reports the outcome of a raise for which the store was asked, which the call has, and returns the error
	// for the caller of Extend.
	Extended(*Core, *decide.Call, decide.Raised) error
	// Paced reports how many bytes a Bandwidth let through, when the response is settled.
	Paced(*Core, *read.Paced, respond.Moved)
	// Ended reports the end of a permit, and how long the store took if it only released slots.
	Ended(p *Core, took time.Duration)
}

// Core is a permit. Only Grants, Times and Response change after it was made. A nil Core stands for a request that has
// passed no limiter.
type Core struct {
	Context   context.Context // the request's, without the permit
	Issuer    *Issuer         // nil if nothing was decided
	Outer     *Core           // of the next limiter further out that the request has passed, or nil
	Observers any             // of its events, for the Reporter; nil if there are none
	Plan      *read.Plan      // nil outside HTTP
	Response  *Response       // nil unless a limit needs it
	Times     *Times          // nil unless a limit or an observer needs them

	// Releases: at the end there is something to release or to settle.
	Releases bool
	// AdmissionSent: observers were notified that the request is admitted, so they are notified of its end.
	AdmissionSent bool
	Class         uint8 // of priority, if a limit has slots

	state state
	// Grants own what was granted.
	Grants decide.Grants
}

// state is a set of the bits below.
type state struct{ bits atomic.Uint32 }

const (
	claimed  uint32 = 1 << iota // one caller releases the slots, now or later
	released                    // the slots are released
	settled                     // the response is settled
)

// claim claims the slots: the caller will release them. It reports false if they are claimed already.
func (s *state) claim() bool { return s.bits.Or(claimed)&claimed == 0 }

// complete records that parts are done, and reports whether both are.
func (s *state) complete(parts uint32) (ended bool) {
	const both = released | settled
	return (s.bits.Or(parts)|parts)&both == both
}

// hasEnd reports whether anything is to be done at the permit's end.
func (p *Core) hasEnd() bool { return p.Releases || p.AdmissionSent }

// Done releases the slots of p and of the permits further out, except those that another caller has claimed.
func (p *Core) Done() {
	if p == nil {
		return
	}
	defer p.Outer.Done() // also if the Reporter panics
	if p.claim() {
		p.end(released)
	}
}

// Detach claims the slots of p and of the permits further out. The function that it returns releases them.
func (p *Core) Detach() (release func()) {
	var all []*Core
	for ; p != nil; p = p.Outer {
		if p.detach() {
			all = append(all, p)
		}
	}
	return sync.OnceFunc(func() {
		for _, q := range all {
			defer q.end(released) // also if the Reporter panics
		}
	})
}

// Hold claims the permit's slots until a hijacked connection is closed. Outer permits have a Hold of their own.
func (p *Core) Hold() (closed func()) {
	if !p.detach() {
		return func() {}
	}
	return sync.OnceFunc(func() { p.end(released) })
}

// detach claims the slots, and with them the end of raises, for a caller that may release them after the handler has
// returned. It reports whether they could be claimed.
func (p *Core) detach() bool {
	if !p.state.claim() {
		return false
	}
	if p.learns() {
		p.Times.outcome.Show(adaptive.Ignored) // how long a connection lives says nothing of the load
	}
	return true
}

// claim claims the slots, and with them the end of raises. It reports false if they are claimed already, or if nothing
// is to be done at the permit's end.
func (p *Core) claim() bool { return (p.hasEnd() || p.Grants.Raised()) && p.state.claim() }

// Finish ends the permit when its handler has returned or panicked. It must be deferred directly, because it recovers
// the panic to record it, and panics again.
func (p *Core) Finish() {
	if !p.hasEnd() && !p.Grants.Raised() {
		return
	}
	if p.Response != nil || p.learns() {
		if v := recover(); v != nil {
			p.recordHandlerPanic(v)
			defer panic(v)
		}
	}
	var parts uint32
	if p.Response != nil {
		parts = settled
	}
	if p.claim() {
		parts |= released
	}
	if parts != 0 {
		p.end(parts)
	}
}

// end releases the slots (released) or settles the response (settled), or does both in one call of the store. Code
// that may panic runs before that (functions of WithSettle, writes to the client) or after it (the Reporter). If it
// panics, the call of the store is made all the same.
func (p *Core) end(parts uint32) {
	if parts&released != 0 {
		p.Grants.EndRaises()
	}
	if !p.Releases {
		p.complete(parts, 0)
		return
	}
	var amends []decide.Amend
	defer func() { p.settleEnd(parts, amends) }()
	if parts&settled != 0 {
		if amends = p.amends(); len(amends) > 0 {
			p.Grants.EndRaises()
		}
		p.pushResponse(amends)
	}
}

// settleEnd is the part of end that calls the store.
func (p *Core) settleEnd(parts uint32, amends []decide.Amend) {
	e := decide.Ending{Leases: parts&released != 0, Timed: p.Observers != nil}
	var changes []adaptive.Change
	if e.Leases {
		changes = p.releaseLocally(parts)
	}
	if parts&settled != 0 {
		p.Response.Seal()
		e.Amends, e.HandlerSettled, e.Unmoved = amends, &p.Response.handlerSettled, p.Response.unmoved()
	}
	p.Grants.End((*withoutCancel)(p), p.Issuer.Backend, e, func(s decide.Settlement) {
		p.reportEnd(parts, changes, s)
	})
}

// releaseLocally releases the slots that this process counts, and returns the adaptive limits that have changed by
// that.
func (p *Core) releaseLocally(parts uint32) []adaptive.Change {
	if p.Times != nil && p.AdmissionSent {
		p.Times.Held = time.Since(p.Times.Admitted)
	}
	var sample *adaptive.Sample
	if p.learns() {
		sample = p.sample(parts)
	}
	return p.Grants.ReleaseLocally(p.Issuer.Backend, p.Class, p.learns(), sample)
}

// reportEnd reports the outcome of parts of the end, and the end if no part is left.
func (p *Core) reportEnd(parts uint32, changes []adaptive.Change, s decide.Settlement) {
	took := time.Duration(0)
	defer func() { p.complete(parts, took) }() // also if the Reporter panics
	if parts&settled != 0 {
		defer p.reportPaced()
	}
	report := p.Issuer.Reporter
	for i := range changes {
		report.LimitChanged(p, &changes[i])
	}
	switch {
	case s.Err != nil:
		_ = report.Unsettled(p, s)
	case s.Amended:
		report.Settled(p, s)
	default:
		took = s.Took
	}
}

// complete records that parts of the end are done, and reports the end if no part is left.
func (p *Core) complete(parts uint32, took time.Duration) {
	if p.Response == nil {
		parts |= settled
	}
	if p.state.complete(parts) && p.AdmissionSent {
		p.Issuer.Reporter.Ended(p, took)
	}
}

// withoutCancel is the context of calls at a permit's end: the request's context as context.WithoutCancel would make
// it, without its allocation.
type withoutCancel Core

func (*withoutCancel) Deadline() (none time.Time, ok bool) { return none, false }

func (*withoutCancel) Done() <-chan struct{} { return nil }

func (*withoutCancel) Err() error { return nil }

func (c *withoutCancel) Value(key any) any { return c.Context.Value(key) }

// Charged reports whether p, or a permit further out of the same family of limiters, has charged a limit for a
// key. b is the backend of a limiter of that family.
func (p *Core) Charged(b *decide.Backend, l *store.Limit, key string) bool {
	hash := inside.Hash(l)
	for ; p != nil; p = p.Outer {
		if p.Issuer.Backend.Keys == b.Keys && (p.Grants.Include(hash, key) || p.Response.paces(hash, key)) {
			return true
		}
	}
	return false
}

// Recall adds the grants of p, at their current cost, and its waits to a call, as if the call had just been granted
// them.
func (p *Core) Recall(c *decide.Call) {
	p.Grants.Recall(c)
	if p.Times == nil {
		return
	}
	c.Waited += p.Times.Waited
	if waits := p.Times.LineWaits; len(waits) > 0 {
		before := make([]decide.LineWait, len(c.Charges)-len(waits), len(c.Charges))
		copy(before, c.LineWaits)
		c.LineWaits = append(before, waits...)
	}
}

// RecallAll is Recall for p and the permits further out, the outermost first.
func (p *Core) RecallAll(c *decide.Call) {
	if p.Outer != nil {
		p.Outer.RecallAll(c)
	}
	p.Recall(c)
}

// Times records how long a request waited and held its slots, and what adaptive limits learn from it.
type Times struct {
	Waited    time.Duration
	LineWaits []decide.LineWait // has an element for each grant, or none
	Admitted  time.Time
	Held      time.Duration // the slots; set when they are released
	// Learns: an adaptive limit learns from the request.
	Learns  bool
	outcome adaptive.Outcome
}

// learns reports whether an adaptive limit learns from the request.
func (p *Core) learns() bool { return p.Times != nil && p.Times.Learns }

// AnyLearns is learns for p and the permits further out.
func (p *Core) AnyLearns() bool {
	for ; p != nil; p = p.Outer {
		if p.learns() {
			return true
		}
	}
	return false
}

// Report records the ending that the handler reports, for p and the permits further out.
func (p *Core) Report(e adaptive.Ending) { p.each(func(o *adaptive.Outcome) { o.Report(e) }) }

// RecordInnerDenial records, for p and the permits further out, that an inner limiter has denied the request. Adaptive
// limits don't learn from the response then.
func (p *Core) RecordInnerDenial() {
	p.each(func(o *adaptive.Outcome) { o.Show(adaptive.Ignored) })
}

// RecordPanic records a panic that a deferred Done has seen, for p and the permits further out.
func (p *Core) RecordPanic(v any) {
	p.each(func(o *adaptive.Outcome) { o.Show(panicEnding(v)) })
}

// each calls f for the outcomes of p and of the permits further out, if an adaptive limit learns from them.
func (p *Core) each(f func(*adaptive.Outcome)) {
	for ; p != nil; p = p.Outer {
		if p.learns() {
			f(&p.Times.outcome)
		}
	}
}

// recordHandlerPanic records a handler's panic for adaptive limits and for WithSettle.
func (p *Core) recordHandlerPanic(v any) {
	if p.learns() {
		p.Times.outcome.Show(panicEnding(v))
	}
	if p.Response != nil {
		p.Response.RecordPanic(v == http.ErrAbortHandler)
	}
}

// panicEnding returns what adaptive limits learn from a panic.
func panicEnding(v any) adaptive.Ending {
	if v == http.ErrAbortHandler {
		return adaptive.Ignored
	}
	return adaptive.Failed
}

// sample returns what adaptive limits learn from the request, or nil if they learn nothing. The error of a job's
// context is left out, since the context may have bounded the wait and ended before the work.
func (p *Core) sample(parts uint32) *adaptive.Sample {
	if parts&settled != 0 {
		p.Times.outcome.Show(p.Response.ending())
	}
	took := time.Since(p.Times.Admitted)
	if p.Response == nil {
		return p.Times.outcome.Sample(took, nil)
	}
	return p.Times.outcome.Sample(took-p.Response.heldUp(), p.Context.Err())
}
