package decide

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// Settlement is the outcome of settling charges.
type Settlement struct {
	Charges []store.Charge // at the costs asked for
	Results []store.Result // nil after an error
	Amended bool           // a cost has changed that isn't a lease's
	// Increases are the charges that cost more than before, of limits with Marks.
	Increases []Increase
	Took      time.Duration // the store, if that was asked for
	Err       error         // the store's
}

// Increase is a charge that a settlement has made cost more.
type Increase struct {
	Limit  *limit.Limit
	Charge int   // in Settlement.Charges and Results
	Added  int64 // units
}

// Settle makes earlier charges cost what they say now, even if ctx has ended, for as long
// as giving something back may take. It wakes the calls that wait for their slots.
func (b *Backend) Settle(ctx context.Context, charges []store.Charge, timed bool) Settlement {
	return b.settle(context.WithoutCancel(ctx), b.Store, charges, make([]store.Result, len(charges)), timed)
}

// settle is Settle on one of the backend's stores. ctx must not end with the request.
func (b *Backend) settle(
	ctx context.Context, s store.Store, charges []store.Charge, results []store.Result, timed bool,
) Settlement {
	if len(charges) == 0 {
		return Settlement{}
	}
	// For a store in memory a timer would cost more than the call. On Redis it is a third of the
	// allocations of a request with slots, if many are decided together.
	if !inside.EndsWithin(s, background.SettleTimeout) {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, background.SettleTimeout)
		defer stop()
	}
	defer b.wake(charges) // also if the store panics: the slots may be free
	settled := Settlement{Charges: charges}
	var start time.Time
	if timed {
		start = time.Now()
	}
	settled.Err = s.Settle(ctx, charges, results)
	if timed {
		settled.Took = time.Since(start)
	}
	if settled.Err == nil {
		settled.Results = results
	}
	return settled
}

// wake wakes the calls that wait for slots of the charges.
func (b *Backend) wake(charges []store.Charge) {
	if !b.Lines.Waiting() {
		return
	}
	for i := range charges {
		if charges[i].Receipt.Lease != (store.LeaseID{}) {
			b.Lines.Wake(lines.KeyOf(charges[i].Limit, charges[i].Key))
		}
	}
}

// errStorePanicked is the error of a settlement in which the store has panicked.
var errStorePanicked = errors.New("the store panicked, so whether anything was settled isn't known")

// errSettlementUnknown is the error of settling a charge again of which an earlier settlement may
// have been made.
var errSettlementUnknown = errors.New("whether an earlier settlement was made isn't known, so the charge isn't settled again")
