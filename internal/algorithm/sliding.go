package algorithm

import (
	"slices"
)

// SlidingWindow and SlidingLog share one step: charges are entered at an instant and
// expire one window later. The log enters them at their own instant; the window enters
// them at the start of their bucket, so that a bucket expires as a whole.
//
// The newest entry is in the words, and those before it are in the Log. Instants are in microseconds, so a
// state stays readable when the limit changes its numbers. A charge that waits is entered at the
// instant at which it runs and counts from now on, so no later charge overtakes it; everything
// later is entered there or after.
const (
	// Newest and NewestUnits are the newest entry's instant and units.
	Newest, NewestUnits = 0, 1
	// Counted is the units of all entries.
	Counted = 2
	// NewestLead is how far ahead of the present the newest entry was when it was made: 0
	// unless its turn was reserved. An entry further ahead than that was made before the
	// clock was set back.
	NewestLead = 4
)

// The period, and of a SlidingWindow the number of buckets, are part of StateName: a limit
// with others counts by itself, and one with other Units goes on with the count.

func (l *Limit) rebaseSliding(now *Now, s *State) {
	l.lookback.clamp(now.Steady, s)
	l.lookback.drop(now.Steady, s)
}

func (l *Limit) stepSliding(now *Now, c Charge, s *State, r *Result) {
	if s.Live {
		l.rebaseSliding(now, s)
	}
	n := l.spec.Units
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case s.W[Counted]+c.Cost <= n:
		r.Receipt = l.enter(now, s, now.Steady, c.Cost)
	default:
		if free := l.freeAt(s, s.W[Counted]+c.Cost-n); l.lookback.waitUntil(now, l.maxWait(c), free, r) {
			r.Receipt = l.enter(now, s, free, c.Cost)
		}
	}
	r.Remaining = max(0, n-s.W[Counted])
	if s.Live {
		present := l.lookback.tickStart(now.Steady)
		r.ResetAfter = micros(l.lookback.expiry(s.W[Newest]) - present)
		r.MoreAfter = micros(l.freeAt(s, s.W[Counted]+r.Remaining+1-n) - present)
	}
}

// waitUntil answers a charge for which there is room at free, a whole tick. It reports whether the charge
// may wait for that.
func (d lookback) waitUntil(now *Now, within, free int64, r *Result) bool {
	within -= within % d.tick()
	wait := free - d.tickStart(now.Steady)
	if wait > within {
		r.OK, r.RetryAfter = false, micros(wait-within)
		return false
	}
	r.Delay = micros(wait)
	return true
}

// clamp joins what was entered before the clock was set back to one entry, now or at
// the turn that was reserved. Otherwise a key would be denied for as long as the
// difference.
func (d lookback) clamp(at int64, s *State) {
	if s.W[Newest] <= at+s.W[NewestLead] {
		return
	}
	s.W[Newest] = d.entryAt(at + s.W[NewestLead])
	n := len(s.Log)
	for n > 0 && s.Log[n-1].At >= s.W[Newest] {
		n--
		s.W[NewestUnits] += s.Log[n].Units
	}
	s.Log = s.Log[:n:n]
}

// drop removes the entries that no longer count. If the newest entry is in the present bucket, steps have
// entered nothing there that would expire: such entries count with the newest.
func (d lookback) drop(at int64, s *State) {
	if d.expiry(s.W[Newest]) <= at {
		*s = State{}
		return
	}
	gone, units := 0, int64(0)
	for gone < len(s.Log) && d.expiry(s.Log[gone].At) <= at {
		units += s.Log[gone].Units
		gone++
	}
	if s.Log = s.Log[gone:]; gone > 0 && d.buckets > 0 && s.W[NewestLead] == 0 && s.W[Newest] == d.entryAt(at) {
		s.W[NewestUnits] += units
	} else {
		s.W[Counted] -= units
	}
}

