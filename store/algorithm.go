package store

import (
	"strconv"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// Algorithm says how a limit counts. The zero value is TokenBucket.
type Algorithm uint8

const (
	// TokenBucket starts full with Burst tokens and refills continuously at Units per
	// Period. A charge passes if its cost in tokens is there. The state is one integer,
	// the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371).
	TokenBucket Algorithm = iota
	// IntervalBucket starts full with Burst tokens. Units tokens arrive together at the
	// end of each Period, counted from the first charge, or at the end of each Window.
	// Unused tokens are kept up to Burst.
	IntervalBucket
	// LeakyBucket is a queue that drains at Units per Period. A charge waits for its
	// turn (Result.Delay) and is denied if the Queue is full. The first Burst units
	// beyond the rate pass without delay: nginx's limit_req with burst=B delay=D is
	// Burst D, Queue B-D.
	LeakyBucket
	// FixedWindow allows Units per window. The window opens at a key's first charge, or
	// is a calendar Window. Up to twice Units can pass in a short time across the
	// boundary of two windows.
	FixedWindow
	// SlidingWindow can let up to twice Units pass within one Period, which a SlidingLog
	// and a TokenBucket with a Burst of 1 don't. It cuts the Period into Buckets and allows
	// Units in the current bucket and the Buckets-1 before it.
	SlidingWindow
	// SlidingCounter estimates a sliding window from the counts of two fixed windows
	// aligned to 1970. It assumes that the charges of the previous window were spread
	// evenly. The state has a constant size.
	SlidingCounter
	// SlidingLog remembers every charge for one Period. It is exact and takes 16 bytes
	// for each charge in the window.
	SlidingLog
	// WarmUp permits a third of the rate when cold. The permitted rate rises to the
	// full rate while the limit is used for the WarmUp period, and falls again when it
	// is idle. A charge waits for those before it; its own cost is paid by the next.
	// The curve is that of Guava's SmoothWarmingUp with cold factor 3.
	WarmUp
	// Concurrency allows Units slots to be held at a time. A charge holds a lease until
	// it is settled at cost 0.
	Concurrency
	// Ban denies everything for the Ban period once a key has been denied Units times
	// within Period. A charge on a Ban costs nothing. It counts the decisions it is
	// part of in which another limit denies the same key, except a slot that the charge
	// may wait for (Charge.MaxWait), since whoever waits asks repeatedly: see Decide.
	Ban
)

// What follows is what a Spec of each algorithm may say, and which of its functions answers. Beyond
// its own file, only state.fits names an algorithm, too: which states it can have written. Those are
// switches rather than a table of functions: arguments of an indirect call escape, and every charge
// would allocate its state.

// traits are the properties of an algorithm that NewLimit checks a Spec by.
type traits struct {
	name     string
	letter   string // in StateName
	periodic bool   // StateName has the period
	burst    bool   // Spec.Burst
	queue    bool   // Spec.Queue
	debt     bool   // Spec.Debt
	calendar bool   // Spec.Window
	wall     bool   // it reads Now.Wall, whatever its window
	endless  bool   // no Period and no Window
	counted  bool   // turns are counted in units, not in time
}

var algorithms = [...]traits{
	TokenBucket:    {name: "TokenBucket", letter: "t", burst: true, queue: true, debt: true},
	IntervalBucket: {name: "IntervalBucket", letter: "i", burst: true, calendar: true, wall: true, counted: true},
	LeakyBucket:    {name: "LeakyBucket", letter: "l", burst: true, queue: true},
	FixedWindow:    {name: "FixedWindow", letter: "f", periodic: true, calendar: true, counted: true},
	SlidingWindow:  {name: "SlidingWindow", letter: "s", periodic: true, counted: true},
	SlidingCounter: {name: "SlidingCounter", letter: "k", periodic: true, wall: true},
	SlidingLog:     {name: "SlidingLog", letter: "g", periodic: true, counted: true},
	WarmUp:         {name: "WarmUp", letter: "w"},
	Concurrency:    {name: "Concurrency", letter: "c", endless: true},
	Ban:            {name: "Ban", letter: "n"},
}

// String returns the name of the constant.
func (a Algorithm) String() string {
	if int(a) < len(algorithms) {
		return algorithms[a].name
	}
	return "Algorithm(" + strconv.Itoa(int(a)) + ")"
}

// fillDefaults writes what the Spec leaves open.
func (l *Limit) fillDefaults() {
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		l.fillBucket()
	case IntervalBucket:
		l.fillInterval()
	case SlidingWindow:
		l.fillSlidingWindow()
	}
}

