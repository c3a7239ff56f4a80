package algorithm

import (
	"cmp"
	"fmt"
)

// SlidingWindow cuts the period into buckets on a grid that is exact for any division:
// a bucket is token units long, and a tick has PerTick of them (Scale). The current
// bucket and the Buckets-1 before it count; a bucket exactly one window old doesn't.

func (l *Limit) defaultSlidingWindow() { l.spec.Buckets = cmp.Or(l.spec.Buckets, 10) }

func (l *Limit) workOutSlidingWindow(bad wrong) {
	s := &l.spec
	if l.period < s.Buckets {
		bad("Buckets", fmt.Sprintf("%v in %d buckets", s.Period, s.Buckets),
			"use fewer buckets, of at least a microsecond each")
		return
	}
	l.largest = s.Units
	var ok bool
	if l.scale, l.token, ok = exactScale(l.period, s.Buckets, 2*s.Buckets, func(c Scale) bool {
		return l.period/c.Tick() >= s.Buckets // a bucket is at least a tick
	}); !ok {
		bad("Buckets", fmt.Sprintf("%v can't be cut into %d buckets exactly", s.Period, s.Buckets),
			"use a period that is a multiple of 100ms")
		return
	}
	l.lookback = lookback{l.scale, l.token, s.Buckets}
}
