// Package background is internal/background for code that is explored: see package steps.
// A panic breaks a promise, unless it is a Planned.
package background

import "time"

// SettleTimeout is as in internal/background.
const SettleTimeout = 2 * time.Second

// Planned is a panic that belongs to a scenario.
type Planned string

// Do calls f, and recovers a Planned.
func Do(_ string, f func()) {
	defer func() {
		v := recover()
		if _, planned := v.(Planned); v != nil && !planned {
			panic(v)
		}
	}()
	f()
}
