package store

import "fmt"

// SlidingWindow cuts the period into buckets on a grid that is exact however
// odd the division: a bucket is token units long and a tick has PerTick of
// them (Scale). The current bucket and the Buckets-1 before it count; a bucket
// exactly one window old doesn't.

func (l *Limit) workOutSlidingWindow(bad wrong) {
	s := &l.spec
	l.largest = s.Units
	var ok bool
	l.scale, l.token, ok = fit(l.period, s.Buckets, 2*s.Buckets, func(c Scale) bool {
		return l.period/c.tick() >= s.Buckets // a bucket is at least a tick
	})
	if !ok {
		bad("Buckets", fmt.Sprintf("%v in %d buckets can not be counted exactly", s.Period, s.Buckets),
			"write a number of buckets that divides the period")
	}
	l.slide = slide{l.scale, l.token, s.Buckets}
	l.numbers = l.slide.numbers()
}

// bucket is the number of the bucket that at is in.
func (d slide) bucket(at int64) int64 { return floorDiv(d.scale.at(at), d.token) }

// bucketStart is the first instant of the n-th bucket, a whole tick.
func (d slide) bucketStart(n int64) int64 {
	return -floorDiv(-n*d.token, d.scale.PerTick) * d.scale.tick()
}
