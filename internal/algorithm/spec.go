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
	if s.Units < 1 || s.Units > MaxCost {
		bad("Units", fmt.Sprintf("%d units", s.Units), fmt.Sprintf("use a number from 1 to %d", int64(MaxCost)))
	}
	if int(s.Algorithm) >= len(algorithms) { // nothing else can be checked
		bad("Algorithm", fmt.Sprintf("unknown algorithm %d", s.Algorithm), "use one of the constants of Algorithm")
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
			bad("Algorithm", "%v does not follow a calendar", "use %v or %v, or a %v",
				s.Algorithm, FixedWindow, IntervalBucket, "Period")
		}
		s.Window.check(bad)
	case s.Period <= 0:
		bad("Period", fmt.Sprintf("period %v", s.Period), "pass a positive duration, such as %v", "time.Second")
	case s.Period < time.Microsecond:
		bad("Period", fmt.Sprintf("period %v, and a number without a unit is in nanoseconds", s.Period),
			"pass a duration, such as %v", "time.Second")
	case s.Period%time.Microsecond != 0:
		bad("Period", fmt.Sprintf("period %v", s.Period), "use a whole number of microseconds")
	case float64(s.Period.Microseconds()) > horizon/10:
		bad("Period", fmt.Sprintf("period %v", s.Period), "use at most two years, or a %v", "Window")
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
			bad("Burst", "%v has no burst", "leave it out, or use %v", s.Algorithm, TokenBucket)
		case s.Burst < None || s.Burst > MaxCost:
			bad("Burst", fmt.Sprintf("burst %d", s.Burst), fmt.Sprintf("use a number from 0 to %d", int64(MaxCost)))
		case s.Burst == None && s.Algorithm != LeakyBucket && !s.Debt:
			bad("Burst", "burst 0 lets nothing pass", "use at least 1, or add %v", "WithDebt")
		}
	}
	if s.Queue != 0 {
		switch {
		case !has.queue:
			bad("Queue", "%v has no queue", "use %v or %v, or a maximum wait", s.Algorithm, LeakyBucket, TokenBucket)
		case s.Queue < None || s.Queue > MaxCost:
			bad("Queue", fmt.Sprintf("queue %d", s.Queue), fmt.Sprintf("use a number from 0 to %d", int64(MaxCost)))
		}
	}
	switch {
	case !s.Debt || has.debt:
	case s.Algorithm == WarmUp:
		bad("Debt", "%v always allows debt", "leave %v out", WarmUp, "WithDebt")
	default:
		bad("Debt", "%v can't go into debt", "use %v (%v always allows debt, without %v)",
			s.Algorithm, TokenBucket, WarmUp, "WithDebt")
	}
	switch {
	case s.Algorithm != Ban && s.Ban != 0:
		bad("Ban", "%v has no ban period", "leave it out, or use the %v algorithm", s.Algorithm, Ban)
	case s.Algorithm == Ban && (s.Ban <= 0 || s.Ban%time.Microsecond != 0 || s.Ban > longest):
		bad("Ban", fmt.Sprintf("a ban of %v", s.Ban), "pass a positive multiple of a microsecond, at most a year")
	}
	if s.Algorithm == Ban && s.Units > maxDenials {
		bad("Units", fmt.Sprintf("a ban after %d denials", s.Units),
			fmt.Sprintf("use at most %d, since the time of each denial is kept", maxDenials))
	}
	switch {
	case s.Algorithm == WarmUp && s.WarmUp <= 0:
		bad("Algorithm", "%v without a warm-up period", "give how long the rate takes to rise, such as 4s", s.Algorithm)
	case s.Algorithm != WarmUp && s.WarmUp != 0:
		bad("WarmUp", "%v does not warm up", "use the %v algorithm, or leave the period out", s.Algorithm, WarmUp)
	case s.WarmUp%time.Microsecond != 0:
		bad("WarmUp", fmt.Sprintf("warm-up %v", s.WarmUp), "use a whole number of microseconds")
	}
	switch {
	case s.Buckets == 0:
	case s.Algorithm != SlidingWindow:
		bad("Buckets", "%v has no buckets", "use %v", s.Algorithm, SlidingWindow)
	case s.Buckets < 1 || s.Buckets > 1000:
		bad("Buckets", fmt.Sprintf("%d buckets", s.Buckets), "use a number from 1 to 1000, or %v", "SlidingLog")
	}
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
