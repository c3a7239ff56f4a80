// Package algorithm has the algorithms of package store as pure functions: a step takes the present, a
// charge and a state, and changes the state and answers. It reads no clock and no store.
//
//	algorithm.go                     the algorithms, and which function of each does what
//	limit.go, spec.go                a rule, and what is checked of it
//	state.go, encoding.go            what is kept for a key
//	tokenbucket.go … ban.go          an algorithm each
//	refunds.go, levels.go, intervals.go, lookback.go, rate.go     what several algorithms share
//	scale.go, window.go              units of time; the calendar
//
// Package store has the contract that the authors of stores read, of types that convert to those here.
// The packages of this module convert them and call the steps directly.
package algorithm

import (
	"strconv"
	"time"
)

// Algorithm is the algorithm by which a limit counts: store.Algorithm describes them.
type Algorithm uint8

// The algorithms, in the order of store's constants.
const (
	TokenBucket Algorithm = iota
	IntervalBucket
	LeakyBucket
	FixedWindow
	SlidingWindow
	SlidingCounter
	SlidingLog
	WarmUp
	Concurrency
	Ban
)

// traits are the properties of an algorithm that New checks a Spec by.
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
	SlidingCounter: {name: "SlidingCounter", letter: "k", periodic: true},
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

// The functions below call those of an algorithm. In this package, only they name all algorithms. A default
// never stands for one, so an algorithm that a switch lacks panics. They are switches rather than a table of
// functions: arguments of an indirect call escape, and every charge would allocate its state.

// fillDefaults writes what the Spec leaves open.
func (l *Limit) fillDefaults() {
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket:
		l.defaultBucket()
	case IntervalBucket:
		l.defaultInterval()
	case SlidingWindow:
		l.defaultSlidingWindow()
	case FixedWindow, SlidingCounter, SlidingLog, WarmUp, Concurrency, Ban: // a Spec leaves nothing open
	default:
		panic(l.spec.Algorithm.String())
	}
}

// workOut computes the integers that the steps count in, or reports that there are
// none.
func (l *Limit) workOut(bad wrong) {
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
	default:
		panic(l.spec.Algorithm.String())
	}
}

// Step answers a charge that is decided alone; otherwise it is like store.Decide. It may bring
// the state to the present. Only a charge that passes changes the state beyond that. It never
// writes to entries that the Log has, so a copy of the State made before remains valid.
func (l *Limit) Step(now *Now, c Charge, s *State, r *Result) {
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
	default:
		panic(l.spec.Algorithm.String())
	}
}

// Rebase brings a state to the present: it drops what no longer counts, and clamps a state
// that was written before the clock was set back. It converts nothing to the limit's numbers.
func (l *Limit) Rebase(now *Now, s *State) {
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
	case Concurrency: // stores end leases by themselves
	default:
		panic(l.spec.Algorithm.String())
	}
}

// Amend replaces the cost of an earlier charge with c.Cost: store.Amend. r.Receipt is that of the changed
// charge.
func (l *Limit) Amend(now *Now, c *Settlement, s *State, r *Result) {
	l.Accept(s)
	l.Rebase(now, s)
	receipt := l.amend(now, c, s)
	peek := Charge{MaxWait: c.MaxWait}
	if l.spec.Algorithm == Ban { // it charges nothing, and answers as after a denied Take
		peek.Cost = 1
	}
	l.Step(now, peek, s, r)
	r.Begun = l.spec.Algorithm == Ban && receipt.Mark != 0
	receipt.Lease, receipt.Path = c.Receipt.Lease, c.Receipt.Path
	r.Receipt = receipt
}

// amend changes what a rebased state holds for a charge and returns the receipt of the
// changed charge. The receipt's Cost is lower than the cost asked for if a debt exceeds
// what the limit counts.
func (l *Limit) amend(now *Now, c *Settlement, s *State) Receipt {
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
	case Concurrency:
		return l.amendConcurrency(c, s)
	case Ban:
		return l.amendBan(now, c, s)
	default:
		panic(l.spec.Algorithm.String())
	}
}

// Lifetime returns how long the state differs from that of a new key after the step that answered r:
// store.Limit.Lifetime.
func (l *Limit) Lifetime(now *Now, s *State, r *Result) time.Duration {
	if !s.Live {
		return 0
	}
	switch l.spec.Algorithm {
	case TokenBucket, LeakyBucket, IntervalBucket:
		return s.lifetimeBucket(now, r)
	case WarmUp:
		return s.lifetimeWarmUp(now)
	case Ban:
		return s.lifetimeBan(now, r)
	case Concurrency:
		return Never
	case FixedWindow, SlidingWindow, SlidingCounter, SlidingLog:
		return r.ResetAfter
	default:
		panic(l.spec.Algorithm.String())
	}
}

// validFor reports whether an algorithm can have written the state, or at least can handle it: it
// divides by no zero, no sum overflows, and what is counted twice agrees.
func (s *State) validFor(a Algorithm) bool {
	switch a {
	case TokenBucket, LeakyBucket:
		return s.validBucket()
	case IntervalBucket:
		return s.validInterval()
	case FixedWindow:
		return s.validFixed()
	case SlidingWindow, SlidingLog:
		return s.validSliding()
	case SlidingCounter:
		return s.validCounter()
	case WarmUp:
		return s.validWarmUp()
	case Concurrency:
		return s.validConcurrency()
	case Ban:
		return s.validBan()
	default:
		panic(a.String())
	}
}
