package failover

import (
	"errors"

	"github.com/stint-go/stint/store"
)

// The lowest bit of a receipt's Path says which side issued it. The bits above belong
// to that side, which may itself be a Store of this package.
const (
	primarySide   uint8 = 0
	secondarySide uint8 = 1
)

var errDeep = errors.New("failover: more than eight nested stores: a receipt has no room to say which one issued it; nest fewer")

// issuedBy marks the receipts in results with the side they come from. It leaves the
// zero receipt, of a charge that wasn't made, unchanged.
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

// handBack returns a copy of charges whose receipts are as the issuing side knows them.
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

// makers are the sides that made the charges of a call. A charge that wasn't made has
// no side and goes with the others.
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
