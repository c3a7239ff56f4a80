package steps

import (
	"math"
	"time"
	"unsafe"
)

// Timer does something once the run's clock has come to an instant, or at any time after.
type Timer struct {
	armed bool
	at    int64
	fills unsafe.Pointer // a channel that gets an element when it fires
	drain func()         // takes that out again, unless it was received
}

// NewTimer makes a timer that does something after d, in a step.
func NewTimer(d time.Duration, fire func(), fills unsafe.Pointer, drain func()) *Timer {
	t := &Timer{fills: fills, drain: drain}
	r := running
	if r == nil || r.ending || r.pruned {
		return t
	}
	r.timers = append(r.timers, t)
	r.start("timer", func() {
		for {
			r.pause(op{touch: touch{Store, r.number(unsafe.Pointer(t))}, more: t.touches(r), waits: true, ways: t.ways})
			t.armed = false
			Note("fires")
			fire()
		}
	}).timer = true
	t.Reset(d)
	return t
}

// touches is the other object that the timer touches.
func (t *Timer) touches(r *Run) []touch {
	more := []touch{{Load, r.number(unsafe.Pointer(&r.micros))}}
	if t.fills != nil {
		more = append(more, touch{Store, r.number(t.fills)})
	}
	return more
}

func (t *Timer) ways() int {
	if t.armed && running.micros >= t.at {
		return 1
	}
	return 0
}

// Stop is a step that stops the timer, and says whether it hadn't fired.
func (t *Timer) Stop() bool { return t.set(math.MaxInt64, false) }

// Reset is a step that has the timer fire after d, and says whether it hadn't fired.
func (t *Timer) Reset(d time.Duration) bool { return t.set(d, true) }

func (t *Timer) set(d time.Duration, armed bool) (was bool) {
	r := running
	if r == nil {
		return false
	}
	if r.current != nil && !r.pruned {
		r.pause(op{touch: touch{Store, r.number(unsafe.Pointer(t))}, more: t.touches(r)})
	}
	was, t.armed = t.armed, armed
	if armed {
		t.at = r.micros + max(d.Microseconds(), 0)
		Note("sets timer %s to %d", Name(unsafe.Pointer(t)), t.at)
	}
	if t.drain != nil {
		t.drain()
	}
	return was
}

// idle has time go on to the next timer, when everybody waits. All that there was came
// before that, in any order.
func (r *Run) idle() bool {
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
		for i := range a.since {
			a.since[i] = int32(len(r.events))
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
		r.pause(op{touch: touch{Store, r.number(object)}, more: []touch{{Load, r.number(unsafe.Pointer(&r.micros))}}})
	}
	return r.micros
}
