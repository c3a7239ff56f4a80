package limit

import (
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// Wait is how a limit lets a charge wait.
type Wait struct {
	For WaitsFor
	// MaxWait is the longest wait; 0 means none.
	MaxWait time.Duration
	// Queues: without a MaxWait, the charge waits as far as the limit's own queue goes.
	Queues bool
	// Room is how many may wait in line. nil means as many as there are slots, any number
	// for a turn, and any number of patient calls.
	Room *int64
	// Slots returns how many slots there are, for a key that is waited for.
	Slots func(*store.Charge) int64
	// Shares returns the shares of the limit as it now is, or nil: see lines.Waiter.
	Shares func() *lines.Shares
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

// CountWaiting has a result of a limit that requests wait for count units of calls that wait in this process, of
// which the store doesn't know yet. The units of a queue that are left count, too: the store knows nothing of
// queues, which are lines of this process.
func (l *Limit) CountWaiting(r *store.Result, units int64) {
	decided := inside.Part(l.StoreLimit, int64(r.Processes))
	spec := decided.Spec()
	every := float64(spec.Period) / float64(spec.Units)
	if units > 0 && spec.Window == (store.Window{}) {
		r.ResetAfter += time.Duration(every * float64(units))
	}
	if !l.Wait.Queues {
		r.Remaining = max(r.Remaining-units, 0)
		return
	}
	burst := max(spec.Burst, 0)
	if spec.Algorithm == store.LeakyBucket {
		burst++ // the request whose turn it is
	}
	most := every * float64(spec.Queue)
	if l.Wait.MaxWait > 0 {
		most = min(most, float64(l.Wait.MaxWait))
	}
	most += every * float64(burst)
	// Rounded up, ResetAfter may be up to a tick longer than the units in use take.
	inUse := max(float64(r.ResetAfter-decided.Tick()), 0)
	r.Remaining = max(int64((most-inUse)/every+1e-9), 0)
	if next := every * float64(r.Remaining+1); next <= most {
		r.MoreAfter = max(r.ResetAfter-time.Duration(most-next), decided.Tick())
	} else {
		r.MoreAfter = r.ResetAfter + time.Duration(every)
	}
}
