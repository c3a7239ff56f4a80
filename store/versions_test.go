package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

// steps is a store of the steps alone, which keeps each state for exactly its Lifetime.
type steps struct {
	now    store.Now
	states map[string]kept
	leases uint64
}

type kept struct {
	store.State
	until time.Duration
}

func (s *steps) find(c store.Charge) store.State {
	k := s.states[c.Key+c.Limit.StateName()]
	if k.until <= time.Duration(s.now.Steady)*time.Microsecond {
		return store.State{}
	}
	return k.State
}

func (s *steps) keep(c store.Charge, state store.State, r *store.Result) {
	lifetime := c.Limit.Lifetime(s.now, &state, r)
	until := time.Duration(s.now.Steady)*time.Microsecond + lifetime
	if lifetime == store.Never {
		until = store.Never
	}
	s.states[c.Key+c.Limit.StateName()] = kept{state, until}
}

func (s *steps) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	states := make([]store.State, len(charges))
	for i, c := range charges {
		states[i] = s.find(c)
	}
	s.leases++
	s.now.Lease = store.Lease(s.leases)
	store.Decide(s.now, charges, states, results)
	for i, c := range charges {
		s.keep(c, states[i], &results[i])
	}
	return nil
}

func (s *steps) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	for i, c := range charges {
		state := s.find(c)
		store.Amend(s.now, &charges[i], &state, &results[i])
		s.keep(c, state, &results[i])
	}
	return nil
}

func TestVersions(t *testing.T) {
	t.Parallel()
	versionstest.Run(t, 60, func(t *testing.T, trace func(*testing.T, versionstest.Bench)) {
		s := &steps{states: map[string]kept{}}
		trace(t, versionstest.Bench{Store: s, Now: func() int64 { return s.now.Steady }, Sleep: func(d time.Duration) {
			s.now.Steady += d.Microseconds()
			s.now.Wall = s.now.Steady
		}})
	})
}
