package limit

import (
	"time"

	"github.com/stint-go/stint/internal/slots"
	"github.com/stint-go/stint/store"
)

// Wait is how a limit lets a charge wait.
type Wait struct {
	For WaitsFor
	// MaxWait is the longest wait; 0 means none.
	MaxWait time.Duration
	// Queues: without a MaxWait, the charge waits as far as the limit's own queue goes.
	Queues bool
	// Room is how many may wait in a line for slots. nil means as many as there are
	// slots, and any number of patient calls.
	Room *int64
	// Slots returns how many slots there are, for a key that is waited for.
	Slots func(*store.Charge) int64
	// Shares returns the shares of the limit as it now is, or nil: see slots.Waiter.
	Shares func() *slots.Shares
}

// WaitsFor is what a charge waits for.
type WaitsFor uint8

const (
	ForTurn    WaitsFor = iota // an instant that a rate reserves
	ForSlot                    // a slot that others hold
	ForNothing                 // no charge waits
)

// Closed reports whether no call may wait for slots.
func (w *Wait) Closed() bool { return w.Room != nil && *w.Room == 0 }

// InQueue returns how long a charge may wait in the limit's own queue: its MaxWait, or 0 for as far as the
// queue goes. Without a queue, it is 0 too. Remaining counts the queue as far as that.
func (w *Wait) InQueue() time.Duration {
	if !w.Queues {
		return 0
	}
	return w.MaxWait
}

// longest returns the longest wait.
func (w *Wait) longest() time.Duration {
	if w.MaxWait == 0 && w.Queues {
		return store.Never
	}
	return w.MaxWait
}
