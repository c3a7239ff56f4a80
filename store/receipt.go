package store

// Behind reports whether charge a was made behind charge b, where both are charges of
// this limit and one key. Of two such charges a must be refunded first, because nothing
// is given back for a charge while others have turns reserved behind it. If neither is
// behind the other, the order of refunds doesn't matter.
func (l *Limit) Behind(a, b Receipt) bool {
	if a.Path != b.Path { // issued by different stores
		return false
	}
	return l.behind(a, b)
}

// Standing returns the receipt for what remains of a charge after a refund: settling
// was at cost 0 has returned is. While others wait behind the charge, little or nothing
// comes back and the rest stays reserved. The receipt returned stands for that rest, as
// if the charge had had its cost from the start. Its Cost is 0 if nothing remains.
func (l *Limit) Standing(was, is Receipt) Receipt {
	back := l.back(was, is)
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

// Made reports whether this version of a TokenBucket or LeakyBucket has made the charge,
// so that its Mark says what stood then.
func (l *Limit) Made(r Receipt) bool { return r.Version&^raised == l.version }
