package store

import (
	"time"
)

// Check returns an error for the first malformed charge: ErrResults, ErrLimit or ErrCost.
// Stores call Check before they read or write states, because Decide would divide by zero for a
// Limit that NewLimit didn't make.
func Check(charges []Charge, results []Result) error {
	if len(charges) != len(results) {
		return ErrResults
	}
	for i := range charges {
		c := &charges[i]
		if c.Limit == nil || c.Limit.hash == 0 {
			return ErrLimit
		}
		if c.Cost < 0 || c.Cost > MaxCost {
			return ErrCost
		}
	}
	return nil
}

// Decide decides charges[i] on states[i] at the instant now. It checks every limit first, and
// makes the charges only if no limit denies. It writes the results in both cases and reports
// whether the decision is granted.
//
// The caller must hold the states exclusively, must have called Check, and must write the
// states back in both cases. A denial charges nothing, but it may change states: bans count it,
// expired entries are dropped, and a state from before the clock was set back is clamped.
// Limit.Lifetime returns how long each state must be kept.
func Decide(now Now, charges []Charge, states []State, results []Result) bool {
	for i := range charges {
		if states[i].open().Read {
			charges[i].Limit.accept(states[i].open())
		}
	}
	if len(charges) == 1 {
		charges[0].Limit.step(&now, &charges[0], states[0].open(), &results[0])
		return results[0].OK || charges[0].DryRun
	}
	switch n := len(charges); { // clearing room for 8 states takes as long as a step
	case n <= 3:
		var room [3]State
		return decide(now, charges, states, room[:], results)
	case n <= 8:
		var room [8]State
		return decide(now, charges, states, room[:], results)
	default:
		return decide(now, charges, states, make([]State, n), results)
	}
}

// decide is Decide for several charges, with room for the states as they were.
func decide(now Now, charges []Charge, states, before []State, results []Result) bool {
	granted := true
	for i := range charges {
		before[i] = states[i]
		charges[i].Limit.step(&now, &charges[i], states[i].open(), &results[i])
		if !results[i].OK && !charges[i].DryRun {
			granted = false
		}
	}
	if granted {
		return true
	}
	copy(states, before)
	for i := range charges {
		charges[i].Limit.rebase(&now, states[i].open())
	}
	countDenials(&now, charges, states, results)
	for i := range charges {
		if results[i].OK { // it had room but wasn't charged: answer as for a peek
			peek := Charge{Limit: charges[i].Limit}
			peek.Limit.step(&now, &peek, states[i].open(), &results[i])
		}
	}
	return false
}

// Amend replaces the cost of an earlier charge with c.Cost; see [Store.Settle]. c.Receipt is
// the receipt of that charge. The caller must hold the state exclusively and write it back. To
// settle the same charge again, use the receipt in r instead of c.Receipt.
func Amend(now Now, c *Charge, s *State, r *Result) {
	l := c.Limit
	l.accept(s.open())
	l.rebase(&now, s.open())
	receipt := l.amend(&now, c, s.open())
	peek := Charge{Limit: l}
	l.step(&now, &peek, s.open(), r)
	receipt.Lease, receipt.Path = c.Receipt.Lease, c.Receipt.Path
	r.Receipt = receipt
}

// Lifetime returns the time for which s must be kept after the Decide or Amend at now that
// returned r. Lifetime is 0 if s need not be kept, and Never while s has leases. Otherwise it
// is r.ResetAfter, or longer in three cases: later refunds depend on s, s is of a WarmUp with
// other numbers, or s is of a Ban with another period.
//
// For a limit that follows the calendar, Lifetime is measured by the wall clock. A store that
// measures it by another clock keeps the state a little longer, in case the wall clock is set
// back.
func (l *Limit) Lifetime(now Now, s *State, r *Result) time.Duration {
	if !s.open().Live {
		return 0
	}
	return l.lifetime(&now, s.open(), r)
}
