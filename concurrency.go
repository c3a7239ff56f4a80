package stint

import (
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Concurrency lets n requests of a key run at once. A request takes one slot, or as many as the limit's own WithCost says; one of the limiter or the route doesn't apply.
// The default name is "concurrency". n is from 1 to 2^40; New rejects other numbers. It
// combines with every other kind of limit.
//
// A request that finds no slot is denied, or waits if WithQueue or WithMaxWait says
// so. The time until a slot comes free is unknown: Decision.RetryAfter and the
// Retry-After field of a denial say 1 second. The slot is released when the handler returns or
// panics. A handler that hands over its connection (a websocket) calls Permit.Detach. A
// WithSettle of the limiter or the route doesn't apply.
func Concurrency(n int64, opts ...SlotOption) Limit {
	return newLimit(&compile.Rule{Kind: limit.Concurrent, Spec: store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}}, opts)
}
