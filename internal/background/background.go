// Package background is what goroutines and timers of this module's own do with a
// panic of somebody else's code: an observer, a callback, a store.
package background

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Do calls f. On a goroutine of our own a panic of it would end the process, where
// one on a request's goroutine ends the request. So it is written to slog.Default at
// Error, with its value and stack, as net/http's server does, and Do returns. What
// has to happen also if f panics is deferred in f, or stands behind Do.
func Do(what string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			slog.Error("stint: panic in the background", "while", what, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	f()
}
