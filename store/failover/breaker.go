package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stint-go/stint/store"
)

// State is what the breaker does with calls.
type State uint8

const (
	// Closed: calls go to the primary.
	Closed State = iota
	// Open: calls go to the secondary, and the primary is probed.
	Open
)

// String returns "closed" or "open".
func (s State) String() string {
	if s == Open {
		return "open"
	}
	return "closed"
}

// Event is a change of the breaker's state.
type Event struct {
	// From and To are the states before and after.
	From, To State
	// At is when it changed.
	At time.Time
	// Err, when the breaker opens, is the primary's last failure.
	Err error
	// Probes, when it closes, is how many it took, the one that succeeded
	// included.
	Probes uint64
}

// Stats are counts since New.
type Stats struct {
	State     State
	Failures  uint64 // calls that the primary failed, probes not included
	Fallbacks uint64 // calls that the secondary decided instead
	Refusals  uint64 // calls that failed with ErrOpen
	Opened    uint64 // times the breaker opened
	Probes    uint64 // probes made
}

// Store is a store over two. It is safe for concurrent use.
type Store struct {
	primary, secondary store.Store

	threshold      uint32
	every, timeout time.Duration
	isFailure      func(error) bool
	observe        func(Event)

	// The library's breaker counts and decides; it changes state only inside
	// Execute. Half open, a state in which it lets one caller try, is used by
	// the prober alone: open says, without a lock, that nobody else may ask.
	breaker *gobreaker.CircuitBreaker[struct{}]
	open    atomic.Bool

	failures, fallbacks, refusals, opened, probes atomic.Uint64

	mu      sync.Mutex
	last    error          // the primary's last failure
	cause   error          // and ErrOpen with it, once somebody asked
	seen    []store.Charge // what to probe with
	events  []Event        // not yet observed
	probing bool           // the goroutine runs
	before  uint64         // probes made before the breaker opened

	life context.Context // until Close
	end  context.CancelFunc
}

func (s *Store) newBreaker() {
	s.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		// The prober keeps the time. As soon as it asks, it may.
		Timeout:       1,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= s.threshold },
		IsExcluded:    func(err error) bool { _, ok := err.(notCounted); return ok || err == errNotAsked },
		OnStateChange: s.changed,
	})
}

// notCounted wraps an error that is no failure of the primary.
type notCounted struct{ error }

// errNotAsked is the outcome of a call that found the breaker open.
var errNotAsked = errors.New("not asked")

// ask makes a call on the primary if the breaker is closed. Of what it returns,
// failure makes the caller's error.
func (s *Store) ask(ctx context.Context, charges []store.Charge, call func() error) error {
	if s.open.Load() {
		return errNotAsked
	}
	_, err := s.breaker.Execute(func() (struct{}, error) {
		if s.open.Load() { // opened just now: this would be a probe
			return struct{}{}, errNotAsked
		}
		err := call()
		if err == nil {
			return struct{}{}, nil
		}
		if !s.counts(ctx, err) {
			return struct{}{}, notCounted{err}
		}
		s.failures.Add(1)
		s.remember(err, charges)
		return struct{}{}, err
	})
	if err == gobreaker.ErrOpenState || err == gobreaker.ErrTooManyRequests {
		return errNotAsked
	}
	return err
}

// failure is the error that a caller gets for a call that only the primary
// could have answered and for which ask returned err.
func (s *Store) failure(err error) error {
	if n, ok := err.(notCounted); ok {
		return n.error
	}
	if err == errNotAsked {
		s.refusals.Add(1)
		return s.openError()
	}
	return err
}

// counts reports whether err is the primary's fault.
func (s *Store) counts(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	// A connection that was given the context's deadline can notice it before
	// the context does.
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return false
	}
	for _, malformed := range []error{store.ErrCost, store.ErrLimit, store.ErrResults, store.ErrDuplicate} {
		if errors.Is(err, malformed) {
			return false
		}
	}
	return s.isFailure == nil || s.isFailure(err)
}

// remember keeps a failure, and a charge to probe with.
func (s *Store) remember(err error, charges []store.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.cause = err, nil
	if len(charges) > 0 {
		s.seen = []store.Charge{{Key: charges[0].Key, Limit: charges[0].Limit}}
	}
}

// openError is ErrOpen with the primary's last failure.
func (s *Store) openError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = ErrOpen
		if s.last != nil {
			s.cause = fmt.Errorf("%w: %w", ErrOpen, s.last)
		}
	}
	return s.cause
}

// State returns whether calls go to the primary.
func (s *Store) State() State {
	if s.open.Load() {
		return Open
	}
	return Closed
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	return Stats{
		State:     s.State(),
		Failures:  s.failures.Load(),
		Fallbacks: s.fallbacks.Load(),
		Refusals:  s.refusals.Load(),
		Opened:    s.opened.Load(),
		Probes:    s.probes.Load(),
	}
}
