package stint

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// slotWait bounds the wait for a slot if WithQueue is given without WithMaxWait: an
// HTTP/1.1 server doesn't notice that a client has left while the request's body is
// unread, so an unbounded wait might never end.
const slotWait = 5 * time.Second

// Concurrency limits a key to n requests in flight at once. A request takes one slot, or
// as many as the limit's own WithCost says; one of the limiter or the route doesn't apply.
// The default name is "concurrency". n is from 1 to 2^40; New rejects other numbers. It
// combines with every other kind of limit.
//
// A request that finds no slot is denied, or waits if WithQueue or WithMaxWait says
// so. The time until a slot comes free is unknown: Decision.RetryAfter and the
// Retry-After field of a denial say 1 second. The slot is released when the handler returns or
// panics. A handler that hands over its connection (a websocket) calls Permit.Detach. A
// WithSettle of the limiter or the route doesn't apply.
func Concurrency(n int64, opts ...ConcurrencyOption) Limit {
	k := &concurrency{}
	k.of.slots = func(c *store.Charge) int64 { return c.Limit.Spec().Units }
	return newLimit(k, store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}, opts)
}

// concurrency is the kind of Concurrency.
type concurrency struct{ held }

// line says how requests wait for a limit's slots, beyond what its Spec says.
type line struct {
	room   *int64 // by WithQueue, or nil
	shares *waiting.Shares
	slots  func(*store.Charge) int64 // how many slots a key has now
}

// held is embedded by the kinds whose requests take slots.
type held struct {
	charged
	of line
}

// slotted is a kind with slots.
type slotted interface{ line() *line }

func (h *held) line() *line { return &h.of }

func (h *held) enter(e *entry, r *rule) {
	// The limiter's are about units of rates: a request that costs ten of those takes one slot,
	// which is released, not settled.
	e.settle, e.cost = nil, r.shared.cost
	e.wait.Way, e.wait.Room, e.wait.Slots = waiting.ForSlot, h.of.room, h.of.slots
	switch {
	case e.wait.Closed():
		e.wait.MaxWait = 0
	case h.of.room != nil && e.wait.MaxWait == 0:
		e.wait.MaxWait = slotWait
	}
	h.charged.enter(e, r)
	e.needs |= releases
	if !e.dryRun {
		e.needs |= slots
	}
}

// counted: a wait for a slot that times out must not get anybody banned.
func (*held) counted(e *entry) bool { return e.wait.MaxWait == 0 }

func (*held) free(r *store.Result) bool { return r.Remaining > 0 }

func (*held) denial(c *store.Charge) denial {
	if c.Key == keytext.GlobalText {
		return reducedCapacity
	}
	return quotaExceeded
}

func (*held) whyUnsettled() string { return "a concurrency limit: its slots are released by Done" }

// hold counts the slots of a charge as held by a class if sign is 1, or as released if
// it is -1.
func (e *entry) hold(ls *waiting.Lines, key string, cost int64, class uint8, sign int64) {
	if e.needs&slots != 0 && cost > 0 {
		ls.Hold(waiting.KeyIn(e.limit, key), class, sign*cost)
	}
}

// giveBack settles charges, even if ctx has ended, and returns the results. If it fails,
// it notifies observers and returns nil.
func (v *version) giveBack(ctx context.Context, p *plan, charges []store.Charge) []store.Result {
	results := make([]store.Result, len(charges))
	if took, err := v.settle(context.WithoutCancel(ctx), v.store, charges, results); err != nil {
		v.observeSettleFailed(p, charges, took, err)
		return nil
	}
	return results
}
