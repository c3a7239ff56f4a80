package failover

import (
	"errors"

	"github.com/stint-go/stint/store"
)

// A receipt says which side issued it in the lowest bit of its Path; the bits
// above are that side's own, which may be such a store itself.
const (
	primarySide   uint8 = 0
	secondarySide uint8 = 1
)

var errDeep = errors.New("failover: more than eight stores inside each other: a receipt has no room for the way back")

// issuedBy marks the receipts in results with the side they come from. The
// zero receipt, of a charge that was not made, stays what it is.
func issuedBy(side uint8, results []store.Result) error {
	for i := range results {
		r := &results[i].Receipt
		if r.Path == 0 && (side == 0 || *r == (store.Receipt{})) {
			continue
		}
		if r.Path >= 1<<7 {
			return errDeep
		}
		r.Path = r.Path<<1 | side
	}
	return nil
}

// handBack is charges with receipts as the side that issued them knows them.
// The caller's own are left alone.
func handBack(charges []store.Charge) []store.Charge {
	for i := range charges {
		if charges[i].Receipt.Path == 0 {
			continue
		}
		own := make([]store.Charge, len(charges))
		copy(own, charges)
		for k := range own {
			own[k].Receipt.Path >>= 1
		}
		return own
	}
	return charges
}

// sideOf returns the side that made the charges, or that both did. A charge
// that was not made has no side: it goes with the others, or to the side that
// decides at present.
func (s *Store) sideOf(charges []store.Charge) (side uint8, mixed bool) {
	var made [2]bool
	for i := range charges {
		if r := &charges[i].Receipt; *r != (store.Receipt{}) {
			made[r.Path&1] = true
		}
	}
	switch {
	case made[0] && made[1]:
		return 0, true
	case made[1]:
		return secondarySide, false
	case made[0], s.secondary == nil, !s.open.Load():
		return primarySide, false
	default:
		return secondarySide, false
	}
}
