package store

import (
	"time"

	"github.com/stint-go/stint/internal/algorithm"
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
		if c.Limit == nil || c.Limit.steps().Hash() == 0 {
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
			charges[i].Limit.steps().Accept(states[i].open())
		}
	}
	if len(charges) == 1 {
		charges[0].step(&now, &states[0], &results[0])
		return results[0].OK || charges[0].DryRun
	}
	switch n := len(charges); { // clearing room for 8 states takes as long as a step
	case n <= 3:
		var room [3]State
		return decide(&now, charges, states, room[:], results)
	case n <= 8:
		var room [8]State
		return decide(&now, charges, states, room[:], results)
	default:
		return decide(&now, charges, states, make([]State, n), results)
	}
}

// step decides the charge alone.
func (c *Charge) step(now *Now, s *State, r *Result) {
	asked := algorithm.Charge{Cost: c.Cost, MaxWait: c.MaxWait}
	c.Limit.steps().Step((*algorithm.Now)(now), asked, s.open(), (*algorithm.Result)(r))
}

// decide is Decide for several charges, with room for the states as they were.
func decide(now *Now, charges []Charge, states, before []State, results []Result) bool {
	granted := true
	for i := range charges {
		before[i] = states[i]
		charges[i].step(now, &states[i], &results[i])
		if !results[i].OK && !charges[i].DryRun {
			granted = false
		}
	}
	if granted {
		return true
	}
	copy(states, before)
	for i := range charges {
		charges[i].Limit.steps().Rebase((*algorithm.Now)(now), states[i].open())
	}
	countDenials(now, charges, states, results)
	for i := range charges {
		if results[i].OK { // it had room but wasn't charged: answer as for a peek
			peek := Charge{Limit: charges[i].Limit, MaxWait: charges[i].MaxWait}
			peek.step(now, &states[i], &results[i])
		}
	}
	return false
}

// countDenials has the bans of a denied decision count it, if their charges say that it is final. A user
// isn't banned because the service is full, so denials of other keys don't count. While a ban denies, no ban
// counts.
func countDenials(now *Now, charges []Charge, states []State, results []Result) {
	for i := range charges {
		if charges[i].isBan() && !results[i].OK && !charges[i].DryRun {
			return
		}
	}
	for i := range charges {
		c := &charges[i]
		if !c.isBan() || !c.Final || c.Cost == 0 || !results[i].OK {
			continue
		}
		for j := range charges {
			o := &charges[j]
			if !results[j].OK && !o.DryRun && o.Key == c.Key && o.Limit.steps().DenialCounts() {
				begun := c.Limit.steps().CountDenial((*algorithm.Now)(now), states[i].open())
				c.step(now, &states[i], &results[i])
				results[i].Begun = begun
				break
			}
		}
	}
}

// BanFor bans the key of a state for d, which is rounded up to microseconds, unless a ban that ends later is in
// force; see [Banner]. The denials that the Ban has counted still count. l must be a Ban, and d a time that
// [CheckBan] accepts. The caller must hold the state exclusively and write it back. r is the result for the key
// after the call; its Begun reports whether the ban in force is this one.
func BanFor(now Now, l *Limit, d time.Duration, s *State, r *Result) {
	l.steps().BanFor((*algorithm.Now)(&now), microseconds(d), s.open(), (*algorithm.Result)(r))
}

// CheckBan returns an error for a [Banner.Ban] that is malformed: ErrLimit for a limit that isn't a Ban, and
// ErrBan for a time below a millisecond or above 365 days.
func CheckBan(d time.Duration, limits ...*Limit) error {
	for _, l := range limits {
		if l == nil || l.steps().Hash() == 0 || l.Algorithm() != Ban {
			return ErrLimit
		}
	}
	if d < time.Millisecond || d > longestBan {
		return ErrBan
	}
	return nil
}

const longestBan = 365 * 24 * time.Hour

// microseconds returns a duration in microseconds, rounded up.
func microseconds(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func (c *Charge) isBan() bool { return c.Limit.Algorithm() == Ban }

// Amend replaces the cost of an earlier charge with c.Cost; see [Store.Settle]. c.Receipt is
// the receipt of that charge. The caller must hold the state exclusively and write it back. To
// settle the same charge again, use the receipt in r instead of c.Receipt.
func Amend(now Now, c *Charge, s *State, r *Result) {
	settlement := algorithm.Settlement{Cost: c.Cost, MaxWait: c.MaxWait, Receipt: c.Receipt}
	c.Limit.steps().Amend((*algorithm.Now)(&now), &settlement, s.open(), (*algorithm.Result)(r))
}
