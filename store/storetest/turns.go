package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// turnsGivenUp: turns that are given up latest first, in one call, leave nothing behind.
func turnsGivenUp(s *suite, k kind) {
	l := s.limit(k.spec)
	key := k.name + " given up"
	for s.take(key, l, 1).OK && s.peek(key, l).Remaining > 0 { // what passes at once
	}
	before := s.peek(key, l)
	var turns []store.Charge
	for i := range 6 {
		cost := 1 + int64(i%2)
		if k.spec.Algorithm == store.FixedWindow {
			cost = 1 // the part of a window that a larger charge doesn't fit into stays empty
		}
		r := s.reserve(key, l, cost, 365*24*time.Hour)
		if !r.OK {
			break
		}
		turns = append(turns, store.Charge{Key: key, Limit: l, Receipt: r.Receipt})
	}
	slices.Reverse(turns)
	if err := s.store.Settle(context.Background(), turns, make([]store.Result, len(turns))); err != nil {
		s.Fatal(err)
	}
	if after := s.peek(key, l); after.ResetAfter > before.ResetAfter || after.Remaining < before.Remaining {
		s.Errorf("%s: after the turns were given up %s, before them %s", key, show(after), show(before))
	}
}
