package algorithm

import "time"

// What the states of token, leaky and interval buckets keep, so that no refund gives back more than the
// bucket has had in use at any moment since the charge. Most keep nothing: then receipts alone say how much that is.
// The Log has the levels (levels.go).
const (
	// KeptUntil is the instant, by Now.Steady, until which RefundsFrom and the levels are kept, or 0 if
	// there are none. By then the Marks that they correct are in the past, so those receipts give nothing
	// back anyway.
	KeptUntil = 3
	// RefundsFrom is the instant from which on charges are refunded. Earlier charges were made under other
	// numbers, or before the clock was set back. So may some of this very instant have been: the first charge under
	// new numbers is of the instant at which they begin.
	RefundsFrom = 4
)

// earliest is an instant before all others.
const earliest = -exact / 2

// refunds reports whether a charge may be refunded at all. A receipt from the future was made before the
// clock was set back, by a state that is no more.
func (s *State) refunds(r *Receipt, at int64) bool {
	return r.Instant <= at && (s.W[KeptUntil] == 0 || r.Instant >= s.W[RefundsFrom])
}

// lowestUse returns the lowest use since a charge. The bucket has used in use at the present, at. from is the instant
// at which the charge's Mark bounds the refund, too: without levels it is since, and with levels it is the earliest
// instant after the charge that they cover.
func (s *State) lowestUse(r *Receipt, at, since, used int64) (low, from int64) {
	switch {
	case !s.refunds(r, at):
		return 0, since
	case len(s.Log) == 0:
		return used, since
	}
	low, from = levels(s.Log).since(r.Instant)
	return min(low, used), from
}

// noteCharge records that a charge, or a debt, has raised the use from before to after. Without levels the
// receipts know that. waits is set if the charge waits, or if charges wait when the debt is made.
func (s *State) noteCharge(at, before, after int64, waits bool) {
	if len(s.Log) > 0 {
		s.Log = levels(s.Log).charge(at, before, after, waits)
	}
}

// noteRefund records that back units of a charge, made at chargedAt, have been given back. used was in use before the
// refund. If the charge was the last one, and none was refunded before, no other receipt says too much.
func (s *State) noteRefund(now, used, chargedAt, back int64, last bool, keptUntil int64) {
	if last && len(s.Log) == 0 {
		return
	}
	if len(s.Log) == 0 {
		s.Log = startLevels(now, used)
	}
	s.Log = levels(s.Log).lower(used).refund(chargedAt, back)
	s.keepNotes(keptUntil)
}

// noteNumbers records that the state gets other numbers at an instant. Tokens of two sizes can't be told apart, so no
// charge of an earlier instant is refunded, even if the numbers change back.
func (s *State) noteNumbers(at, keptUntil int64) {
	s.keepNotes(keptUntil)
	s.refuseRefunds(at, s.W[KeptUntil])
}

// refuseRefunds lets no charge made before an instant be refunded.
func (s *State) refuseRefunds(before, keptUntil int64) {
	s.W[KeptUntil], s.W[RefundsFrom], s.Log = keptUntil, before, nil
}

// keepNotes keeps RefundsFrom and the levels at least until an instant.
func (s *State) keepNotes(until int64) {
	if s.W[KeptUntil] == 0 {
		s.W[KeptUntil], s.W[RefundsFrom] = until, earliest
	}
	s.W[KeptUntil] = max(s.W[KeptUntil], until)
}

// dropNotes drops what is kept for refunds.
func (s *State) dropNotes() { s.W[KeptUntil], s.W[RefundsFrom], s.Log = 0, 0, nil }

// lastNoted returns the latest instant that is kept for refunds.
func (s *State) lastNoted() int64 {
	if n := len(s.Log); n > 0 {
		return max(s.W[RefundsFrom], s.Log[n-1].At)
	}
	return s.W[RefundsFrom]
}

// lifetimeBucket returns how long a bucket's state differs from that of a new key.
func (s *State) lifetimeBucket(now *Now, r *Result) time.Duration {
	if s.W[KeptUntil] == 0 {
		return r.ResetAfter
	}
	return max(r.ResetAfter, micros(s.W[KeptUntil]-now.Steady))
}

// validNotes reports whether KeptUntil, RefundsFrom and the Log are as a bucket writes them.
func (s *State) validNotes() bool {
	for i, e := range s.Log {
		if i > 0 && e.Units < s.Log[i-1].Units || e.Units >= exact {
			return false
		}
	}
	until, from := s.W[KeptUntil], s.W[RefundsFrom]
	return absBelow(until, remote) && -exact < from && from < remote &&
		(until != 0 || from == 0 && len(s.Log) == 0) && len(s.Log) <= maxLevels && s.ascends(0, remote)
}