// enter adds a charge that runs at an instant. It is entered there, or at the newest entry's
// instant if that is later.
func (l *Limit) enter(now *Now, s *State, at, units int64) Receipt {
	switch entered := l.lookback.entryAt(at); {
	case !s.Live:
		s.Live, s.W[Newest] = true, entered
	case entered > s.W[Newest]:
		s.Log = append(s.Log, Entry{At: s.W[Newest], Units: s.W[NewestUnits]})
		s.W[Newest], s.W[NewestUnits] = entered, 0
	}
	s.W[NewestUnits] += units
	s.W[Counted] += units
	s.W[NewestLead] = max(s.W[Newest]-now.Steady, 0)
	return Receipt{Instant: s.W[Newest], Mark: units, Cost: units}
}

// freeAt returns the instant at which the oldest entries, with units in total, have expired.
func (l *Limit) freeAt(s *State, units int64) int64 {
	for _, e := range s.Log {
		if units -= e.Units; units <= 0 {
			return l.lookback.expiry(e.At)
		}
	}
	return l.lookback.expiry(s.W[Newest])
}

// The receipt says where a charge is entered. Its Mark is how much of the charge that entry
// holds. What a settlement adds is entered there too, as if the charge had cost it from the
// start; if the entry counts no more, now. No entry is empty.
//
// The new receipt depends on the old one alone, since a store may keep the entries elsewhere. An
// entry may be missing only after a Reset: then what is added is entered now.
func (l *Limit) amendSliding(now *Now, c *Settlement, s *State) Receipt {
	receipt := c.Receipt
	diff := c.Cost - c.Receipt.Cost
	receipt.Cost = c.Cost
	counts := receipt.Mark > 0 && l.lookback.expiry(receipt.Instant) > now.Steady
	var entry *int64
	if counts && s.Live {
		entry = s.entry(receipt.Instant)
	}
	switch {
	case diff > 0:
		debt := min(diff, max(0, MaxCost-s.W[Counted]))
		receipt.Cost -= diff - debt
		if debt == 0 {
			break
		}
		if entry != nil {
			*entry += debt
			s.W[Counted] += debt
		} else if entered := l.enter(now, s, now.Steady, debt); !counts {
			receipt.Instant, receipt.Mark = entered.Instant, 0
		}
		receipt.Mark += debt
	case counts:
		refund := min(-diff, receipt.Mark)
		receipt.Mark -= refund
		if entry == nil || refund == 0 {
			break
		}
		refund = min(refund, *entry)
		*entry -= refund
		s.W[Counted] -= refund
		if *entry == 0 {
			s.remove(now, receipt.Instant)
		}
	}
	return receipt
}

// entry returns the units entered at an instant, or nil.
func (s *State) entry(at int64) *int64 {
	if at == s.W[Newest] {
		return &s.W[NewestUnits]
	}
	if i, found := slices.BinarySearchFunc(s.Log, at, compareEntry); found {
		return &s.Log[i].Units
	}
	return nil
}

// remove removes the empty entry at an instant.
func (s *State) remove(now *Now, at int64) {
	last := len(s.Log) - 1
	switch {
	case at != s.W[Newest]:
		i, _ := slices.BinarySearchFunc(s.Log, at, compareEntry)
		s.Log = slices.Delete(s.Log, i, i+1)
	case last < 0:
		*s = State{}
	default: // the one before it is the newest now
		s.W[Newest], s.W[NewestUnits] = s.Log[last].At, s.Log[last].Units
		s.W[NewestLead] = max(s.W[Newest]-now.Steady, 0)
		s.Log = s.Log[:last]
	}
}

// validSliding reports whether a SlidingWindow or SlidingLog can have written the state.
func (s *State) validSliding() bool {
	return s.Numbers == Numbers{} && s.hasOnly(Newest, NewestUnits, Counted, NewestLead) &&
		absBelow(s.W[Newest], remote) && s.W[NewestUnits] > 0 && isCount(s.W[NewestUnits]) && isCount(s.W[Counted]) &&
		0 <= s.W[NewestLead] && s.W[NewestLead] < remote &&
		s.ascends(1, s.W[Newest]) && s.units() == s.W[Counted]-s.W[NewestUnits]
}
