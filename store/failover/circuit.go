package failover

import (
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// circuit is the state of the breaker. Closed, callers ask the primary, and its failures
// in a row are counted. Open, only the probing goroutine asks it, which other
// breakers call half open, so no caller ever tries out a primary that may be down.
//
//	          as many failures in a row as the threshold
//	closed ────────────────────────────────────────────────▶ open
//	       ◀────────────────────────────────────────────────
//	                   a probe is answered
//
// The state changes under Store.mu and is read without it.
type circuit struct {
	period   atomic.Uint64 // a period
	failures atomic.Int64  // consecutive ones in this period, while the breaker is closed
}

// period is the number of changes so far, so it is odd while the breaker is open. A call
// counts only in the period in which it began: one that began before an outage says
// nothing about the primary after it.
type period uint64

func (p period) open() bool { return p%2 == 1 }

// state returns the period, and whether the breaker is open in it.
func (c *circuit) state() (current period, open bool) {
	current = period(c.period.Load())
	return current, current.open()
}

// recordSuccess records that a call which began in a period has succeeded: failures before it don't
// count any more. Without failures, it takes no lock.
func (s *Store) recordSuccess(since period) {
	if s.circuit.failures.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if current, _ := s.circuit.state(); current == since {
		s.circuit.failures.Store(0)
	}
}

// recordFailure records the failure of a call that began in a period, and opens the breaker after as many
// consecutive failures as its threshold.
func (s *Store) recordFailure(since period, cause error, charges []store.Charge) {
	s.failures.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.cause = cause, nil
	if current, _ := s.circuit.state(); current != since {
		return
	}
	if len(charges) > 0 {
		s.probeCharges = probesFor(charges)
	}
	if s.circuit.failures.Add(1) >= int64(s.threshold) {
		s.switchState(event{opens: true, err: cause})
		s.opened.Add(1)
	}
}

// closeBreaker closes the breaker, because a probe was answered.
func (s *Store) closeBreaker() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.switchState(event{})
}

// event is a change of the breaker.
type event struct {
	opens bool
	err   error // why
}

// switchState opens or closes the breaker: it begins another period. The caller holds mu.
func (s *Store) switchState(e event) {
	s.circuit.failures.Store(0)
	s.circuit.period.Add(1)
	if s.life.Err() != nil {
		return
	}
	s.events = append(s.events, e)
	s.startProbing()
}
