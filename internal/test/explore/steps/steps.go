// Package steps runs concurrent code in every order of its atomic steps, and shows the
// first that breaks a promise. It is for tests.
//
// Code is explored as it is shipped, but for its imports: [Elsewhere] has sync, sync/atomic,
// time, context and others replaced by their twins below this package, which pause before
// each load, store, swap, compare-and-swap, lock, unlock and clock reading. Statements that
// start goroutines and use channels become calls that pause as well. One actor at a time
// goes on from its step to its next. Of several channels that are ready, a select takes
// each in a run of its own.
//
// Orders that differ only in independent steps have the same result, so one of them is
// run: two steps are dependent if they access one variable, mutex or clock and one of them changes
// it. The search is dynamic partial order reduction with source sets and sleep sets
// (Abdulla, Aronis, Jonsson and Sagonas, POPL 2014), without any bound. Atomic operations of Go are sequentially
// consistent, so no order is missing. The race detector shows whether anything else is shared.
package steps

import (
	"fmt"
	"iter"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"
)

// Kind is the kind of action of a step on its object.
type Kind uint8

const (
	// Load changes nothing.
	Load Kind = iota
	// Store may change the object, or wait for it: a store, swap or compare-and-swap.
	Store
	// Lock takes a mutex as soon as it is free.
	Lock
	// TryLock takes a mutex if it is free.
	TryLock
	// Unlock frees it.
	Unlock
	// callBegin and callEnd are the begin and the end of a call: the order of the end of a call and
	// the begin of another matters.
	callBegin
	callEnd
	// lockFailed is a TryLock of a mutex that isn't free.
	lockFailed
)

// Find explores a scenario until a run breaks a promise. It returns the number of runs
// and the trace of the last, or "" if no run has broken one. The scenario sets up the state that the actors
// share, starts them with [Run.Go], and checks the result in [Run.End]. It must do the same each time.
func Find(scenario func(*Run)) (runs int, trace string) { return find(scenario, false) }

// find runs a scenario in one order after the other until a run breaks a promise. It returns the number of
// runs and the trace of that one, which it runs again to get it. If exhaustive is set, it leaves out no
// order that comes to the same as another.
func find(scenario func(*Run), exhaustive bool) (runs int, trace string) {
	var path []node
	last := &Run{}
	for {
		runs++
		r := &Run{path: path, exhaustive: exhaustive, events: last.events[:0], byObject: last.byObject[:0], objects: last.objects}
		last = r
		if r.run(scenario); len(r.broken) > 0 {
			again := &Run{path: r.path, tracing: true}
			again.run(scenario)
			return runs, again.String()
		}
		if path = next(r.path); path == nil {
			return runs, ""
		}
	}
}

// Run is one run of a scenario.
type Run struct {
	path       []node
	exhaustive bool // order, one by one
	actors     []*actor
	ends       []func()

	objects   map[unsafe.Pointer]int // none is freed during the run, so no address comes again
	byObject  [][]int32              // events by object
	events    []event
	callMarks int // the number of begins and ends of calls

	current *actor // nil while the scenario sets up, and at its end
	choice  int    // in which its step is taken
	ending  bool
	pruned  bool

	micros int64 // the clock
	timers []*Timer
	frozen bool
	read   []int64 // from the clock, outside of actors

	tracing bool
	trace   []string
	broken  []string
}

type actor struct {
	name    string
	next    func() (op, bool)
	stop    func()
	yield   func(op) bool
	op      op // where it stands
	ended   bool
	timer   bool        // it may wait for ever
	clock   vectorClock // what its next step depends on
	read    []int64     // from the clock
	spawned int         // actors that it has started
}

// running is the run under way: one at a time in a process.
var running *Run

// pruned unwinds an actor of a run that is pruned.
type pruned struct{}

// Go starts an actor when the scenario has been set up. If it panics, that breaks a promise.
func (r *Run) Go(name string, f func()) { r.start(name, f) }

func (r *Run) start(name string, f func()) *actor {
	if len(r.actors) == maxActors {
		panic("steps: too many actors")
	}
	a := &actor{name: name}
	a.next, a.stop = iter.Pull(func(yield func(op) bool) {
		defer func() {
			if p := recover(); p != nil && p != (pruned{}) {
				r.Broken("%s panics: %v\n%s", name, p, debug.Stack())
			}
		}()
		a.yield = yield
		f()
	})
	r.actors = append(r.actors, a)
	return a
}

// Spawn starts an actor on the way, as a go statement does. At the end of a run, f is
// called at once.
func Spawn(f func()) {
	switch r := running; {
	case r == nil || r.ending:
		f()
	case r.pruned:
	case r.current == nil:
		r.start(fmt.Sprintf("go%d", len(r.actors)), f)
	default:
		r.current.spawned++
		a := r.start(fmt.Sprintf("%s.%d", r.current.name, r.current.spawned), f)
		Note("starts %s", a.name)
	}
}

// End has f called when all actors have returned.
func (r *Run) End(f func()) { r.ends = append(r.ends, f) }

