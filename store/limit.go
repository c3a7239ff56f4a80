package store

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"time"
)

// None, as a Burst or a Queue, means that there is none, where 0 asks for the
// default.
const None = -1

// Spec says what a limit is. NewLimit checks it and fills in the defaults.
type Spec struct {
	// Name identifies the limit in keys, answers and fields: a letter, then up
	// to 63 of A-Z a-z 0-9 _ . -
	Name string
	// Algorithm is how the limit counts; TokenBucket by default.
	Algorithm Algorithm
	// Units is how many pass per Period or Window; for Concurrency, the slots;
	// for Ban, the refusals that begin one, 1000 at the most.
	Units int64
	// Period is the span Units belong to, a multiple of a microsecond. A limit
	// has a Period or a Window; Concurrency has neither.
	Period time.Duration
	// Window is the calendar window Units belong to, for FixedWindow and
	// IntervalBucket.
	Window Window
	// Burst is the capacity of the buckets; by default Units. For LeakyBucket
	// it is what passes without delay beyond the rate, by default none. With
	// Debt it may be None, and is by default one second's worth, as Guava's.
	Burst int64
	// Queue is how many units may wait for their turn: for LeakyBucket by
	// default Units, for TokenBucket by default none.
	Queue int64
	// Debt lets a charge on a TokenBucket pass as soon as those before it are
	// paid for; its own uncovered cost is paid by the next.
	Debt bool
	// WarmUp is the time a WarmUp limit takes from cold to the full rate.
	WarmUp time.Duration
	// Ban is for how long a Ban refuses, a multiple of a microsecond.
	Ban time.Duration
	// Buckets is the number of sub-windows of a SlidingWindow; 10 by default.
	Buckets int64
}

// Limit is a checked, immutable rule with its numbers worked out. Make one
// with NewLimit; it may be shared by any number of goroutines and stores.
type Limit struct {
	spec Spec
	hash uint64 // of name and algorithm

	numbers  Numbers
	scale    Scale   // rates and SlidingWindow: the unit of instants
	token    int64   // rates: units of one token; SlidingWindow: of one bucket
	tokens   divisor // buckets: units in tokens
	capacity int64   // buckets: units that pass at once; IntervalBucket, and a wide scale's: tokens
	queue    int64   // buckets: as many beyond capacity may be reserved
	room     int64   // buckets: whole tokens that are left when nothing is used
	burst    int64   // rates in buckets: those of them that pass at once
	full     units   // rates in buckets: the capacity; WarmUp: the whole warm-up
	most     units   // rates: the furthest that anything is reserved or owed
	largest  int64   // the largest cost that can ever pass
	period   int64   // microseconds
	warm     int64   // WarmUp: units, or ticks of a wide scale, of the whole warm-up
	patience int64   // the longest wait that counts, in microseconds
	slide    slide   // SlidingWindow, SlidingLog

	decider any // see DecidedBy
}

// Spec returns what the limit was made from, defaults filled in.
func (l *Limit) Spec() Spec { return l.spec }

// Name returns the limit's name.
func (l *Limit) Name() string { return l.spec.Name }

// Algorithm returns how the limit counts.
func (l *Limit) Algorithm() Algorithm { return l.spec.Algorithm }

// Tick returns the step in which the limit counts time: a microsecond, or up to a
// millisecond where one integer holds its state so. An instant counts as the tick that it
// is in. So a charge may have to come up to a tick later than the rule says; and over a
// span of time, as much may pass on top of the rule as comes in one tick.
func (l *Limit) Tick() time.Duration { return time.Duration(l.scale.tick()) * time.Microsecond }

// DecidedBy returns the limit as one that a store made over others decides in its own
// way, and knows by what Decider then returns. Any other store takes no notice of it.
func (l *Limit) DecidedBy(decider any) *Limit {
	d := *l
	d.decider = decider
	return &d
}

// Decider returns what DecidedBy was given; nil of a limit that every store decides
// alike.
func (l *Limit) Decider() any { return l.decider }

// Hash tells limits of different name or algorithm apart, as a store in this
// process has to: it is a random function of the two, drawn anew in every
// process, and never 0 for a Limit made by NewLimit.
func (l *Limit) Hash() uint64 { return l.hash }

var hashSeed = maphash.MakeSeed()

