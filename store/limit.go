package store

import (
	"errors"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
)

// None, as a Burst or a Queue, means no burst or no queue; 0 means the default.
const None = -1

// Spec describes a limit. NewLimit checks it and fills in the defaults.
type Spec struct {
	// Name identifies the limit in keys, decisions and header fields. Name is a letter followed
	// by up to 63 of A-Z a-z 0-9 _ . -
	Name string
	// Algorithm is the algorithm by which the limit counts. The default is TokenBucket.
	Algorithm Algorithm
	// Units is the number of units allowed per Period or Window, from 1 to MaxCost. For
	// Concurrency, Units is the number of slots. For Ban, Units is the number of denials that
	// start a ban, at most 1000.
	Units int64
	// Period is the period in which Units are allowed: a multiple of a microsecond, at most two
	// years. A limit has either a Period or a Window; Concurrency has neither.
	Period time.Duration
	// Window is the calendar window in which Units are allowed. Only FixedWindow and
	// IntervalBucket can have a Window.
	Window Window
	// Burst is the capacity of a bucket in units, at most MaxCost. The default is Units. For
	// LeakyBucket, Burst is the number of units beyond the rate that pass without delay; the
	// default is no units. With Debt, the default is the number of units in one second, as in
	// Guava, and None is allowed.
	Burst int64
	// Queue is the number of units that may wait for their turn, at most MaxCost. The default
	// is Units for LeakyBucket and no queue for TokenBucket. Other algorithms have no queue.
	Queue int64
	// Debt lets a charge on a TokenBucket pass if the bucket isn't in debt, even if the tokens
	// don't cover its cost. The uncovered part is a debt, which delays the next charge. A
	// charge never passes if its cost exceeds both Burst + Queue and the units that the rate
	// gives in a year.
	Debt bool
	// WarmUp is the time that a WarmUp limit takes from cold to the full rate: a multiple of a
	// microsecond, at most two years. The algorithm WarmUp requires this field.
	WarmUp time.Duration
	// Ban is the duration of a ban: a positive multiple of a microsecond, at most a year. The
	// algorithm Ban requires this field.
	Ban time.Duration
	// Buckets is the number of buckets into which a SlidingWindow divides its Period, from 1 to
	// 1000. The default is 10.
	Buckets int64
}

// Limit is a checked, immutable rule. Make one with NewLimit. It is safe for concurrent
// use and may be shared by any number of stores.
type Limit algorithm.Limit

// steps returns the limit as the steps know it.
func (l *Limit) steps() *algorithm.Limit { return (*algorithm.Limit)(l) }

// NewLimit checks a Spec, fills in its defaults and returns the limit. The error reports all
// problems at once: it is made by errors.Join and holds a *SpecError for each problem.
func NewLimit(s Spec) (*Limit, error) {
	l, problems := algorithm.New(algorithm.Spec{
		Name: s.Name, Algorithm: algorithm.Algorithm(s.Algorithm), Units: s.Units, Period: s.Period,
		Window: algorithm.Window(s.Window), Burst: s.Burst, Queue: s.Queue, Debt: s.Debt,
		WarmUp: s.WarmUp, Ban: s.Ban, Buckets: s.Buckets,
	})
	if problems == nil {
		return (*Limit)(l), nil
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = (*SpecError)(p)
	}
	return nil, errors.Join(errs...)
}

// Spec returns the Spec from which the limit was made, with defaults filled in.
func (l *Limit) Spec() Spec {
	s := l.steps().Spec()
	return Spec{
		Name: s.Name, Algorithm: Algorithm(s.Algorithm), Units: s.Units, Period: s.Period,
		Window: Window(s.Window), Burst: s.Burst, Queue: s.Queue, Debt: s.Debt,
		WarmUp: s.WarmUp, Ban: s.Ban, Buckets: s.Buckets,
	}
}

// Name returns the limit's name.
func (l *Limit) Name() string { return l.steps().Spec().Name }

// Algorithm returns how the limit counts.
func (l *Limit) Algorithm() Algorithm { return Algorithm(l.steps().Spec().Algorithm) }

// StateName returns the name under which a store keeps the limit's states. A store finds a
// State by StateName and Charge.Key. StateName contains the limit's name, its algorithm and,
// for windows, the period, because windows of different periods are counted separately.
func (l *Limit) StateName() string { return l.steps().StateName() }

// Tick returns the resolution in which the limit counts time: a microsecond, or up to ten
// milliseconds if its state then fits in one integer. Instants are rounded down to ticks. So a
// charge may pass up to one tick late. In any span of time, the limit may also admit the units
// of one more tick.
func (l *Limit) Tick() time.Duration { return l.steps().Tick() }

// MaxCost is the largest cost of one charge, and the largest Units, Burst and Queue of a limit.
// Within this bound, every sum of costs is exact as a double.
const MaxCost = 1 << 40

// FollowsCalendar reports whether the limit depends on the wall clock (Now.Wall).
func (l *Limit) FollowsCalendar() bool { return l.steps().FollowsCalendar() }

// Lifetime returns the time for which s must be kept after the Decide or Amend at now that
// returned r. Lifetime is 0 if s need not be kept, and Never while s has leases. Otherwise it
// is r.ResetAfter, or longer in three cases: later refunds depend on s, s is of a WarmUp with
// other numbers, or s is of a Ban with another period.
//
// For a limit that follows the calendar, Lifetime is measured by the wall clock. A store that
// measures it by another clock keeps the state a little longer, in case the wall clock is set
// back.
func (l *Limit) Lifetime(now Now, s *State, r *Result) time.Duration {
	return l.steps().Lifetime((*algorithm.Now)(&now), s.open(), (*algorithm.Result)(r))
}
