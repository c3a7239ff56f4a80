// Package clock is the clock of limits in memory, lines of waiters, adaptive limits and
// plans. It is the process's clock, as package time reads it, unless a tool of this
// module drives it: then a day's requests are decided in seconds.
//
// Everything else stays with package time: deadlines of contexts, which a tool must
// leave out, and how long a store or a load may take.
package clock

import "time"

// Without a driver, driver is nil, and now and since are those of package time.
// They are plain variables, because a decision reads the clock more often than anything
// else: driving begins before anything reads them.
var (
	driver *Driver
	now    = time.Now
	since  = time.Since
)

// Now is time.Now.
func Now() time.Time { return now() }

// Since is time.Since. It reads one clock of the system; Now reads two.
func Since(t time.Time) time.Duration { return since(t) }

// Micros returns the time since t in microseconds.
func Micros(t time.Time) int64 { return int64(since(t)) / 1000 }

// Until is time.Until.
func Until(t time.Time) time.Duration { return -Since(t) }

// Timer is time.Timer. Its C has a buffer for one instant.
type Timer struct {
	C      <-chan time.Time
	timer  *time.Timer
	driven *alarm
}

// NewTimer is time.NewTimer.
func NewTimer(d time.Duration) *Timer {
	if by := driver; by != nil {
		c := make(chan time.Time, 1)
		return &Timer{C: c, driven: by.alarm(d, c, nil)}
	}
	t := time.NewTimer(d)
	return &Timer{C: t.C, timer: t}
}

// AfterFunc is time.AfterFunc.
func AfterFunc(d time.Duration, f func()) *Timer {
	if by := driver; by != nil {
		return &Timer{driven: by.alarm(d, nil, f)}
	}
	return &Timer{timer: time.AfterFunc(d, f)}
}

// Stop is as that of time.Timer.
func (t *Timer) Stop() bool {
	if t.driven != nil {
		return t.driven.set(-1)
	}
	return t.timer.Stop()
}

// Reset is as that of time.Timer.
func (t *Timer) Reset(d time.Duration) bool {
	if t.driven != nil {
		return t.driven.set(max(d, 0))
	}
	return t.timer.Reset(d)
}
