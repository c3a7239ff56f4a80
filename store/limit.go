package store

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/engine"
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
type Limit struct {
	spec Spec
	name string // StateName
	hash uint64 // of StateName

	numbers    engine.Numbers          // of states, where they depend on numbers
	scale      scale                   // rates and SlidingWindow: the unit of instants
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

	decider any // see DecidedBy
}

// Spec returns the Spec from which the limit was made, with defaults filled in.
func (l *Limit) Spec() Spec { return l.spec }

// Name returns the limit's name.
func (l *Limit) Name() string { return l.spec.Name }

// Algorithm returns how the limit counts.
func (l *Limit) Algorithm() Algorithm { return l.spec.Algorithm }

// StateName returns the name under which a store keeps the limit's states. A store finds a
// State by StateName and Charge.Key. StateName contains the limit's name, its algorithm and,
// for windows, the period, because windows of different periods are counted separately.
func (l *Limit) StateName() string { return l.name }

// Tick returns the resolution in which the limit counts time: a microsecond, or up to ten
// milliseconds if its state then fits in one integer. Instants are rounded down to ticks. So a
// charge may pass up to one tick late. In any span of time, the limit may also admit the units
// of one more tick.
func (l *Limit) Tick() time.Duration { return time.Duration(l.scale.Tick()) * time.Microsecond }

// MaxCost is the largest cost of one charge, and the largest Units, Burst and Queue of a limit.
// Within this bound, every sum of costs is exact as a double.
const MaxCost = 1 << 40

// FollowsCalendar reports whether the limit depends on the wall clock (Now.Wall).
func (l *Limit) FollowsCalendar() bool { return l.calendar() || algorithms[l.spec.Algorithm].wall }

func (l *Limit) calendar() bool { return l.spec.Window.kind != noWindow }
