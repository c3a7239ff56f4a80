package store

import "fmt"

// What the limits that count in a rate's units share: token and leaky buckets, and WarmUp.

// fitRate sets the limit's scale and token, to those of the nearest rate below if no scale
// holds its rate.
func (l *Limit) fitRate(room int64, also func(scale) bool) (ok bool) {
	if l.scale, l.token, ok = fit(l.period, l.spec.Units, room, also); !ok {
		l.scale, l.token, ok = fitBelow(l.period, l.spec.Units, room, also)
	}
	return ok
}

// tooFast: one integer holds no rate near the limit's.
func (l *Limit) tooFast(bad wrong) {
	bad("Units", fmt.Sprintf("%d per %v can't be counted in integers below 2^53", l.spec.Units, l.spec.Period),
		"write a rounder number, at most ten million a second, a period in whole milliseconds, or a smaller burst")
}

// affordable returns the largest cost that can be prepaid: a year's worth, at least 1.
func (l *Limit) affordable() int64 { return min(MaxCost, max(1, l.most/l.token)) }
