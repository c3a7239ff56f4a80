// Package storefake has the store that tests put between a limiter and the store that
// answers: it counts calls, delays them, fails them, or loses their answers.
package storefake

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// Store is a store in front of another. Of what is found by assertion it has only what its
// fields say: a test that needs more embeds it. Its fields are set before the calls that they
// are for, which may come at once.
type Store struct {
	store.Store // that answers
	// OnTake and OnSettle, if not nil, are called in place of the store that answers.
	OnTake, OnSettle func(c *Call) error
	// AtOnce is what AnswersAtOnce returns, and Ends what Timeout does.
	AtOnce bool
	Ends   time.Duration

	mu             sync.Mutex
	takes, settles int
	fail           error
	last           store.Charge
}

// Call is a call of a Store.
type Call struct {
	Ctx     context.Context
	Charges []store.Charge
	Results []store.Result
	pass    func(context.Context, []store.Charge, []store.Result) error
}

// Pass has the store behind answer.
func (c *Call) Pass() error { return c.pass(c.Ctx, c.Charges, c.Results) }

// ErrDown is an error for FailWith.
var ErrDown = errors.New("store is down")

// New returns a Store in front of one in memory.
func New() *Store { return &Store{Store: memstore.New()} }

// Down returns a Store that answers nothing.
func Down() *Store {
	s := New()
	s.FailWith(errors.New("dial tcp 10.1.2.3: denied"))
	return s
}

// FailWith makes further calls fail with err, or work if it is nil.
func (s *Store) FailWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *Store) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	s.mu.Lock()
	s.takes++
	if n := len(charges); n > 0 {
		s.last = charges[n-1]
	}
	err := s.fail
	s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case s.OnTake != nil:
		return s.OnTake(&Call{ctx, charges, results, s.Store.Take})
	}
	return s.Store.Take(ctx, charges, results)
}

// Settle settles nothing if the context has ended, like a store across a network.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	s.mu.Lock()
	s.settles++
	err := s.fail
	s.mu.Unlock()
	if err == nil {
		err = ctx.Err()
	}
	switch {
	case err != nil:
		return err
	case s.OnSettle != nil:
		return s.OnSettle(&Call{ctx, charges, results, s.Store.Settle})
	}
	return s.Store.Settle(ctx, charges, results)
}

func (s *Store) AnswersAtOnce() bool { return s.AtOnce }

func (s *Store) Timeout() time.Duration { return s.Ends }

// Counts returns how many calls there were.
func (s *Store) Counts() (takes, settles int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes, s.settles
}

// Last returns the last charge of the last Take, at no cost.
func (s *Store) Last() store.Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Charge{Key: s.last.Key, Limit: s.last.Limit}
}

// Telling is a Store whose notices are the test's to tell.
type Telling struct {
	Store
	store.Observers
}
