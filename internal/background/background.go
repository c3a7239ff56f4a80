// Package background is for work that outlives its request. It says how long that may take, and
// recovers panics of an observer, a callback or a store on goroutines and timers of this module.
package background

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// SettleTimeout is how long giving charges back to a store may take once their request has ended. A
// call that may reserve a turn waits as long for the store's answer after its request has ended.
const SettleTimeout = 2 * time.Second

// Do calls f and recovers its panic. On a request's goroutine a panic ends the request;
// on another it would end the process. So Do writes it to slog.Default at level
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
