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
		if *r == (store.Receipt{}) {
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

// makers are the sides that made the charges of a call. One that was not made
// has no side, and goes with the others.
type makers uint8

const (
	nobody        makers = 0
	primaryOnly   makers = 1 << primarySide
	secondaryOnly makers = 1 << secondarySide
)

func madeBy(charges []store.Charge) (m makers) {
	for i := range charges {
		if r := &charges[i].Receipt; *r != (store.Receipt{}) {
			m |= 1 << (r.Path & 1)
		}
	}
	return m
}
