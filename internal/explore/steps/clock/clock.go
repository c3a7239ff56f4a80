// Package clock is internal/clock for code that is explored: see package steps. There
// are no timers in it.
package clock

import (
	"time"

	"github.com/stint-go/stint/internal/explore/steps"
)

var start = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// Now is a step that reads the clock.
func Now() time.Time { return start.Add(time.Duration(steps.Clock()) * time.Microsecond) }

// Since is a step that reads the clock.
func Since(t time.Time) time.Duration { return Now().Sub(t) }

// Micros is a step that reads the clock.
func Micros(t time.Time) int64 { return Since(t).Microseconds() }

// Until is a step that reads the clock.
func Until(t time.Time) time.Duration { return t.Sub(Now()) }
