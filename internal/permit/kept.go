package permit

import (
	"context"

	"github.com/stint-go/stint/internal/decide"
)

// Travel is how a permit leaves its process, as values, and comes back in any process: for stint serve, whose clients
// hold their permits. Package stint sets it. A permit is a *stint.Permit and a limiter is a *stint.Limiter, which no
// package below stint can name.
var Travel struct {
	// Keep returns what a permit of Limiter.Take holds. Slots can't be kept.
	Keep func(permit any) []decide.Kept
	// Resume returns the permit of a key that holds what was kept of another. After that, only one of both may be
	// settled or extended. It calls no store. The error is about the key.
	Resume func(ctx context.Context, limiter any, key string, kept []decide.Kept) (permit any, err error)
}
