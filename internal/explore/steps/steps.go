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
// Orders that differ only in steps that don't meet come to the same, so one of them is
// run: two steps meet if they are on one variable, mutex or clock and one of them changes
// it. The search is dynamic partial order reduction with source sets and sleep sets
// (Abdulla, Aronis, Jonsson and Sagonas, POPL 2014), without any bound. Atomic operations of Go are sequentially consistent,
// so no order is missing; that the rest is not shared is for the race detector to say.
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
	// call and back are where a call begins and has come back: of two calls it matters
	// which of them ended before the other began.
	call
	back
	// refused is a TryLock of a mutex that isn't free.
	refused
)

// Find explores a scenario until a run breaks a promise. It returns how many runs there
// were and the trace of the last, or "" if none has. The scenario sets up what the actors
// share, starts them with [Run.Go], and says what is to be true at the end with
// [Run.End]. It does the same each time.
func Find(scenario func(*Run)) (runs int, trace string) { return find(scenario, false) }

// find takes every order one by one if it is told to.
func find(scenario func(*Run), every bool) (runs int, trace string) {
	var path []node
	last := &Run{}
	for {
		runs++
		r := &Run{path: path, every: every, events: last.events[:0], on: last.on[:0], objects: last.objects}
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
	path   []node
	every  bool // order, one by one
	actors []*actor
	ends   []func()

	objects map[unsafe.Pointer]int // none is freed during the run, so no address comes again
	on      [][]int32              // events by object
	events  []event
	marks   int // where calls begin and end

	current *actor // nil while the scenario sets up, and at its end
	way     int    // in which its step is taken
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
	name  string
	next  func() (op, bool)
	stop  func()
	yield func(op) bool
	op    op // where it stands
	over  bool
	timer bool    // it may wait for ever
	since before  // what its next step depends on
	read  []int64 // from the clock
	begun int     // actors that it has started
}

// running is the run under way: one at a time in a process.
var running *Run

// pruned unwinds an actor whose run isn't gone on with.
type pruned struct{}

// Go starts an actor when the scenario has been set up. If it panics, that breaks a promise.
func (r *Run) Go(name string, f func()) { r.start(name, f) }

func (r *Run) start(name string, f func()) *actor {
	if len(r.actors) == most {
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
		r.current.begun++
		a := r.start(fmt.Sprintf("%s.%d", r.current.name, r.current.begun), f)
		Note("starts %s", a.name)
	}
}

// End has f called when all actors have returned.
func (r *Run) End(f func()) { r.ends = append(r.ends, f) }

// Broken says that a promise is broken. In a run that isn't gone on with it means nothing:
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

// Span is where a call was in a run. One that began later than another ended came after
// it.
type Span struct {
	Began, Ended int
	Clock        []int64 // what the call has read from the clock
}

// Call makes a call of which it matters whether another ended before it began.
func (r *Run) Call(what string, f func()) (s Span) {
	s.Began = r.mark(call, what+" begins")
	read := r.readings()
	*read = nil
	f()
	s.Clock = *read
	s.Ended = r.mark(back, what+" is back")
	return s
}

// mark returns how many there have been.
func (r *Run) mark(k Kind, what string) int {
	at(k, unsafe.Pointer(&r.marks), nil)
	Note("%s", what)
	r.marks++
	return r.marks
}

// At pauses the actor that runs before a step on an object. Outside of actors nothing
// pauses.
func At(k Kind, object unsafe.Pointer) { at(k, object, nil) }

// AtBoth pauses before a step that changes two objects.
func AtBoth(object, other unsafe.Pointer) {
	if r := running; r != nil && r.current != nil && !r.pruned {
		r.pause(op{touch: touch{Store, r.number(object)}, more: []touch{{Store, r.number(other)}}})
	}
}

// AtLock pauses before a mutex is locked until it is free: held says whether it is.
func AtLock(object unsafe.Pointer, held *bool) { at(Lock, object, held) }

// Unchanged says that the Store or TryLock just paused at has changed nothing.
func Unchanged() {
	if r := running; r != nil && r.current != nil && !r.pruned {
		switch e := &r.events[len(r.events)-1]; e.kind {
		case Store:
			e.kind = Load
		case TryLock:
			e.kind = refused
		}
	}
}

// Clock reads the clock.
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

// readings are the clock's of who runs.
func (r *Run) readings() *[]int64 {
	if r.current == nil {
		return &r.read
	}
	return &r.current.read
}

// Note adds to the trace what the actor that runs has just done.
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

// Tracing says whether what is noted is kept.
func Tracing() bool { return running != nil && running.tracing && !running.pruned }

// Name is how the trace calls an object. Where nothing is kept of what is noted, it is empty.
func Name(object unsafe.Pointer) string {
	if !Tracing() {
		return ""
	}
	return fmt.Sprintf("%d", running.number(object))
}

// String is the run's trace, and what it has broken.
func (r *Run) String() string {
	return strings.Join(r.trace, "\n") + "\n=> " + strings.Join(r.broken, "\n=> ")
}

func (r *Run) number(object unsafe.Pointer) int {
	n, known := r.objects[object]
	if !known {
		n = len(r.objects)
		r.objects[object] = n
		if n < cap(r.on) { // in place of those of a run before
			r.on = r.on[:n+1]
			r.on[n] = r.on[n][:0]
		} else {
			r.on = append(r.on, nil)
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
	r.pause(op{touch: touch{k, r.number(object)}, held: held})
}

// pause has the actor that runs stand before a step until it is taken.
func (r *Run) pause(o op) {
	if !r.current.yield(o) {
		panic(pruned{})
	}
}
