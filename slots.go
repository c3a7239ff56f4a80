package stint

import (
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// slotWait bounds the wait for a slot where WithQueue is given and WithMaxWait
// isn't: an HTTP/1.1 server doesn't notice that a client has left while the
// request's body is unread, so a wait without a bound would never end.
const slotWait = 5 * time.Second

// Concurrency limits a key to n requests in flight at once. A request that
// costs c takes c slots. Its default name is "concurrency".
//
// A slot is given back when the handler returns, also by a panic. A handler
// that hands its connection on (a websocket) calls Permit.Detach.
func Concurrency(n int64, opts ...ConcurrencyOption) Limit {
	k := &concurrency{}
	k.of.slots = func(c *store.Charge) int64 { return c.Limit.Spec().Units }
	return newLimit(k, store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}, opts)
}

// concurrency is the kind of Concurrency.
type concurrency struct{ held }

// line is how requests wait for a limit's slots, beside what the limit says.
type line struct {
	room   *int64 // of WithQueue; nil without
	shares *waiting.Shares
	slots  func(*store.Charge) int64 // how many there are
}

// held is what kinds have in common whose requests take slots.
type held struct {
	charged
	of line
}

// slotted is a kind with slots.
type slotted interface{ line() *line }

func (h *held) line() *line { return &h.of }

func (h *held) enter(e *entry) {
	e.settle = nil // of the limiter: slots are released
	e.wait.Way, e.wait.Room, e.wait.Slots = waiting.ForSlot, h.of.room, h.of.slots
	switch {
	case e.wait.Closed():
		e.wait.MaxWait = 0
	case h.of.room != nil && e.wait.MaxWait == 0:
		e.wait.MaxWait = slotWait
	}
	h.charged.enter(e)
	e.needs |= releases
	if !e.dryRun {
		e.needs |= slots
	}
}

// counted: who waits for a slot in vain is not banned for it.
func (*held) counted(e *entry) bool { return e.wait.MaxWait == 0 }

func (*held) free(r *store.Result) bool { return r.Remaining > 0 }

func (*held) refusal(c *store.Charge) refusal {
	if c.Key == keytext.GlobalText {
		return reducedCapacity
	}
	return quotaExceeded
}

func (*held) unsettled() string { return "a concurrency limit: its slots are released by Done" }

// hold counts sign times what charges cost as held by a class.
func (f *family) hold(entries []*entry, charges []store.Charge, class uint8, sign int64) {
	for i, e := range entries {
		if ch := &charges[i]; e.needs&slots != 0 && ch.Cost > 0 {
			f.lines.Hold(waiting.KeyOf(ch), class, sign*ch.Cost)
		}
	}
}
