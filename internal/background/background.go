// Package background is for work that outlives the request it belongs to: how long it may
// take, and what becomes of a panic of other people's code (an observer, a callback, a
// store) on goroutines and timers of this module's own.
package background

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// GiveBack is how long giving something back to a store may take once the request that had
// it has ended, and how long the answer to a call that was to reserve it is waited for.
const GiveBack = 2 * time.Second

// Do calls f and recovers its panic. On a request's goroutine a panic ends the request;
// on one of our own it would end the process. So Do writes it to slog.Default at level
// Error, with its value and stack, as net/http's server does, and returns. What must
// happen even if f panics is deferred in f, or comes after Do.
func Do(what string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			slog.Error("stint: panic in the background", "while", what, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	f()
}