// workOut computes the integers that the steps count in, or reports that there are
// none.
func (l *Limit) workOut(bad wrong) {
	l.period = l.spec.Period.Microseconds()
	l.patience = l.longestWait()
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		l.workOutBucket(bad)
	case IntervalBucket:
		l.workOutInterval()
	case FixedWindow:
		l.workOutFixed()
	case SlidingWindow:
		l.workOutSlidingWindow(bad)
	case SlidingCounter:
		l.workOutCounter()
	case SlidingLog:
		l.workOutSlidingLog()
	case WarmUp:
		l.workOutWarmUp(bad)
	case Concurrency:
		l.workOutConcurrency()
	case Ban:
		l.workOutBan()
	}
}

// step answers a charge that is decided alone; otherwise it is like Decide. It may bring
// the state to the present. Only a charge that passes changes the state beyond that. It only
// reslices and appends to the Log, so a copy of the State made before remains valid.
func (l *Limit) step(now *Now, c *Charge, s *state, r *Result) {
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		l.stepBucket(now, c, s, r)
	case IntervalBucket:
		l.stepInterval(now, c, s, r)
	case FixedWindow:
		l.stepFixed(now, c, s, r)
	case SlidingWindow, SlidingLog:
		l.stepSliding(now, c, s, r)
	case SlidingCounter:
		l.stepCounter(now, c, s, r)
	case WarmUp:
		l.stepWarmUp(now, c, s, r)
	case Concurrency:
		l.stepConcurrency(now, c, s, r)
	case Ban:
		l.stepBan(now, c, s, r)
	}
}

// rebase brings a state to the present: it drops what no longer counts, and clamps a state
// that was written before the clock was set back. It converts nothing to the limit's numbers.
func (l *Limit) rebase(now *Now, s *state) {
	if !s.Live {
		return
	}
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		l.rebaseBucket(now, s)
	case IntervalBucket:
		l.rebaseInterval(now, s)
	case FixedWindow:
		l.rebaseFixed(now, s)
	case SlidingWindow, SlidingLog:
		l.rebaseSliding(now, s)
	case SlidingCounter:
		l.rebaseCounter(now, s)
	case WarmUp:
		l.rebaseWarmUp(now, s)
	case Ban:
		l.rebaseBan(now, s)
	}
}

// amend changes what a rebased state holds for a charge and returns the receipt of the
// changed charge. The receipt's Cost is lower than the cost asked for if a debt exceeds
// what the limit counts.
func (l *Limit) amend(now *Now, c *Charge, s *state) Receipt {
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		return l.amendBucket(now, c, s)
	case IntervalBucket:
		return l.amendInterval(now, c, s)
	case FixedWindow:
		return l.amendFixed(now, c, s)
	case SlidingWindow, SlidingLog:
		return l.amendSliding(now, c, s)
	case SlidingCounter:
		return l.amendCounter(now, c, s)
	case WarmUp:
		return l.amendWarmUp(now, c, s)
	case Ban: // a Ban charges nothing
		return Receipt{Cost: c.Cost}
	default:
		return l.amendConcurrency(c, s)
	}
}

// lifetime is how long the state says anything after the step that answered r.
func (l *Limit) lifetime(now *Now, s *state, r *Result) time.Duration {
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket, IntervalBucket:
		return s.kept(now, r)
	case WarmUp:
		return s.cools(now)
	case Ban:
		return s.forgiven(now, r)
	case Concurrency:
		return Never
	default:
		return r.ResetAfter
	}
}

// behind reports whether charge a was made behind charge b: see Behind.
func (l *Limit) behind(a, b engine.Receipt) bool {
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket, WarmUp:
		return a.Mark > b.Mark
	case IntervalBucket:
		return l.behindInInterval(a, b)
	case FixedWindow, SlidingWindow, SlidingCounter, SlidingLog:
		return a.Instant > b.Instant
	default:
		return false
	}
}

// back is how many units, rounded up, the refund of a charge has given back, at least
// all of them where that can't be told in parts.
func (l *Limit) back(was, is engine.Receipt) int64 {
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		return l.backInBucket(was, is)
	case IntervalBucket:
		return was.Mark - is.Mark
	case FixedWindow, SlidingCounter:
		return was.Mark - is.Mark
	case WarmUp:
		return l.backInWarmUp(was, is)
	default:
		return was.Cost
	}
}
