package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/versionstest"
	"github.com/stint-go/stint/store"
)

// steps is a store of the steps alone, which never drops a state.
type steps struct {
	now    store.Now
	states map[string]store.State
	leases uint64
}

func (s *steps) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	states := make([]store.State, len(charges))
	for i, c := range charges {
		states[i] = s.states[c.Limit.Name()]
	}
	s.leases++
	s.now.Lease = store.Lease(s.leases)
	store.Decide(s.now, charges, states, results)
	for i, c := range charges {
		s.states[c.Limit.Name()] = states[i]
	}
	return nil
}

func (s *steps) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	for i, c := range charges {
		state := s.states[c.Limit.Name()]
		store.Amend(s.now, &charges[i], &state, &results[i])
		s.states[c.Limit.Name()] = state
	}
	return nil
}

func TestVersions(t *testing.T) {
	t.Parallel()
	traces := uint64(250)
	if underRace {
		traces = 100
	}
	versionstest.Run(t, traces, func(t *testing.T, trace func(*testing.T, versionstest.Bench)) {
		s := &steps{states: map[string]store.State{}}
		trace(t, versionstest.Bench{Store: s, Now: func() int64 { return s.now.Steady }, Sleep: func(d time.Duration) {
			s.now.Steady += d.Microseconds()
			s.now.Wall = s.now.Steady
		}})
	})
}
