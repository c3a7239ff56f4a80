package stint

import (
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/waiting"
)

// story is what happens to a permit's request: how it has waited, how long it holds slots, and what
// adaptive limits learn from it. It changes until the permit ends. A permit of which nobody asks
// these things has none.
type story struct {
	waited  time.Duration
	seen    []waiting.Seen
	since   time.Time     // when it was admitted
	held    time.Duration // how long it held slots, once they are released
	learns  bool          // whether an AdaptiveConcurrency learns from it
	outcome adaptive.Outcome
}
