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

// markSide marks the receipts in results with the side they come from. It leaves the
// zero receipt, of a charge that wasn't made, unchanged.
func markSide(side uint8, results []store.Result) error {
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

// unmark returns a copy of charges whose receipts are as the issuing side returned them.
func unmark(charges []store.Charge) []store.Charge {
	for i := range charges {
		if charges[i].Receipt.Path == 0 {
			continue
		}
		unmarked := make([]store.Charge, len(charges))
		copy(unmarked, charges)
		for k := range unmarked {
			unmarked[k].Receipt.Path >>= 1
		}
		return unmarked
	}
	return charges
}

// sides are the sides that made the charges of a call. A charge that wasn't made has
// no side and goes with the others.
type sides uint8

const (
	noSide        sides = 0
	primaryOnly   sides = 1 << primarySide
	secondaryOnly sides = 1 << secondarySide
)

// sidesOf returns the sides that made the charges.
func sidesOf(charges []store.Charge) (m sides) {
	for i := range charges {
		if r := &charges[i].Receipt; *r != (store.Receipt{}) {
			m |= 1 << (r.Path & 1)
		}
	}
	return m
}