func (l *Limit) workOutHash() {
	l.hash = maphash.String(hashSeed, l.spec.Algorithm.String()+" "+l.spec.Name)
	if l.hash == 0 {
		l.hash = 1
	}
}

// ValidName reports whether s is a letter and up to 63 of A-Z a-z 0-9 _ . -
func ValidName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 64
}

// SpecError is one thing that is wrong with a Spec, or with a store that is Checked.
type SpecError struct {
	Field   string // of Spec; "" of a store
	Problem string
	Write   string // what to do about it: "write a number from 1 to 1000"
}

// Error is the problem and what to write instead.
func (e *SpecError) Error() string { return e.Problem + ": " + e.Write }

// wrong takes what is wrong with a Spec, as SpecError has it.
type wrong = func(field, problem, write string)

// NewLimit checks a Spec, fills in its defaults and works out its numbers. It
// reports everything that is wrong with it at once, in an error of errors.Join
// that holds a *SpecError for each.
func NewLimit(s Spec) (*Limit, error) {
	l := &Limit{spec: s}
	var errs []error
	bad := func(field, problem, write string) { errs = append(errs, &SpecError{field, problem, write}) }

	if !ValidName(s.Name) {
		bad("Name", fmt.Sprintf("name %.80q", s.Name), "write a letter, then up to 63 of A-Z a-z 0-9 _ . -")
	}
	named := len(errs)
	if s.Units < 1 || s.Units > MaxCost {
		bad("Units", fmt.Sprintf("%d units", s.Units), fmt.Sprintf("write a number from 1 to %d", int64(MaxCost)))
	}
	if int(s.Algorithm) >= len(algorithmNames) { // what it would take can't be told
		bad("Algorithm", fmt.Sprintf("unknown algorithm %d", s.Algorithm), "write one of the constants of Algorithm")
	} else {
		l.checkSpan(bad)
		l.checkExtras(bad)
	}
	if len(errs) == named { // whatever the name is
		l.fillDefaults()
		l.workOutHash()
		l.workOut(bad)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return l, nil
}

// checkSpan holds the limit to the one kind of span its algorithm counts in.
func (l *Limit) checkSpan(bad wrong) {
	s := &l.spec
	calendar := s.Window != (Window{})
	switch {
	case s.Algorithm == Concurrency:
		if s.Period != 0 || calendar {
			bad("Period", "Concurrency counts what is held, not what comes in a time", "leave Period and Window out")
		}
	case calendar && s.Period != 0:
		bad("Period", "a limit has a Period or a Window", "leave one out")
	case calendar:
		if s.Algorithm != FixedWindow && s.Algorithm != IntervalBucket {
			bad("Algorithm", fmt.Sprintf("%v does not follow a calendar", s.Algorithm), "write FixedWindow or IntervalBucket, or a Period")
		}
		if problem, write := s.Window.check(); problem != "" {
			bad("Window", problem, write)
		}
	case s.Period <= 0:
		bad("Period", fmt.Sprintf("period %v", s.Period), "write a positive duration, such as time.Second")
	case s.Period%time.Microsecond != 0:
		bad("Period", fmt.Sprintf("period %v", s.Period), "time is counted in microseconds; write a multiple of one")
	case float64(s.Period.Microseconds()) > horizon/10:
		bad("Period", fmt.Sprintf("period %v", s.Period), "write two years at the most, or a Window")
	}
}

// checkExtras refuses a number the algorithm would ignore: a limit that isn't
// what it says is worse than an error.
func (l *Limit) checkExtras(bad wrong) {
	s := &l.spec
	if s.Burst != 0 {
		switch {
		case s.Algorithm != TokenBucket && s.Algorithm != IntervalBucket && s.Algorithm != LeakyBucket:
			bad("Burst", fmt.Sprintf("%v has no burst", s.Algorithm), "leave it out, or write TokenBucket")
		case s.Burst < None || s.Burst > MaxCost:
			bad("Burst", fmt.Sprintf("burst %d", s.Burst), fmt.Sprintf("write a number from 0 to %d", int64(MaxCost)))
		case s.Burst == None && s.Algorithm != LeakyBucket && !s.Debt:
			bad("Burst", "burst 0 lets nothing pass", "write at least 1, or add debt")
		}
	}
	if s.Queue != 0 {
		switch {
		case s.Algorithm != TokenBucket && s.Algorithm != LeakyBucket:
			bad("Queue", fmt.Sprintf("%v has no queue", s.Algorithm), "write LeakyBucket or TokenBucket, or a maximum wait")
		case s.Queue < None || s.Queue > MaxCost:
			bad("Queue", fmt.Sprintf("queue %d", s.Queue), fmt.Sprintf("write a number from 0 to %d", int64(MaxCost)))
		}
	}
	if s.Debt && s.Algorithm != TokenBucket {
		bad("Debt", fmt.Sprintf("%v takes no debt", s.Algorithm), "write TokenBucket (WarmUp prepays by itself)")
	}
	switch {
	case s.Algorithm != Ban && s.Ban != 0:
		bad("Ban", fmt.Sprintf("%v bans nobody", s.Algorithm), "write the Ban algorithm, or leave the period out")
	case s.Algorithm == Ban && (s.Ban <= 0 || s.Ban%time.Microsecond != 0 || s.Ban > longest):
		bad("Ban", fmt.Sprintf("a ban of %v", s.Ban), "write a positive multiple of a microsecond, a year at the most")
	}
	if s.Algorithm == Ban && s.Units > mostStrikes {
		bad("Units", fmt.Sprintf("a ban after %d refusals", s.Units), fmt.Sprintf("write %d at the most, since the instant of each is kept", mostStrikes))
	}
	switch {
	case s.Algorithm == WarmUp && s.WarmUp <= 0:
		bad("Algorithm", "WarmUp without a warm-up period", "write how long it takes to get warm, such as 4s")
	case s.Algorithm != WarmUp && s.WarmUp != 0:
		bad("WarmUp", fmt.Sprintf("%v does not warm up", s.Algorithm), "write the WarmUp algorithm, or leave the period out")
	case s.WarmUp%time.Microsecond != 0:
		bad("WarmUp", fmt.Sprintf("warm-up %v", s.WarmUp), "time is counted in microseconds; write a multiple of one")
	}
	switch {
	case s.Buckets == 0:
	case s.Algorithm != SlidingWindow:
		bad("Buckets", fmt.Sprintf("%v has no buckets", s.Algorithm), "write SlidingWindow")
	case s.Buckets < 1 || s.Buckets > 1000:
		bad("Buckets", fmt.Sprintf("%d buckets", s.Buckets), "write a number from 1 to 1000, or SlidingLog")
	}
}

func (l *Limit) fillDefaults() {
	s := &l.spec
	switch s.Algorithm {
	case TokenBucket:
		if s.Burst == 0 && s.Debt {
			s.Burst = oneSecond(s.Units, s.Period)
		}
	case LeakyBucket:
		if s.Burst == 0 {
			s.Burst = None
		}
		if s.Queue == 0 {
			s.Queue = s.Units
		}
	case SlidingWindow:
		if s.Buckets == 0 {
			s.Buckets = 10
		}
	}
	if s.Burst == 0 && (s.Algorithm == TokenBucket || s.Algorithm == IntervalBucket) {
		s.Burst = s.Units
	}
}

// oneSecond is the number of whole units a rate gives in a second, or None.
func oneSecond(units int64, period time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(units), uint64(time.Second))
	if hi >= uint64(period) {
		return MaxCost
	}
	if n, _ := bits.Div64(hi, lo, uint64(period)); n > 0 {
		return int64(min(n, MaxCost))
	}
	return None
}

// workOut finds the integers the steps count in, or says that there are none.
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

// longestWait is how far ahead a charge may have its turn, in microseconds: a
// year. What counts turns in tokens and not in time has a shorter one if its
// windows are so many and hold so much that they could not be added up.
func (l *Limit) longestWait() int64 {
	const year = int64(longest / time.Microsecond)
	span := l.period
	switch l.spec.Algorithm {
	case IntervalBucket, FixedWindow:
		if w := l.spec.Window; w.kind == everyWindow {
			span = w.every.Microseconds()
		} else if l.calendar() {
			span = w.nominal()
		}
	case SlidingWindow, SlidingLog:
	case SlidingCounter:
		return min(year, l.period)
	default:
		return year
	}
	// In half of the room, since windows of the calendar may be shorter.
	if windows := exact/4/l.spec.Units - 2; windows < year/span {
		return windows * span
	}
	return year
}
