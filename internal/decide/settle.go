package decide

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/slots"
	"github.com/stint-go/stint/store"
)

// Settlement is the outcome of settling charges: those that were made cost
// what they say now.
type Settlement struct {
	Charges []store.Charge
	Results []store.Result // nil after an error
	Amended bool           // a cost has changed that isn't a lease's
	Took    time.Duration  // the store, if that was asked for
	Err     error          // the store's
}

// Settle makes earlier charges cost what they say now, even if ctx has ended, for as long
// as giving something back may take. It wakes those who wait for slots among them.
func (b *Backend) Settle(ctx context.Context, charges []store.Charge, timed bool) Settlement {
	return b.settle(context.WithoutCancel(ctx), b.Store, charges, make([]store.Result, len(charges)), timed)
}

// settle is Settle on one of the backend's stores. ctx must not end with the request.
func (b *Backend) settle(ctx context.Context, s store.Store, charges []store.Charge, results []store.Result, timed bool) Settlement {
	if len(charges) == 0 {
		return Settlement{}
	}
	// For a store in memory a timer would cost more than the call. On Redis it is a third of the
	// allocations of a request with slots, if many are decided together.
	if !inside.EndsWithin(s, background.GiveBack) {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, background.GiveBack)
		defer stop()
	}
	defer b.wake(charges) // also if the store panics: the slots may be free
	took, err := settleTimed(ctx, s, charges, results, timed)
	if err != nil {
		return Settlement{Charges: charges, Took: took, Err: err}
	}
	return Settlement{Charges: charges, Results: results, Took: took}
}

// wake wakes those who wait for slots among the charges.
func (b *Backend) wake(charges []store.Charge) {
	if !b.Lines.Slots.Waiting() {
		return
	}
	for i := range charges {
		if charges[i].Receipt.Lease != (store.LeaseID{}) {
			b.Lines.Slots.Wake(slots.KeyOf(charges[i].Limit, charges[i].Key))
		}
	}
}

// settleTimed calls the store's Settle, and measures its time if that is asked for.
func settleTimed(ctx context.Context, s store.Store, charges []store.Charge, results []store.Result, timed bool) (time.Duration, error) {
	if !timed {
		return 0, s.Settle(ctx, charges, results)
	}
	start := time.Now()
	err := s.Settle(ctx, charges, results)
	return time.Since(start), err
}

// errStorePanicked is the error of a settlement in which the store has panicked.
var errStorePanicked = errors.New("the store panicked, so whether anything was settled isn't known")

// errUnknown is the error of settling a charge again of which an earlier settlement may
// have been made.
var errUnknown = errors.New("whether an earlier settlement was made isn't known, so the charge isn't settled again")
