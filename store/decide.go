package store

import (
	"time"
)

// Check reports the first malformed charge. Stores call it before they touch anything:
// a step would divide by the zeros of a Limit that NewLimit didn't make. The error is
// ErrResults, ErrLimit or ErrCost.
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

// Decide answers charges[i] against states[i] at now, in two phases: it looks at every
// limit first, and makes the charges only if none denies. It writes the results in
// both cases and reports whether the decision is granted.
//
// The caller must hold the states exclusively, must have called Check, and must write
// the states back in both cases. A denial charges nothing, but it may change states: bans count
// it, expired entries are dropped, and a state from before the clock was set back is clamped.
// [Limit.Lifetime] says how long each must be kept, if at all.
func Decide(now Now, charges []Charge, states []State, results []Result) bool {
	for i := range charges {
		if states[i].is().Read {
			charges[i].Limit.accept(states[i].is())
		}
	}
	if len(charges) == 1 {
		charges[0].Limit.step(&now, &charges[0], states[0].is(), &results[0])
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
func decide(now Now, charges []Charge, states, were []State, results []Result) bool {
	granted := true
	for i := range charges {
		were[i] = states[i]
		charges[i].Limit.step(&now, &charges[i], states[i].is(), &results[i])
		if !results[i].OK && !charges[i].DryRun {
			granted = false
		}
	}
	if granted {
		return true
	}
	copy(states, were)
	for i := range charges {
		charges[i].Limit.rebase(&now, states[i].is())
	}
	strike(&now, charges, states, results)
	for i := range charges {
		if results[i].OK { // it had room but wasn't charged: report how it stands
			peek := Charge{Limit: charges[i].Limit}
			peek.Limit.step(&now, &peek, states[i].is(), &results[i])
		}
	}
	return false
}

// Amend replaces the cost of the earlier charge c, which carries its receipt, with
// c.Cost: see Store.Settle. The caller must hold the state exclusively and write it
// back. The receipt in r replaces the one in c and is needed to settle again.
func Amend(now Now, c *Charge, s *State, r *Result) {
	l := c.Limit
	l.accept(s.is())
	l.rebase(&now, s.is())
	receipt := l.amend(&now, c, s.is())
	peek := Charge{Limit: l}
	l.step(&now, &peek, s.is(), r)
	receipt.Lease, receipt.Path = c.Receipt.Lease, c.Receipt.Path
	r.Receipt = receipt
}

// Lifetime returns how long s must be kept after the Decide or Amend at now that answered r:
// 0 if it need not be kept at all, and Never while it holds leases, which end when they are
// released. Otherwise it is r.ResetAfter, or longer if receipts may say more than the state's
// refunds allow, if a WarmUp's state is of other numbers, or if a Ban keeps another period's
// denials.
//
// The lifetime of a limit that follows the calendar is by the wall clock. A store that
// counts it by another clock keeps the state for a little longer, in case the wall clock is
// set back.
func (l *Limit) Lifetime(now Now, s *State, r *Result) time.Duration {
	if !s.is().Live {
		return 0
	}
	return l.lifetime(&now, s.is(), r)
}

// longest is the furthest into the future that a turn is reserved or a debt reaches.
const longest = 365 * 24 * time.Hour

// instant is the present as the limit counts it, in microseconds: limits of the
// calendar follow the wall clock, all others a clock that is never set.
func (l *Limit) instant(now *Now) int64 {
	if l.calendar() {
		return now.Wall
	}
	return now.Steady
}

// FollowsCalendar reports whether the limit reads Now.Wall.
func (l *Limit) FollowsCalendar() bool { return l.calendar() || algorithms[l.spec.Algorithm].wall }

func (l *Limit) calendar() bool { return l.spec.Window.kind != noWindow }

// maxWait returns the charge's MaxWait in microseconds, at most the limit's patience.
func (l *Limit) maxWait(c *Charge) int64 {
	return min(int64(max(c.MaxWait, 0)/time.Microsecond), l.patience)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
