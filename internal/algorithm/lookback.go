package algorithm

// lookback is the span in which the charges of a SlidingWindow or SlidingLog count. For a log it
// is token microseconds; for a window it is a number of buckets of token units each.
type lookback struct {
	scale          Scale // windows only
	token, buckets int64
}

// expiry returns the instant at which an entry stops counting: exactly one window later.
func (d lookback) expiry(at int64) int64 {
	if d.buckets == 0 {
		return at + d.token
	}
	return d.bucketStart(d.bucket(at) + d.buckets)
}

// entryAt returns the instant at which a charge made at an instant is entered.
func (d lookback) entryAt(at int64) int64 {
	if d.buckets == 0 {
		return at
	}
	return d.bucketStart(d.bucket(at))
}

// tick returns the resolution in microseconds.
func (d lookback) tick() int64 {
	if d.buckets == 0 {
		return 1
	}
	return d.scale.Tick()
}

// tickStart returns the beginning of the tick that contains at.
func (d lookback) tickStart(at int64) int64 { return at - floorMod(at, d.tick()) }

// bucket returns the number of the bucket that contains at.
func (d lookback) bucket(at int64) int64 { return floorDiv(d.scale.At(at), d.token) }

// bucketStart returns the first instant of the n-th bucket, a whole tick.
func (d lookback) bucketStart(n int64) int64 {
	return -floorDiv(-n*d.token, d.scale.PerTick) * d.scale.Tick()
}
