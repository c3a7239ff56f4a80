package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// turnsGivenUp: turns that are given up latest first, in one call, leave nothing
// behind. In any other order less comes back, and the receipts say what is left: that
// can be given up again.
func turnsGivenUp(s *suite, k kind) {
	for _, order := range []string{"latest first", "first first"} {
		l := s.limit(k.spec)
		key := k.name + order
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
		for i := 1; i < len(turns); i++ {
			if inside.Behind(l, turns[i-1].Receipt, turns[i].Receipt) {
				s.Errorf("%s: turn %d is behind the next", key, i)
			}
		}
		if order == "latest first" {
			slices.Reverse(turns)
		}
		results := make([]store.Result, len(turns))
		for range 2 {
			if err := s.store.Settle(context.Background(), turns, results[:len(turns)]); err != nil {
				s.Fatal(err)
			}
			var left []store.Charge
			for i, c := range turns {
				if c.Receipt = inside.Standing(l, c.Receipt, results[i].Receipt); c.Receipt.Cost > 0 {
					left = append(left, c)
				}
			}
			if order == "latest first" {
				break
			}
			turns = left
			slices.Reverse(turns)
		}
		if after := s.peek(key, l); after.ResetAfter > before.ResetAfter || after.Remaining < before.Remaining {
			s.Errorf("%s: after the turns were given up %s, before them %s", key, show(after), show(before))
		}
	}
}
