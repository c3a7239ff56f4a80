// Package background is internal/background for code that is explored: see package steps.
// A panic breaks a promise.
package background

// Do calls f.
func Do(_ string, f func()) { f() }
