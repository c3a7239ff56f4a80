package algorithm

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limit is a rule: store.Limit, which converts to it.
type Limit struct {
	spec Spec
	name string // StateName
	hash uint64 // of StateName

	numbers    Numbers                 // of states, where they depend on numbers
	scale      Scale                   // rates and SlidingWindow: the unit of instants
	token      int64                   // rates: units of one token; SlidingWindow: of one bucket
	tokens     divisor                 // buckets: units in tokens
	capacity   int64                   // buckets: units that pass at once; IntervalBucket: tokens
	queue      int64                   // buckets: units that may be reserved beyond capacity
	year       int64                   // rates: the units of a year, the furthest that a turn or a debt reaches
	largest    int64                   // the largest cost that can ever pass
	full       int64                   // what is left of a key that has used nothing
	period     int64                   // microseconds
	warm       int64                   // WarmUp: units of the whole warm-up
	patience   int64                   // the longest MaxWait that counts, in microseconds
	lookback   lookback                // SlidingWindow, SlidingLog
	lastBounds *atomic.Pointer[bounds] // of a calendar Window

	decider    any   // see DecidedBy
	leastBurst int64 // see WithLeastBurst
}

// Spec returns the Spec from which the limit was made, with defaults filled in. The caller must not change it.
func (l *Limit) Spec() *Spec { return &l.spec }

// StateName returns the name under which a store keeps the limit's states.
func (l *Limit) StateName() string { return l.name }

// Hash distinguishes limits of different StateName within this process. It is seeded anew in
// every process, and never 0 for a Limit made by New.
func (l *Limit) Hash() uint64 { return l.hash }

// Largest returns the largest cost that can ever pass.
func (l *Limit) Largest() int64 { return l.largest }

// Full returns how many units are left of a key that has used none, for charges with a MaxWait.
func (l *Limit) Full(maxWait time.Duration) int64 {
	queue := max(l.spec.Queue, 0) * l.token // also of a limit that is Unqueued
	if queue == 0 || maxWait <= 0 {
		return l.full
	}
	return (l.capacity + min(queue, l.allowed(Charge{MaxWait: maxWait}))) / l.token
}

// Tick returns the resolution in which the limit counts time.
func (l *Limit) Tick() time.Duration { return time.Duration(l.scale.Tick()) * time.Microsecond }

// HasBurst reports whether the algorithm has a burst, as Spec.Burst sets it.
func (l *Limit) HasBurst() bool { return algorithms[l.spec.Algorithm].burst }

// FollowsCalendar reports whether the limit depends on the wall clock (Now.Wall).
func (l *Limit) FollowsCalendar() bool { return l.calendar() || algorithms[l.spec.Algorithm].wall }

func (l *Limit) calendar() bool { return l.spec.Window.kind != noWindow }

// DecidedBy returns a copy of the limit that a composite store decides in its own way.
// That store recognizes it by Decider. All other stores ignore the mark.
func (l *Limit) DecidedBy(decider any) *Limit {
	d := *l
	d.decider = decider
	return &d
}

// Unqueued returns a copy of the limit, with the same states, whose charges don't wait in its queue.
func (l *Limit) Unqueued() *Limit {
	d := *l
	d.queue = 0
	return &d
}

// WithLeastBurst returns a copy of the limit, a bucket whose parts have a burst of units or more.
func (l *Limit) WithLeastBurst(units int64) *Limit {
	d := *l
	d.leastBurst = units
	return &d
}

// Part returns the limit's part for one of n processes: an n-th of its units and of its burst, rounded up. A Ban,
// and a limit that a composite store decides, isn't divided.
func (l *Limit) Part(n int64) *Limit {
	if n <= 1 || l.spec.Algorithm == Ban || l.decider != nil {
		return l
	}
	spec := l.spec
	spec.Units = (spec.Units + n - 1) / n
	if spec.Burst > 0 {
		spec.Burst = max((spec.Burst+n-1)/n, min(l.leastBurst, spec.Burst))
	}
	part, problems := New(spec)
	if problems != nil { // a rate of fewer units isn't worse than that of more
		return l
	}
	part.leastBurst = l.leastBurst
	if l.queue == 0 && l.spec.Queue > 0 {
		part = part.Unqueued()
	}
	return part
}

// Whole returns what a charge of more than the limit ever admits at once costs, if it must pass all the same.
func (l *Limit) Whole(maxWait time.Duration) int64 {
	if l.spec.Debt || l.spec.Algorithm == WarmUp { // a debt pays for the rest
		return l.largest
	}
	return l.Full(maxWait)
}

// Decider returns the value given to DecidedBy, or nil for a limit that every store
// decides.
func (l *Limit) Decider() any { return l.decider }

// Terms are a limit's numbers as its steps use them, for a store that runs the steps
// elsewhere, such as in a server's script.
type Terms struct {
	// Numbers are the numbers that the limit's states are written under.
	Numbers Numbers
	// Scale is the unit of a rate's instants, or of a SlidingWindow's buckets.
	Scale Scale
	// Token is the units of one token of a rate, or of one bucket of a SlidingWindow.
	Token int64
	// Capacity is the units that pass at once; Queue those that may be reserved beyond it. They
	// are in units of Scale for a TokenBucket or LeakyBucket, otherwise in tokens.
	Capacity, Queue int64
	// Largest is the largest cost that can ever pass.
	Largest int64
	// Period is in microseconds; 0 for calendar windows.
	Period int64
	// Warm is the whole warm-up of a WarmUp, in units of Scale.
	Warm int64
	// Longest is the furthest into the future that a turn is reserved or a debt
	// reaches, in units of Scale.
	Longest int64
	// Patience is the longest MaxWait that counts, in microseconds. Longer ones are
	// treated as this.
	Patience int64
}

// Terms returns the numbers that the limit's steps use.
func (l *Limit) Terms() Terms {
	return Terms{
		Numbers: l.numbers, Scale: l.scale, Token: l.token,
		Capacity: l.capacity, Queue: l.queue, Largest: l.largest,
		Period: l.period, Warm: l.warm, Longest: l.year, Patience: l.patience,
	}
}

// Veto returns a Concurrency of one slot whose name New denies, so it never equals another limit's.
var Veto = sync.OnceValue(func() *Limit {
	l, problems := New(Spec{Name: "veto", Algorithm: Concurrency, Units: 1})
	if problems != nil {
		panic(problems)
	}
	l.spec.Name = "-veto"
	l.workOutName()
	return l
})

// instant is the present as the limit counts it, in microseconds: limits of the
// calendar follow the wall clock, all others a clock that is never set.
func (l *Limit) instant(now *Now) int64 {
	if l.calendar() {
		return now.Wall
	}
	return now.Steady
}

// maxWait returns the charge's MaxWait in microseconds, at most the limit's patience.
func (l *Limit) maxWait(c Charge) int64 {
	return min(int64(max(c.MaxWait, 0)/time.Microsecond), l.patience)
}
