package redistest

import (
	"sync/atomic"
	"testing"
	"time"
)

// Pulse measures waits in the time that the machine leaves to the process. On a busy
// machine a timer of five milliseconds may fire after fifty, and so does the one that a
// caller waits for: by a clock both are late, by a Pulse neither is.
//
// It may be used by several goroutines.
type Pulse struct{ beats atomic.Int64 }

const beat = 5 * time.Millisecond

// StartPulse starts a Pulse, which runs until the test ends.
func StartPulse(t testing.TB) *Pulse {
	t.Helper()
	p := &Pulse{}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-time.After(beat):
				p.beats.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-ended
	})
	return p
}

// Elapsed returns the time since the start, in whole beats of 5 ms. It is never more than
// a clock shows.
func (p *Pulse) Elapsed() time.Duration { return time.Duration(p.beats.Load()) * beat }
