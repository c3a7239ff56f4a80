package store

import (
	"github.com/stint-go/stint/internal/engine"
)

// What the packages of this module need of a limit beside what the author of a store needs:
// package internal/inside calls it.
func init() {
	engine.Hash = func(l any) uint64 { return l.(*Limit).hash }
	engine.Full = func(l any) int64 { return l.(*Limit).full }
	engine.TermsOf = func(l any) engine.Terms { return l.(*Limit).terms() }
	engine.StepPlain = func(n *engine.Numbers, now, a int64, charge, result any) (next int64, ok bool) {
		c, r := charge.(*Charge), result.(*Result)
		if *n != c.Limit.numbers {
			return a, false
		}
		return c.Limit.stepPlain(now, a, c, r)
	}
	engine.Behind = func(l any, a, b engine.Receipt) bool { return l.(*Limit).behind(a, b) }
	engine.UnitsRefunded = func(l any, was, is engine.Receipt) int64 { return l.(*Limit).unitsRefunded(was, is) }
	engine.Decider = func(l any) any { return l.(*Limit).decider }
	engine.DecidedBy = func(l, decider any) any {
		d := *l.(*Limit)
		d.decider = decider
		return &d
	}
	engine.NewSpecError = func(field, problem, write string, names ...any) any {
		return newSpecError(field, problem, write, names...)
	}
	engine.Names = func(e any) []string {
		if named := e.(*SpecError).named; named != nil {
			return named.names
		}
		return nil
	}
	engine.Veto = func() any { return veto }
	engine.Counts = func(c, ban any) bool { return c.(*Charge).countsFor(ban.(*Charge)) }
	engine.Around = func(w any, wall int64, before, after int) []engine.Span {
		return w.(Window).around(wall, before, after)
	}
	engine.Fixed = func(w any) (int64, bool) { return w.(Window).fixed() }
	engine.Nominal = func(w any) int64 { return w.(Window).nominal() }
}

// terms returns the numbers that the limit's steps use.
func (l *Limit) terms() engine.Terms {
	return engine.Terms{
		Numbers: l.numbers, Scale: l.scale.Scale, Token: l.token,
		Capacity: l.capacity, Queue: l.queue, Largest: l.largest,
		Period: l.period, Warm: l.warm, Longest: l.year, Patience: l.patience,
	}
}

// veto is a limit whose name NewLimit denies, so it never equals another limit's.
var veto = func() *Limit {
	l, err := NewLimit(Spec{Name: "veto", Algorithm: Concurrency, Units: 1})
	if err != nil {
		panic(err)
	}
	l.spec.Name = "-veto"
	l.workOutName()
	return l
}()

// around returns the calendar window that contains wall, in microseconds since Epoch,
// with the given numbers of windows before and after it.
func (w Window) around(wall int64, before, after int) []engine.Span {
	at, _ := w.bounds(wall)
	for range before {
		at, _ = w.bounds(at - 1)
	}
	spans := make([]engine.Span, before+after+1)
	for i := range spans {
		n, _ := w.number(at)
		_, end := w.bounds(at)
		spans[i] = engine.Span{Number: n, Start: at, End: end}
		at = end
	}
	return spans
}

// fixed returns the length, in microseconds, of a window made by Every. For all others
// ok is false: their lengths vary.
func (w Window) fixed() (length int64, ok bool) { return w.every.Microseconds(), w.kind == everyWindow }
