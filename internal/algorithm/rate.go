package algorithm

import "fmt"

// What the limits that count in a rate's units share: token and leaky buckets, and WarmUp.

// chooseScale sets the scale and token. If no scale holds its rate, they are those of the
// nearest rate below. accept, if not nil, is one more condition on scales.
func (l *Limit) chooseScale(room int64, accept func(Scale) bool) (ok bool) {
	if l.scale, l.token, ok = exactScale(l.period, l.spec.Units, room, accept); !ok {
		l.scale, l.token, ok = scaleBelow(l.period, l.spec.Units, room, accept)
	}
	return ok
}

// tooFast reports that no scale holds a rate near the limit's.
func (l *Limit) tooFast(bad wrong) {
	bad("Units", fmt.Sprintf("%d per %v is too fast to be counted", l.spec.Units, l.spec.Period),
		"use at most 14 million a second")
}

// largestPrepaid returns the largest cost that can be prepaid: a year's worth, at least 1.
func (l *Limit) largestPrepaid() int64 { return min(MaxCost, max(1, l.year/l.token)) }
