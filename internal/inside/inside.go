// Package inside has what the packages of this module need of limits, states and windows, beside
// what the author of a store needs. No other module can import it.
package inside

import (
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/store"
)

// State returns the words of a state.
func State(s *store.State) *algorithm.State { return (*algorithm.Sealed)(s).Open() }

// Limit returns the limit as the steps know it.
func Limit(l *store.Limit) *algorithm.Limit { return (*algorithm.Limit)(l) }

// Hash distinguishes limits of different StateName within this process. It is seeded anew in
// every process, and never 0 for a Limit made by NewLimit.
func Hash(l *store.Limit) uint64 { return Limit(l).Hash() }

// Terms returns the numbers that the limit's steps use.
func Terms(l *store.Limit) algorithm.Terms { return Limit(l).Terms() }

// Full returns how many units are left of a key that has used none, for charges with a MaxWait.
func Full(l *store.Limit, maxWait time.Duration) int64 { return Limit(l).Full(maxWait) }

// HasBurst reports whether the limit's algorithm has a burst, as Spec.Burst sets it.
func HasBurst(l *store.Limit) bool { return Limit(l).HasBurst() }

// MoreAfter returns the time after which more units are left than r says, or after
// which the charge that r denies passes, whichever comes first. known is false for
// Concurrency: the time until a slot is released is unknown.
func MoreAfter(l *store.Limit, r *store.Result) (after time.Duration, known bool) {
	if l.Algorithm() == store.Concurrency {
		return 0, false
	}
	if after = r.MoreAfter; !r.OK && r.RetryAfter > 0 {
		after = min(after, r.RetryAfter) // Never is the largest Duration
	}
	return after, true
}

// Without returns the receipt that a charge on a TokenBucket would have if its last
// tokens had been a separate charge made after it.
func Without(l *store.Limit, r store.Receipt, tokens int64) store.Receipt {
	r.Mark -= tokens * Terms(l).Token
	r.Cost -= tokens
	return r
}

// DecidedBy returns a copy of the limit that a composite store decides in its own way.
// That store recognizes it by Decider. All other stores ignore the mark.
func DecidedBy(l *store.Limit, decider any) *store.Limit {
	return (*store.Limit)(Limit(l).DecidedBy(decider))
}

// Unqueued returns a copy of the limit, with the same states, whose charges don't wait in its queue: only
// Charge.MaxWait lets them reserve a turn.
func Unqueued(l *store.Limit) *store.Limit { return (*store.Limit)(Limit(l).Unqueued()) }

// WithLeastBurst returns a copy of the limit, with the same states, whose parts have a burst of units or more.
func WithLeastBurst(l *store.Limit, units int64) *store.Limit {
	return (*store.Limit)(Limit(l).WithLeastBurst(units))
}

// Part returns the limit's part for one of n processes, with the same states.
func Part(l *store.Limit, n int64) *store.Limit { return (*store.Limit)(Limit(l).Part(n)) }

// Alone returns how long a charge waits if nothing else is in use: with a shorter MaxWait it never passes.
func Alone(c *store.Charge) time.Duration { return Limit(c.Limit).Alone(c.Cost) }

// PartCost returns what a charge costs a part of its limit: a cost above the part costs the whole part, unless it
// exceeds what the limit itself ever admits.
func PartCost(c *store.Charge, part *store.Limit) int64 {
	if whole := Limit(part).Whole(c.MaxWait); c.Cost > whole && c.Cost <= Limit(c.Limit).Largest() {
		return whole
	}
	return c.Cost
}

// Decider returns the value given to DecidedBy, or nil for a limit that every store
// decides.
func Decider(l *store.Limit) any { return Limit(l).Decider() }

// Veto returns a charge that every store denies, so that nothing in the same Take is
// charged: a composite store whose own limits deny adds it to the charges of the store
// below, which then answers what it would have answered. Charge the key of one of the
// others, since stores may keep keys apart. It is a Concurrency, so no Ban counts its denial. No
// other limit has its name.
func Veto(key string) store.Charge {
	return store.Charge{Key: key, Limit: (*store.Limit)(algorithm.Veto()), Cost: 2}
}

// Counts reports whether a Ban counts a denial of c, where ban is a charge on the Ban in
// the same decision: see store.Ban.
func Counts(c, ban *store.Charge) bool {
	return c.Key == ban.Key && Limit(c.Limit).DenialCounts()
}

// Around returns the calendar window that contains wall, in microseconds since store.Epoch,
// with the given numbers of windows before and after it.
func Around(w store.Window, wall int64, before, after int) []algorithm.Span {
	return algorithm.Window(w).Around(wall, before, after)
}

// Fixed returns the length of a window made by store.Every, and how long after the Unix epoch one begins, in
// microseconds. For all others ok is false: their lengths vary (see Around).
func Fixed(w store.Window) (length, from int64, ok bool) { return algorithm.Window(w).Fixed() }

// Nominal returns the approximate length of a window in microseconds: that of the
// longest window in a location whose clocks never change.
func Nominal(w store.Window) int64 { return algorithm.Window(w).Nominal() }

// NewSpecError returns a SpecError. problem and write are formats with a %v for each of
// names, which are names of Go's: an Algorithm, or a text such as "time.Second". Without
// names both are taken as they are.
func NewSpecError(field, problem, write string, names ...any) *store.SpecError {
	return (*store.SpecError)(algorithm.NewProblem(field, problem, write, names...))
}

// Granted reports whether the decision is granted: no limit denies, except dry runs.
func Granted(charges []store.Charge, results []store.Result) bool {
	for i := range results {
		if !results[i].OK && !charges[i].DryRun {
			return false
		}
	}
	return true
}

// AnswersAtOnce reports whether s implements store.Immediate and answers at once.
func AnswersAtOnce(s store.Store) bool {
	i, ok := s.(store.Immediate)
	return ok && i.AnswersAtOnce()
}

// EndsWithin reports whether a Take or a Settle of s takes d at the most, whatever its
// context: s answers at once, or is store.Bounded.
func EndsWithin(s store.Store, d time.Duration) bool {
	if AnswersAtOnce(s) {
		return true
	}
	b, ok := s.(store.Bounded)
	return ok && 0 < b.Timeout() && b.Timeout() <= d
}
