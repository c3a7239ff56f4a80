// Package clock is internal/clock for code that is explored: see package steps.
package clock

import (
	"time"

	"github.com/stint-go/stint/internal/explore/steps"
	twin "github.com/stint-go/stint/internal/explore/steps/time"
)

// Now is a step that reads the clock.
func Now() time.Time { return steps.Now() }

// Since is a step that reads the clock.
func Since(t time.Time) time.Duration { return Now().Sub(t) }

// Micros is a step that reads the clock.
func Micros(t time.Time) int64 { return Since(t).Microseconds() }

// Until is a step that reads the clock.
func Until(t time.Time) time.Duration { return t.Sub(Now()) }

// Timer is clock.Timer.
type Timer = twin.Timer

// NewTimer is clock.NewTimer.
func NewTimer(d time.Duration) *Timer { return twin.NewTimer(d) }

// AfterFunc is clock.AfterFunc.
func AfterFunc(d time.Duration, f func()) *Timer { return twin.AfterFunc(d, f) }
