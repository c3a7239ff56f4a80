package store

import "slices"

// SlidingWindow and SlidingLog are one step: charges are entered at an instant
// and leave one window later. The log enters them where they are; the window
// at the start of their bucket, so that a bucket leaves as a whole.
//
// State.A and State.B are the newest entry's instant and units, State.Log the
// entries before it, State.C the sum of all. Instants are in microseconds,
// which keeps a state readable when the limit changes its numbers. A charge
// that waits is entered at the instant at which it runs and counts from now
// on, so nobody overtakes it; everything later is entered there or after.

// leaves is the instant at which what was entered at at no longer counts.
// Exactly one window old is out.
func (l *Limit) leaves(at int64) int64 {
	if l.spec.Algorithm == SlidingLog {
		return at + l.period
	}
	return l.bucketStart(l.bucket(at) + l.spec.Buckets)
}

// entered is the instant at which a charge made at at is entered.
func (l *Limit) entered(at int64) int64 {
	if l.spec.Algorithm == SlidingLog {
		return at
	}
	return l.bucketStart(l.bucket(at))
}

func (l *Limit) rebaseSliding(now *Now, s *State) {
	at := now.Steady
	if l.leaves(s.A) <= at {
		*s = State{}
		return
	}
	gone := 0
	for gone < len(s.Log) && l.leaves(s.Log[gone].At) <= at {
		s.C -= s.Log[gone].Units
		gone++
	}
	s.Log = s.Log[gone:]
}

func (l *Limit) stepSliding(now *Now, c *Charge, s *State, r *Result) {
	at, n := now.Steady, l.spec.Units
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case s.C+c.Cost <= n:
		r.Receipt = l.enter(s, l.entered(at), c.Cost)
	default:
		free := l.frees(s, s.C+c.Cost-n)
		if wait := free - at; wait > l.maxWait(c) {
			r.OK, r.RetryAfter = false, micros(wait-l.maxWait(c))
		} else {
			r.Delay = micros(wait)
			r.Receipt = l.enter(s, l.entered(free), c.Cost)
		}
	}
	r.Remaining = max(0, n-s.C)
	if s.Live {
		r.ResetAfter = micros(l.leaves(s.A) - at)
	}
}

// enter adds an entry at at, or at the newest instant seen if that is later.
func (l *Limit) enter(s *State, at, units int64) Receipt {
	switch {
	case !s.Live:
		s.Live, s.A = true, at
	case at > s.A:
		s.Log = append(s.Log, Entry{At: s.A, Units: s.B})
		s.A, s.B = at, 0
	}
	s.B += units
	s.C += units
	return Receipt{Instant: s.A, Mark: units, Cost: units}
}

// frees is the instant at which the oldest entries with units in all have left.
func (l *Limit) frees(s *State, units int64) int64 {
	for _, e := range s.Log {
		if units -= e.Units; units <= 0 {
			return l.leaves(e.At)
		}
	}
	return l.leaves(s.A)
}

// The receipt says where a charge is entered and, as its Mark, how much may be
// taken out there.
func (l *Limit) amendSliding(now *Now, c *Charge, s *State) Receipt {
	receipt := c.Receipt
	diff := c.Cost - c.Receipt.Cost
	receipt.Cost = c.Cost
	if diff > 0 {
		debt := Receipt{Cost: min(diff, max(0, MaxCost-s.C))}
		receipt.Cost -= diff - debt.Cost
		if debt.Cost == 0 {
			return receipt
		}
		debt = l.enter(s, l.entered(now.Steady), debt.Cost)
		if c.Receipt.Cost == 0 || l.leaves(receipt.Instant) <= now.Steady {
			receipt.Instant, receipt.Mark = debt.Instant, 0
		}
		// While the charge itself counts, a refund takes the debt out of its
		// entry too, be it at the expense of others in it: what they lose there
		// stands in the entry of the debt, which leaves later.
		receipt.Mark += debt.Cost
		return receipt
	}
	if refund := min(-diff, receipt.Mark); refund > 0 && s.Live {
		l.withdraw(s, receipt.Instant, refund)
		receipt.Mark -= refund
	}
	return receipt
}

// withdraw takes units out of the entry at at, if it still counts.
func (l *Limit) withdraw(s *State, at, units int64) {
	if at == s.A {
		units = min(units, s.B)
		s.B -= units
	} else {
		i, found := slices.BinarySearchFunc(s.Log, at, compareEntry)
		if !found {
			return
		}
		units = min(units, s.Log[i].Units)
		s.Log[i].Units -= units
	}
	s.C -= units
	for s.B == 0 { // the newest entry must hold something: it dates the state
		last := len(s.Log) - 1
		if last < 0 {
			*s = State{}
			return
		}
		s.A, s.B = s.Log[last].At, s.Log[last].Units
		s.Log = s.Log[:last]
	}
}
