package redisstore

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

// WithHelpClock has the deny cache and prefetching count time by now. It stands after
// the options that turn them on.
func WithHelpClock(now func() time.Time) Option {
	return option(func(s *Store) {
		if s.denies != nil {
			s.denies.now = now
		}
		if s.prefetching != nil {
			s.prefetching.now = now
		}
	})
}

// Sweep gives back the tokens that WithPrefetch has kept too long, and waits for that.
func (s *Store) Sweep() { s.prefetching.sweep() }

// LookForEvictions asks the servers now, and reports whether they will be asked again.
func (s *Store) LookForEvictions() bool { return s.evictions.observed() && s.evictions.look() }

// ObserveEvictions has o told of what LookForEvictions finds, and asks no server.
func (s *Store) ObserveEvictions(o *store.Observer) { s.evictions.observers.Observe(o) }

// Renew renews all leases now, and reports whether the server has answered.
func (s *Store) Renew() bool { return s.renewals.renew(0) }

// UnderRace tells whether the race detector looks on.
const UnderRace = underRace

// Die ends the renewal of leases and releases none, as the death of the process does.
func (s *Store) Die() { s.leases.close() }

// Unusable reports whether an error is of one of the classes but ErrConfiguration.
var Unusable = fault.Temporary

// Told is a store whose charges have an observer, as those of a limiter have.
type Told struct {
	*Store
	observer *store.Observer
}

// WithLost has lost called for each lease that the store loses.
func (s *Store) WithLost(lost func(key string, l *store.Limit)) Told {
	return Told{s, &store.Observer{Tell: func(n store.Notice) {
		if n.Kind == store.LeaseLost {
			lost(n.Key, n.Limit)
		}
	}}}
}

func (s Told) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	for i := range charges {
		charges[i].Observer = s.observer
	}
	return s.Store.Take(ctx, charges, results)
}
