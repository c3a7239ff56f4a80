package store

// slide is the span that a SlidingWindow or SlidingLog looks back on. For a log it is
// Token microseconds; for a window it is a number of buckets of Token units each.
type slide struct {
	scale          scale // windows only
	token, buckets int64
}

// leaves returns the instant at which an entry made at at stops counting: exactly one
// window later.
func (d slide) leaves(at int64) int64 {
	if d.buckets == 0 {
		return at + d.token
	}
	return d.bucketStart(d.bucket(at) + d.buckets)
}

// entered returns the instant at which a charge made at at is entered.
func (d slide) entered(at int64) int64 {
	if d.buckets == 0 {
		return at
	}
	return d.bucketStart(d.bucket(at))
}

// tick returns the resolution in microseconds.
func (d slide) tick() int64 {
	if d.buckets == 0 {
		return 1
	}
	return d.scale.Tick()
}

// present returns the beginning of the tick that at is in.
func (d slide) present(at int64) int64 { return at - floorMod(at, d.tick()) }

// bucket returns the number of the bucket that contains at.
func (d slide) bucket(at int64) int64 { return floorDiv(d.scale.At(at), d.token) }

// bucketStart returns the first instant of the n-th bucket, a whole tick.
func (d slide) bucketStart(n int64) int64 {
	return -floorDiv(-n*d.token, d.scale.PerTick) * d.scale.Tick()
}
