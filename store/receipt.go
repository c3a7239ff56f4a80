package store

// Behind reports whether the charge of a was made behind that of b: of two
// charges of this limit and one key, the one to be refunded first, since nothing
// is given back for what others have reserved their turns behind. Charges of
// which neither is behind the other may be refunded in any order.
func (l *Limit) Behind(a, b Receipt) bool {
	if a.Path != b.Path { // of different stores
		return false
	}
	switch l.spec.Algorithm {
	case FixedWindow, SlidingWindow, SlidingCounter, SlidingLog:
		return a.Instant > b.Instant
	case IntervalBucket:
		if a.Instant < b.Instant {
			return a.Mark > b.Mark+l.passed(a.Instant, b.Instant)*l.spec.Units
		}
		return a.Mark+l.passed(b.Instant, a.Instant)*l.spec.Units > b.Mark
	case TokenBucket, LeakyBucket, WarmUp:
		return a.Mark > b.Mark || a.Mark == b.Mark && a.Low > b.Low
	default:
		return false
	}
}

// Standing returns what a refund has left of a charge: settling was at cost 0 has
// returned is. While others wait behind the charge little or nothing comes back,
// and the rest is still reserved: the receipt returned is good for it, as that
// of a charge that has cost so much from the start. Its Cost is 0 if nothing is
// left.
func (l *Limit) Standing(was, is Receipt) Receipt {
	var back int64 // in whole units, rounded up
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		less := l.scale.read(was.Mark, was.Low).minus(l.scale.read(is.Mark, is.Low))
		back = less.upOver(l.token)
	case IntervalBucket:
		back = was.Mark - l.passed(was.Instant, is.Instant)*l.spec.Units - is.Mark
	case FixedWindow, SlidingCounter:
		back = was.Mark - is.Mark
	case WarmUp: // what it costs depends on what comes before: all or nothing
		if was.Mark == is.Mark && was.Low == is.Low {
			return was
		}
		return Receipt{}
	default:
		return Receipt{}
	}
	if back <= 0 {
		return was
	}
	if back >= was.Cost {
		return Receipt{}
	}
	is.Cost, is.Lease, is.Path = was.Cost-back, was.Lease, was.Path
	return is
}

// Without returns the receipt that a charge on a TokenBucket would have had if the last
// tokens of it had been charged by themselves, after it.
func (l *Limit) Without(r Receipt, tokens int64) Receipt {
	r.Mark, r.Low = l.scale.write(l.scale.read(r.Mark, r.Low).minus(product(tokens, l.token)))
	r.Cost -= tokens
	return r
}
