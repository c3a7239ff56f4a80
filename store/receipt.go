package store

// Behind reports whether charge a was made behind charge b, where both are charges of
// this limit and one key. Of two such charges a must be refunded first, because nothing
// is given back for a charge while others have turns reserved behind it. If neither is
// behind the other, the order of refunds doesn't matter.
func (l *Limit) Behind(a, b Receipt) bool {
	if a.Path != b.Path { // issued by different stores
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

// Standing returns the receipt for what remains of a charge after a refund: settling
// was at cost 0 has returned is. While others wait behind the charge, little or nothing
// comes back and the rest stays reserved. The receipt returned stands for that rest, as
// if the charge had had its cost from the start. Its Cost is 0 if nothing remains.
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
	case WarmUp: // its price depends on what came before: all or nothing
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

// Without returns the receipt that a charge on a TokenBucket would have if its last
// tokens had been a separate charge made after it.
func (l *Limit) Without(r Receipt, tokens int64) Receipt {
	r.Mark, r.Low = l.scale.write(l.scale.read(r.Mark, r.Low).minus(product(tokens, l.token)))
	r.Cost -= tokens
	return r
}
