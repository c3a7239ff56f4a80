// Package clock is internal/clock for code that is explored: see package steps.
package clock

import (
	"time"

	"github.com/stint-go/stint/internal/explore/steps"
)

// Clock is clock.Clock, which nothing that is explored sets: it is the run's.
type Clock struct{ _ struct{} }

// Now is a step that reads the clock.
func (*Clock) Now() time.Time { return steps.Now() }

// Micros is a step that reads the clock.
func (c *Clock) Micros(t time.Time) int64 { return c.Now().Sub(t).Microseconds() }
