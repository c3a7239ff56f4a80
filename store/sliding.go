package store

import "slices"

// SlidingWindow and SlidingLog share one step: charges are entered at an instant and
// leave one window later. The log enters them at their own instant; the window enters
// them at the start of their bucket, so that a bucket leaves as a whole.
//
// State.A and State.B are the newest entry's instant and units, State.Log the entries
// before it, and State.C the sum of all. Instants are in microseconds, so a state stays
// readable when the limit changes its numbers. A charge that waits is entered at the
// instant at which it runs and counts from now on, so nobody overtakes it; everything
// later is entered there or after.
//
// State.E is how far ahead of the present the newest entry was when it was made: 0
// unless its turn was reserved. An entry further ahead than that was made before the
// clock was set back.

// slide is the span that a SlidingWindow or SlidingLog looks back on. For a log it is
// Token microseconds; for a window it is a number of buckets of Token units each.
type slide struct {
	scale          Scale // windows only
	token, buckets int64
}

// slideOf returns the slide for the Numbers of a state.
func slideOf(n Numbers) slide {
	return slide{scale: ScaleOf(n.Unit >> 10), token: n.Token, buckets: n.Unit & 1023}
}

func (d slide) numbers() Numbers {
	return Numbers{Token: d.token, Unit: d.scale.Code()<<10 | d.buckets}
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

func (l *Limit) rebaseSliding(now *Now, s *State) {
	at := now.Steady
	if s.Numbers != l.numbers { // what no longer counted then must not count again
		was := slideOf(s.Numbers)
		was.clamp(at, s)
		if was.drop(at, s); !s.Live {
			return
		}
		s.Numbers = l.numbers
	}
	l.slide.clamp(at, s)
	l.slide.drop(at, s)
}

func (l *Limit) stepSliding(now *Now, c *Charge, s *State, r *Result) {
	l.rebase(now, s)
	at, n := now.Steady, l.spec.Units
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case s.C+c.Cost <= n:
		r.Receipt = l.enter(now, s, l.slide.entered(at), c.Cost)
	default:
		free := l.frees(s, s.C+c.Cost-n)
		if wait := free - at; wait > l.maxWait(c) {
			r.OK, r.RetryAfter = false, micros(wait-l.maxWait(c))
		} else {
			r.Delay = micros(wait)
			r.Receipt = l.enter(now, s, l.slide.entered(free), c.Cost)
		}
	}
	r.Remaining = max(0, n-s.C)
	if s.Live {
		r.ResetAfter = micros(l.slide.leaves(s.A) - at)
	}
}

// clamp moves what was entered before the clock was set back into one entry, now or at
// the turn that was reserved. Otherwise a key would be refused for as long as the
// difference.
func (d slide) clamp(at int64, s *State) {
	if s.A <= at+s.E {
		return
	}
	s.A = d.entered(at + s.E)
	n := len(s.Log)
	for n > 0 && s.Log[n-1].At >= s.A {
		n--
		s.B += s.Log[n].Units
	}
	s.Log = s.Log[:n:n]
}

// drop removes what no longer counts.
func (d slide) drop(at int64, s *State) {
	if d.leaves(s.A) <= at {
		*s = State{}
		return
	}
	gone := 0
	for gone < len(s.Log) && d.leaves(s.Log[gone].At) <= at {
		s.C -= s.Log[gone].Units
		gone++
	}
	s.Log = s.Log[gone:]
}

// enter adds an entry at at, or at the newest entry's instant if that is later.
func (l *Limit) enter(now *Now, s *State, at, units int64) Receipt {
	switch {
	case !s.Live:
		s.Live, s.Numbers, s.A = true, l.numbers, at
	case at > s.A:
		s.Log = append(s.Log, Entry{At: s.A, Units: s.B})
		s.A, s.B = at, 0
	}
	s.B += units
	s.C += units
	s.E = max(s.A-now.Steady, 0)
	return Receipt{Instant: s.A, Mark: units, Cost: units}
}

// frees returns the instant at which the oldest entries, with units in total, have
// left.
func (l *Limit) frees(s *State, units int64) int64 {
	for _, e := range s.Log {
		if units -= e.Units; units <= 0 {
			return l.slide.leaves(e.At)
		}
	}
	return l.slide.leaves(s.A)
}

// The receipt says where a charge is entered. Its Mark is how much may be taken out of
// that entry.
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
		debt = l.enter(now, s, l.slide.entered(now.Steady), debt.Cost)
		if c.Receipt.Cost == 0 || l.slide.leaves(receipt.Instant) <= now.Steady {
			receipt.Instant, receipt.Mark = debt.Instant, 0
		}
		// While the charge itself counts, a refund takes the debt out of the charge's
		// entry too, even at the expense of others in it: what they lose there stands
		// in the debt's entry, which leaves later.
		receipt.Mark += debt.Cost
		return receipt
	}
	if refund := min(-diff, receipt.Mark); refund > 0 && s.Live {
		s.withdraw(now, receipt.Instant, refund)
		receipt.Mark -= refund
	}
	return receipt
}

// withdraw takes units out of the entry at at, if it still counts.
func (s *State) withdraw(now *Now, at, units int64) {
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
	for s.B == 0 { // the newest entry must hold something, since it dates the state
		last := len(s.Log) - 1
		if last < 0 {
			*s = State{}
			return
		}
		s.A, s.B = s.Log[last].At, s.Log[last].Units
		s.E = max(s.A-now.Steady, 0)
		s.Log = s.Log[:last]
	}
}
