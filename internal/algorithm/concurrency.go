package algorithm

import (
	"encoding/binary"
	"math"
	"slices"
)

// A Concurrency's State.Log holds one entry per lease, in the order in which they were given, with the
// number of slots it holds (0 once released, until the log is next tidied). Releasing looks up the lease
// by id, so releasing one that was never held, or was already released, frees nothing.

// Held is the number of slots held.
const Held = 0

// sequence is the lease's place in the log: ids are drawn in ascending order.
func sequence(id LeaseID) int64 { return int64(binary.BigEndian.Uint64(id[:8])) }

func (l *Limit) workOutConcurrency() { l.largest = l.spec.Units }

func (l *Limit) stepConcurrency(now *Now, c Charge, s *State, r *Result) {
	*r = Result{OK: true}
	held := s.W[Held]
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case held+c.Cost > l.largest:
		r.OK = false // until a slot is released: the time is unknown
	default:
		held += c.Cost
		s.Live, s.W[Held] = true, held
		s.Log = append(s.Log, Entry{At: sequence(now.Lease), Units: c.Cost})
		r.Receipt = Receipt{Cost: c.Cost, Lease: now.Lease}
	}
	r.Remaining, r.Held = max(0, l.largest-held), held
}

func (l *Limit) amendConcurrency(c *Settlement, s *State) Receipt {
	i, found := slices.BinarySearchFunc(s.Log, sequence(c.Receipt.Lease), compareEntry)
	if !found || s.Log[i].Units == 0 {
		return Receipt{Cost: c.Cost}
	}
	holds := min(c.Cost, s.Log[i].Units+max(0, MaxCost-s.W[Held]))
	s.W[Held] += holds - s.Log[i].Units
	s.Log[i].Units = holds
	s.dropReleased()
	if s.W[Held] == 0 {
		*s = State{Log: s.Log[:0]}
	}
	return Receipt{Cost: c.Cost}
}

// dropReleased drops released leases once they are half of the log: otherwise one lease held
// for long would keep all that came after it.
func (s *State) dropReleased() {
	for len(s.Log) > 0 && s.Log[len(s.Log)-1].Units == 0 {
		s.Log = s.Log[:len(s.Log)-1]
	}
	if int64(len(s.Log)) > 2*s.W[Held]+8 {
		s.Log = slices.DeleteFunc(s.Log, func(e Entry) bool { return e.Units == 0 })
	}
}

// validConcurrency reports whether a Concurrency can have written the state.
func (s *State) validConcurrency() bool {
	return s.Numbers == Numbers{} && s.hasOnly(Held) && s.ascends(0, math.MaxInt64) && s.units() == s.W[Held]
}
