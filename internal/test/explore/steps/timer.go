package steps

import (
	"math"
	"time"
	"unsafe"
)

// Timer calls a function when the run's clock has reached an instant, or at any time after.
type Timer struct {
	armed   bool
	at      int64
	channel unsafe.Pointer // a channel that gets an element when it fires
	drain   func()         // takes that out again, unless it was received
}

// NewTimer makes a timer that calls fire after d, in a step.
func NewTimer(d time.Duration, fire func(), channel unsafe.Pointer, drain func()) *Timer {
	t := &Timer{channel: channel, drain: drain}
	r := running
	if r == nil || r.ending || r.pruned {
		return t
	}
	r.timers = append(r.timers, t)
	r.start("timer", func() {
		for {
			r.pause(op{access: access{Store, r.number(unsafe.Pointer(t))}, others: t.otherAccesses(r), waits: true, choices: t.choices})
			t.armed = false
			Note("fires")
			fire()
		}
	}).timer = true
	t.Reset(d)
	return t
}

// otherAccesses returns the accesses of the timer to other objects.
func (t *Timer) otherAccesses(r *Run) []access {
	more := []access{{Load, r.number(unsafe.Pointer(&r.micros))}}
	if t.channel != nil {
		more = append(more, access{Store, r.number(t.channel)})
	}
	return more
}

func (t *Timer) choices() int {
	if t.armed && running.micros >= t.at {
		return 1
	}
	return 0
}

// Stop is a step that stops the timer, and reports whether it hadn't fired.
func (t *Timer) Stop() bool { return t.set(math.MaxInt64, false) }

// Reset is a step that has the timer fire after d, and reports whether it hadn't fired.
func (t *Timer) Reset(d time.Duration) bool { return t.set(d, true) }

func (t *Timer) set(d time.Duration, armed bool) (wasArmed bool) {
	r := running
	if r == nil {
		return false
	}
	if r.current != nil && !r.pruned {
		r.pause(op{access: access{Store, r.number(unsafe.Pointer(t))}, others: t.otherAccesses(r)})
	}
	wasArmed, t.armed = t.armed, armed
	if armed {
		t.at = r.micros + max(d.Microseconds(), 0)
		Note("sets timer %s to %d", Name(unsafe.Pointer(t)), t.at)
	}
	if t.drain != nil {
		t.drain()
	}
	return wasArmed
}

// advanceToTimer advances the clock to the next timer, when all actors wait. All events so far happened
// before that. It reports whether there is a timer.
func (r *Run) advanceToTimer() bool {
	next := int64(math.MaxInt64)
	for _, t := range r.timers {
		if t.armed {
			next = min(next, t.at)
		}
	}
	if next == math.MaxInt64 {
		return false
	}
	r.micros = next
	Note("everybody waits: it is %d", next)
	for _, a := range r.actors {
		for i := range a.clock {
			a.clock[i] = int32(len(r.events))
		}
	}
	return true
}

// AtTime pauses before a step that changes an object at an instant, and returns that.
func AtTime(object unsafe.Pointer) (micros int64) {
	r := running
	if r == nil {
		return 0
	}
	if r.current != nil && !r.pruned {
		r.pause(op{access: access{Store, r.number(object)}, others: []access{{Load, r.number(unsafe.Pointer(&r.micros))}}})
	}
	return r.micros
}
