// Package time is package time for code that is explored: see package steps. Its clock is
// that of the run.
package time

import (
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
)

// What is package time's.
type (
	Duration = time.Duration
	Time     = time.Time
	Location = time.Location
	Month    = time.Month
	Weekday  = time.Weekday
)

// The constants of package time.
const (
	Nanosecond  = time.Nanosecond
	Microsecond = time.Microsecond
	Millisecond = time.Millisecond
	Second      = time.Second
	Minute      = time.Minute
	Hour        = time.Hour
)

// UTC is time.UTC.
var UTC = time.UTC

// Unix is time.Unix.
func Unix(sec, nsec int64) Time { return time.Unix(sec, nsec) }

// UnixMicro is time.UnixMicro.
func UnixMicro(micros int64) Time { return time.UnixMicro(micros) }

// UnixMilli is time.UnixMilli.
func UnixMilli(millis int64) Time { return time.UnixMilli(millis) }

// Now is a step that reads the clock.
func Now() Time { return steps.Now() }

// Since is a step that reads the clock.
func Since(t Time) Duration { return Now().Sub(t) }

// Until is a step that reads the clock.
func Until(t Time) Duration { return t.Sub(Now()) }

// Timer is time.Timer.
type Timer struct {
	*steps.Timer
	C <-chan Time
}

// AfterFunc is time.AfterFunc.
func AfterFunc(d Duration, f func()) *Timer {
	return &Timer{Timer: steps.NewTimer(d, func() { steps.Spawn(f) }, nil, nil)}
}

// NewTimer is time.NewTimer.
func NewTimer(d Duration) *Timer {
	c := make(chan Time, 1)
	drain := func() {
		select {
		case <-c:
		default:
		}
	}
	return &Timer{steps.NewTimer(d, func() { c <- time.Time{} }, *(*unsafe.Pointer)(unsafe.Pointer(&c)), drain), c}
}

// Sleep is time.Sleep.
func Sleep(d Duration) { lang.Receive(After(d)) }

// After is time.After.
func After(d Duration) <-chan Time { return NewTimer(d).C }