// Broken reports that a promise is broken. In a pruned run it does nothing:
// deferred calls of the actors that are unwound take no steps.
func (r *Run) Broken(format string, args ...any) {
	if r.pruned {
		return
	}
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// Freeze stops the clock, but for Advance. Else it goes on by a microsecond with every
// reading, so that each has an instant of its own.
func (r *Run) Freeze() { r.frozen = true }

// Advance is a step that lets time pass.
func (r *Run) Advance(d time.Duration) {
	at(Store, unsafe.Pointer(&r.micros), nil)
	r.micros += d.Microseconds()
	Note("%v pass", d)
}

// Span is the begin and the end of a call in a run. A call that began later than another ended came after
// it.
type Span struct {
	Began, Ended int
	Clock        []int64 // what the call has read from the clock
}

// Call makes a call, and records when it began and ended relative to others.
func (r *Run) Call(what string, f func()) (s Span) {
	s.Began = r.mark(callBegin, what+" begins")
	read := r.readings()
	*read = nil
	f()
	s.Clock = *read
	s.Ended = r.mark(callEnd, what+" is back")
	return s
}

// mark is a step that returns the number of marks so far.
func (r *Run) mark(k Kind, what string) int {
	at(k, unsafe.Pointer(&r.callMarks), nil)
	Note("%s", what)
	r.callMarks++
	return r.callMarks
}

// At pauses the actor that runs before a step on an object. Outside of actors nothing
// pauses.
func At(k Kind, object unsafe.Pointer) { at(k, object, nil) }

// AtBoth pauses before a step that changes two objects.
func AtBoth(object, other unsafe.Pointer) {
	if r := running; r != nil && r.current != nil && !r.pruned {
		r.pause(op{access: access{Store, r.number(object)}, others: []access{{Store, r.number(other)}}})
	}
}

// AtLock pauses before a mutex is locked, until *held is false.
func AtLock(object unsafe.Pointer, held *bool) { at(Lock, object, held) }

// Unchanged records that the last step, a Store or TryLock, has changed nothing.
func Unchanged() {
	if r := running; r != nil && r.current != nil && !r.pruned {
		switch e := &r.events[len(r.events)-1]; e.kind {
		case Store:
			e.kind = Load
		case TryLock:
			e.kind = lockFailed
		}
	}
}

// Clock reads the clock. Unless the clock is frozen, a reading advances it, and so counts as a write: the
// order of two readings matters.
func Clock() (micros int64) {
	r := running
	if r == nil {
		return 0
	}
	if r.frozen {
		at(Load, unsafe.Pointer(&r.micros), nil)
	} else {
		at(Store, unsafe.Pointer(&r.micros), nil)
		r.micros++
	}
	read := r.readings()
	*read = append(*read, r.micros)
	Note("reads the clock: %d", r.micros)
	return r.micros
}

var start = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// Now is Clock's reading as an instant.
func Now() time.Time { return start.Add(time.Duration(Clock()) * time.Microsecond) }

// readings are the clock readings of the running actor.
func (r *Run) readings() *[]int64 {
	if r.current == nil {
		return &r.read
	}
	return &r.current.read
}

// Note adds an action of the running actor to the trace.
func Note(format string, args ...any) {
	r := running
	if r == nil || !r.tracing || r.pruned {
		return
	}
	who := "-"
	if r.current != nil {
		who = r.current.name
	}
	r.trace = append(r.trace, fmt.Sprintf("%4d  %-8s %s", len(r.events), who, fmt.Sprintf(format, args...)))
}

// Tracing reports whether notes are kept.
func Tracing() bool { return running != nil && running.tracing && !running.pruned }

// Name returns the name of an object in the trace, or "" if notes aren't kept.
func Name(object unsafe.Pointer) string {
	if !Tracing() {
		return ""
	}
	return fmt.Sprintf("%d", running.number(object))
}

// String returns the run's trace, and the promises that it has broken.
func (r *Run) String() string {
	return strings.Join(r.trace, "\n") + "\n=> " + strings.Join(r.broken, "\n=> ")
}

func (r *Run) number(object unsafe.Pointer) int {
	n, found := r.objects[object]
	if !found {
		n = len(r.objects)
		r.objects[object] = n
		if n < cap(r.byObject) { // in place of those of a run before
			r.byObject = r.byObject[:n+1]
			r.byObject[n] = r.byObject[n][:0]
		} else {
			r.byObject = append(r.byObject, nil)
		}
	}
	return n
}

func at(k Kind, object unsafe.Pointer, held *bool) {
	r := running
	if r == nil || r.current == nil || r.pruned {
		if held != nil && *held && (r == nil || !r.pruned) {
			panic("steps: a mutex is locked twice where nobody would free it")
		}
		return
	}
	r.pause(op{access: access{k, r.number(object)}, held: held})
}

// pause pauses the running actor before a step until the step is taken.
func (r *Run) pause(o op) {
	if !r.current.yield(o) {
		panic(pruned{})
	}
}
