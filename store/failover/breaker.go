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
	Failures  uint64 // calls that count as failures of the primary, probes not included
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
	patience       time.Duration
	born           time.Time // what the length of a call is measured from
	isFailure      func(error) bool
	observe        func(Event)
	observers      store.Observers

	// The library's breaker counts and decides; it changes state only inside
	// Execute. Half open, a state in which it lets one caller try, is used by
	// the prober alone: open says, without a lock, that nobody else may ask.
	breaker *gobreaker.CircuitBreaker[struct{}]
	open    atomic.Bool

	failures, fallbacks, refusals, opened, probes atomic.Uint64

	mu      sync.Mutex
	last    error                 // the primary's last failure
	cause   error                 // and ErrOpen with it, once somebody asked
	probed  []store.Charge        // what the primary is probed with
	events  []Event               // not yet observed
	probing bool                  // the goroutine runs
	before  uint64                // probes made before the breaker opened
	kept    map[slot]store.Charge // releases for when the breaker has closed

	life context.Context // until Close
	end  context.CancelFunc
}

func (s *Store) newBreaker() {
	s.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		// The prober keeps the time. As soon as it asks, it may.
		Timeout:       1,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= s.threshold },
		IsExcluded:    excluded,
		OnStateChange: s.changed,
	})
}

// final wraps an error that is the caller's to have: the secondary is not asked.
type final struct {
	error
	counted bool // as a failure of the primary
}

// errNotAsked is the outcome of a call that found the breaker open.
var errNotAsked = errors.New("not asked")

func excluded(err error) bool {
	f, ok := err.(final)
	return ok && !f.counted || err == errNotAsked
}

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
		// How long the call took is asked only if the caller's deadline ends
		// it: without one the clock is not read.
		var began time.Duration
		if _, bounded := ctx.Deadline(); bounded {
			began = time.Since(s.born)
		}
		err := call()
		if err == nil {
			return struct{}{}, nil
		}
		return struct{}{}, s.judge(ctx, began, err, charges)
	})
	if err == gobreaker.ErrOpenState || err == gobreaker.ErrTooManyRequests {
		return errNotAsked
	}
	if f, own := err.(final); err != nil && err != errNotAsked && (!own || f.counted) {
		s.observers.Tell(store.Notice{Kind: store.Degraded, Err: err})
	}
	return err
}

// failure is the error that a caller gets for a call that only the primary
// could have answered and for which ask returned err.
func (s *Store) failure(err error) error {
	if f, ok := err.(final); ok {
		return f.error
	}
	if err == errNotAsked {
		s.refusals.Add(1)
		return s.openError()
	}
	return err
}

// judge says what an error of the primary means, and keeps it if it counts.
func (s *Store) judge(ctx context.Context, began time.Duration, err error, charges []store.Charge) error {
	for _, malformed := range []error{store.ErrCost, store.ErrLimit, store.ErrResults, store.ErrDuplicate} {
		if errors.Is(err, malformed) {
			return final{error: err}
		}
	}
	ended := ctx.Err()
	deadline, bounded := ctx.Deadline()
	if ended == nil && bounded && !time.Now().Before(deadline) {
		// A connection that was given the context's deadline can notice it
		// before the context does.
		ended = context.DeadlineExceeded
	}
	cause := err
	if ended != nil {
		// The caller has no time left to ask the secondary in. Who is to blame
		// depends on how long the primary had.
		took := time.Since(s.born) - began
		if !bounded || !errors.Is(ended, context.DeadlineExceeded) || took < s.patience {
			return final{error: err}
		}
		cause = fmt.Errorf("failover: no answer in %v, until the caller's deadline: %w", took.Round(time.Millisecond), err)
	}
	if s.isFailure != nil && !s.isFailure(err) {
		return final{error: err}
	}
	s.failures.Add(1)
	s.remember(cause, charges)
	if ended != nil {
		return final{error: err, counted: true}
	}
	return err
}

// remember keeps a failure, and what to probe with.
func (s *Store) remember(err error, charges []store.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.cause = err, nil
	// Calls that were under way when the breaker opened fail for what they met
	// before; the probe stays with what opened it.
	if len(charges) > 0 && !s.open.Load() {
		s.probed = probesFor(charges)
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
