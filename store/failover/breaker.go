package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

// State is the state of the breaker.
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

// Stats has the numbers of events since New.
type Stats struct {
	State     State
	Failures  uint64 // calls that counted as failures of the primary, not including probes
	Fallbacks uint64 // calls that the secondary decided instead of the primary
	Denials   uint64 // calls that failed with ErrOpen
	Opened    uint64 // times that the breaker opened
	Probes    uint64 // probes made
}

// callerError wraps an error that is due to the caller and returned to it: the secondary isn't asked.
type callerError struct{ error }

// errNotAsked is the outcome of a call made while the breaker was open.
var errNotAsked = errors.New("not asked")

// ask makes a call on the primary if the breaker is closed. errorOf turns its error
// into the caller's.
func (s *Store) ask(ctx context.Context, charges []store.Charge, call func() error) error {
	now, open := s.circuit.state()
	if open {
		return errNotAsked
	}
	defer s.failOnPanic(now, charges)
	err := call()
	switch {
	case err == nil:
		s.recordSuccess(now)
		return nil
	case callersOwn(ctx, err):
		return callerError{err}
	}
	s.recordFailure(now, err, charges)
	s.reportFailure(err)
	return err
}

// failOnPanic counts a panic of the primary as a failure, and lets it go on to the caller.
func (s *Store) failOnPanic(since period, charges []store.Charge) {
	p := recover()
	if p == nil {
		return
	}
	err := fmt.Errorf("panic: %v", p)
	s.recordFailure(since, err, charges)
	s.reportFailure(err)
	panic(p)
}

// errorOf returns the error for the caller of a call that only the primary could have
// answered, and for which ask returned err.
func (s *Store) errorOf(err error) error {
	if f, ok := err.(callerError); ok {
		return f.error
	}
	if err == errNotAsked {
		s.denials.Add(1)
		return s.openError()
	}
	return err
}

// callersOwn reports whether an error of the primary is due to its caller.
func callersOwn(ctx context.Context, err error) bool {
	for _, malformed := range []error{store.ErrCost, store.ErrLimit, store.ErrResults, store.ErrDuplicate, store.ErrBan} {
		if errors.Is(err, malformed) {
			return true
		}
	}
	// A connection that was given the context's deadline can notice it before the context does.
	deadline, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(deadline)
}

// openError returns ErrOpen joined with the primary's last failure.
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

// State returns the state of the breaker.
func (s *Store) State() State {
	if _, open := s.circuit.state(); open {
		return Open
	}
	return Closed
}

// Degraded implements store.Degradable. While the breaker is open, it returns the secondary, or
// nil without one, and ErrOpen joined with the primary's last failure.
func (s *Store) Degraded() (instead store.Store, err error) {
	if s.State() == Closed {
		return nil, nil
	}
	return s.secondary, s.openError()
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	return Stats{
		State:     s.State(),
		Failures:  s.failures.Load(),
		Fallbacks: s.fallbacks.Load(),
		Denials:   s.denials.Load(),
		Opened:    s.opened.Load(),
		Probes:    s.probes.Load(),
	}
}
