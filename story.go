package stint

import (
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/waiting"
)

// story is the observations of a request.
type story struct {
	waited  time.Duration
	seen    []waiting.Seen
	since   time.Time     // when it was admitted
	held    time.Duration // how long it held slots, once they are released
	learns  bool          // whether an AdaptiveConcurrency learns from it
	outcome adaptive.Outcome
	slots   *slots // of a permit that Take or Wait returned
}
