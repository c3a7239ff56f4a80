package algorithm

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// New checks a Spec, fills in its defaults and returns the limit, or all problems of the Spec.
func New(s Spec) (*Limit, []*Problem) {
	l := &Limit{spec: s}
	var problems []*Problem
	bad := func(field, problem, write string, names ...any) {
		problems = append(problems, NewProblem(field, problem, write, names...))
	}

	if !ValidName(s.Name) {
		bad("Name", fmt.Sprintf("name %.80q", s.Name), "use a letter, followed by up to 63 of A-Z a-z 0-9 _ . -")
	}
	named := len(problems)
	if counted, most := l.counted(); s.Units < 1 || s.Units > most {
		bad("Units", fmt.Sprintf("%d %s", s.Units, counted), fmt.Sprintf("use 1 to %d", most))
	}
	if int(s.Algorithm) >= len(algorithms) { // nothing else can be checked
		bad("Algorithm", fmt.Sprintf("algorithm %d", s.Algorithm), "use a constant such as %v or %v",
			TokenBucket, SlidingWindow)
	} else {
		l.checkSpan(bad)
		l.checkExtras(bad)
	}
	if l.calendar() {
		l.lastBounds = new(atomic.Pointer[bounds])
	}
	if len(problems) == named { // all but the name is valid
		l.fillDefaults()
		l.spec.Window = l.spec.Window.canonical()
		l.workOutName()
		l.period = l.spec.Period.Microseconds()
		l.patience = l.longestWait()
		l.workOut(bad)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	var unused State
	var left Result
	l.Step(&Now{}, Charge{}, &unused, &left)
	l.full = left.Remaining
	return l, nil
}

// counted returns what the limit counts, and the most that it may have.
func (l *Limit) counted() (units string, most int64) {
	switch l.spec.Algorithm {
	case Concurrency:
		return "slots", MaxCost
	case Ban: // the time of each is kept
		return "denials", maxDenials
	}
	return "units", MaxCost
}

// checkSpan checks that the limit has the one kind of span its algorithm counts in.
func (l *Limit) checkSpan(bad wrong) {
	s := &l.spec
	calendar := s.Window != (Window{})
	switch has := &algorithms[s.Algorithm]; {
	case has.endless:
		if s.Period != 0 || calendar {
			bad("Period", "%v counts the slots held and has no period", "leave %v and %v out", s.Algorithm, "Period", "Window")
		}
	case calendar && s.Period != 0:
		bad("Period", "both a %v and a %v", "leave one out", "Period", "Window")
	case calendar:
		if !has.calendar {
			bad("Algorithm", "%v can't have a %v", "use %v or %v", s.Algorithm, "Window", FixedWindow, IntervalBucket)
		}
		s.Window.check(bad)
	case s.Period <= 0:
		bad("Period", fmt.Sprintf("a period of %v", s.Period), "use a positive duration, such as %v", "time.Second")
	case badUnit(bad, "Period", "a period of ", s.Period):
	case s.Period%time.Microsecond != 0:
		bad("Period", fmt.Sprintf("a period of %v", s.Period), "use a whole number of microseconds")
	case s.Period > longestPeriod:
		bad("Period", fmt.Sprintf("a period of %v", s.Period), "use at most two years")
	}
}

// checkExtras rejects numbers that the algorithm would ignore: an error is better than
// a limit that doesn't do what it says.
func (l *Limit) checkExtras(bad wrong) {
	s := &l.spec
	has := &algorithms[s.Algorithm]
	if s.Burst != 0 {
		switch {
		case !has.burst:
			l.badExtra(bad, "Burst", "%v has no burst", s.Algorithm, TokenBucket, IntervalBucket)
		case s.Burst < None || s.Burst > MaxCost:
			bad("Burst", fmt.Sprintf("burst %d", s.Burst), fmt.Sprintf("use 0 to %d", int64(MaxCost)))
		case s.Burst == None && s.Algorithm != LeakyBucket && !s.Debt:
			const problem = "a burst of 0 lets nothing pass"
			if has.debt {
				bad("Burst", problem, "use at least 1, or add %v", "WithDebt")
			} else {
				bad("Burst", problem, "use at least 1")
			}
		}
	}
	if s.Queue != 0 {
		switch {
		case !has.queue:
			l.badExtra(bad, "Queue", "%v has no queue", s.Algorithm, LeakyBucket)
		case s.Queue < None || s.Queue > MaxCost:
			bad("Queue", fmt.Sprintf("queue %d", s.Queue), fmt.Sprintf("use 0 to %d", int64(MaxCost)))
		}
	}
	switch {
	case !s.Debt || has.debt:
	case s.Algorithm == WarmUp:
		bad("Debt", "%v always allows debt", "leave it out", WarmUp)
	default:
		l.badExtra(bad, "Debt", "%v can't go into debt", s.Algorithm, TokenBucket)
	}
	switch {
	case s.Algorithm != Ban && s.Ban != 0:
		bad("Ban", "%v doesn't ban", "leave it out, or use the algorithm %v", s.Algorithm, Ban)
	case s.Algorithm == Ban && (s.Ban <= 0 || s.Ban%time.Microsecond != 0 || s.Ban > longest):
		bad("Ban", fmt.Sprintf("ban %v", s.Ban), "use a positive whole number of microseconds, at most a year")
	}
	switch {
	case s.Algorithm == WarmUp && s.WarmUp <= 0:
		bad("Algorithm", "%v without the time that the rate takes to rise", "set %v, such as to %v",
			s.Algorithm, "WarmUp", "4*time.Second")
	case s.Algorithm != WarmUp && s.WarmUp != 0:
		bad("WarmUp", "%v doesn't warm up", "leave it out, or use the algorithm %v", s.Algorithm, WarmUp)
	case s.WarmUp%time.Microsecond != 0:
		bad("WarmUp", fmt.Sprintf("warm-up %v", s.WarmUp), "use a whole number of microseconds")
	}
	switch {
	case s.Buckets == 0:
	case s.Algorithm != SlidingWindow:
		l.badExtra(bad, "Buckets", "only a %v is divided into buckets", SlidingWindow, SlidingWindow)
	case s.Buckets < 1 || s.Buckets > 1000:
		bad("Buckets", fmt.Sprintf("buckets %d", s.Buckets), "use 1 to 1000")
	}
}

// badExtra reports a number that the algorithm would ignore. name is in the problem. The first of the other algorithms
// that the limit could have instead is in the correction.
func (l *Limit) badExtra(bad wrong, field, problem string, name Algorithm, others ...Algorithm) {
	if a := l.spec.Algorithm; a != WarmUp && a != Concurrency && a != Ban {
		for _, other := range others {
			if !l.calendar() || algorithms[other].calendar {
				bad(field, problem, "leave it out, or use the algorithm %v", name, other)
				return
			}
		}
	}
	bad(field, problem, "leave it out", name)
}

// workOutName sets name and hash.
func (l *Limit) workOutName() {
	s := &l.spec
	has := &algorithms[s.Algorithm]
	l.name = s.Name + "/" + has.letter
	if has.periodic {
		if l.calendar() {
			l.name += ":" + s.Window.id()
		} else {
			l.name += ":" + s.Period.String()
		}
		if s.Algorithm == SlidingWindow {
			l.name += ":" + strconv.FormatInt(s.Buckets, 10)
		}
	}
	if l.hash = maphash.String(hashSeed, l.name); l.hash == 0 {
		l.hash = 1
	}
}

var hashSeed = maphash.MakeSeed()

// longestWait returns how far ahead a charge may have its turn, in microseconds: a
// year. An algorithm that counts turns in tokens rather than time has less if the
// windows of a year would hold more tokens than can be added up exactly.
func (l *Limit) longestWait() int64 {
	const year = int64(longest / time.Microsecond)
	if !algorithms[l.spec.Algorithm].counted {
		return year
	}
	span := l.period
	if w := l.spec.Window; w.kind == everyWindow {
		span = w.every.Microseconds()
	} else if l.calendar() {
		span = w.Nominal()
	}
	// Only half of the room is used, because windows of the calendar may be shorter.
	if windows := exact/4/l.spec.Units - 2; windows < year/span {
		return windows * span
	}
	return year
}

// NewProblem returns a Problem. problem and write are formats with a %v for each of
// names, which are names of Go's: an Algorithm, or a text such as "time.Second". Without
// names both are taken as they are.
func NewProblem(field, problem, write string, names ...any) *Problem {
	p := &Problem{Field: field, Problem: problem, Write: write}
	if len(names) > 0 {
		const between = "\x00"
		p.Problem, p.Write, _ = strings.Cut(fmt.Sprintf(problem+between+write, names...), between)
		for _, name := range names {
			p.Names = append(p.Names, fmt.Sprint(name))
		}
	}
	return p
}

// wrong records one problem, with the arguments of NewProblem.
type wrong = func(field, problem, write string, names ...any)
