// Package clock has the clock of a store in memory. It is that of package time, unless a
// package of this module sets another: then a day's requests are decided in seconds,
// beside limiters of the same process that go by the real time.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that its owner sets. A nil Clock is that of package time. It is safe for
// concurrent use.
type Clock struct {
	start time.Time
	gone  atomic.Int64 // nanoseconds since start
}

// New returns a clock that shows start until it is set.
func New(start time.Time) *Clock { return &Clock{start: start.Round(0)} }

// Set sets the clock to t, which must be within 292 years of its start. A time before the
// one it shows sets it back.
func (c *Clock) Set(t time.Time) { c.gone.Store(int64(t.Sub(c.start))) }

// Now is time.Now.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	return c.start.Add(time.Duration(c.gone.Load()))
}

// Micros returns the time since t in microseconds. A nil Clock reads one clock of the system
// for that, where Now reads two.
func (c *Clock) Micros(t time.Time) int64 {
	if c != nil {
		return c.micros(t)
	}
	return int64(time.Since(t)) / 1000
}

// micros isn't inlined, so that Micros is.
//
//go:noinline
func (c *Clock) micros(t time.Time) int64 { return int64(c.Now().Sub(t)) / 1000 }
