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
	// Name identifies the limit in keys, answers and header fields. It is a letter
	// followed by up to 63 of A-Z a-z 0-9 _ . -
	Name string
	// Algorithm says how the limit counts. The default is TokenBucket.
	Algorithm Algorithm
	// Units is how many units pass per Period or Window, from 1 to MaxCost. For
	// Concurrency it is the number of slots; for Ban the number of denials that start
	// a ban, at most 1000.
	Units int64
	// Period is the time that Units belong to: a multiple of a microsecond, at most two
	// years. A limit has either a Period or a Window; Concurrency has neither.
	Period time.Duration
	// Window is the calendar window that Units belong to, for FixedWindow and
	// IntervalBucket only.
	Window Window
	// Burst is the capacity of a bucket in units, at most MaxCost. The default is Units. For
	// LeakyBucket it is the number of units beyond the rate that pass without delay; the
	// default is none. With Debt, the default is one second's worth of the rate, as in Guava,
	// and None is allowed.
	Burst int64
	// Queue is how many units may wait for their turn, at most MaxCost. The default is
	// Units for LeakyBucket and none for TokenBucket; no other algorithm has one.
	Queue int64
	// Debt lets a charge on a TokenBucket pass as soon as earlier charges are paid for; the
	// next charge waits for the part of its cost that isn't covered. A charge never passes if
	// its cost exceeds both Burst + Queue and the units that the rate gives in a year.
	Debt bool
	// WarmUp is the time a WarmUp limit takes from cold to the full rate: a multiple of
	// a microsecond, at most two years. WarmUp requires it.
	WarmUp time.Duration
	// Ban is how long a Ban denies: a positive multiple of a microsecond, at most a
	// year. Ban requires it.
	Ban time.Duration
	// Buckets is the number of buckets that a SlidingWindow cuts its Period into, from
	// 1 to 1000. The default is 10.
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

// Spec returns the Spec the limit was made from, with defaults filled in.
func (l *Limit) Spec() Spec { return l.spec }

// Name returns the limit's name.
func (l *Limit) Name() string { return l.spec.Name }

// Algorithm returns how the limit counts.
func (l *Limit) Algorithm() Algorithm { return l.spec.Algorithm }

// StateName returns the name under which a store keeps the limit's states: the limit's name,
// its algorithm and, for windows, the period, since windows of different periods are counted
// separately. A store finds a State by StateName and Charge.Key.
func (l *Limit) StateName() string { return l.name }

// Tick returns the resolution in which the limit counts time: a microsecond, or up to ten
// milliseconds if that lets one integer hold its state. Instants are rounded down to ticks. So
// a charge may pass up to one tick later than by exact time, and in any span of time, the units
// of one tick may pass in addition to the limit's.
func (l *Limit) Tick() time.Duration { return time.Duration(l.scale.Tick()) * time.Microsecond }

// MaxCost is the largest cost of one charge, and the largest Units, Burst and Queue of
// a limit. It keeps every sum of costs exact in a double.
const MaxCost = 1 << 40

// FollowsCalendar reports whether the limit reads Now.Wall.
func (l *Limit) FollowsCalendar() bool { return l.calendar() || algorithms[l.spec.Algorithm].wall }

func (l *Limit) calendar() bool { return l.spec.Window.kind != noWindow }
