package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

// Store keeps its states in Redis. Make one with New. It is safe for concurrent use.
type Store struct {
	server
	bad   []*store.SpecError // options
	wrong error              // what is wrong with New's arguments, for each call

	takes       batch.Queue[takeRequest]
	settles     batch.Queue[settleRequest]
	takeCalls   sync.Pool // of *batch.Call[takeRequest]
	settleCalls sync.Pool // of *batch.Call[settleRequest]

	denies      *denyCache
	prefetching *prefetching
	leases      leases
	renewals    renewals
	unreleased  unreleasedSlots
	refunds     refunds
	evictions   evictions

	closing sync.Once
	closed  chan struct{}
}

// String returns the servers' addresses, for log messages.
func (s *Store) String() string {
	var at []string
	switch c := s.client.(type) {
	case *redis.Client:
		if c != nil {
			at = []string{c.Options().Addr}
		}
	case *redis.ClusterClient:
		if c != nil {
			at = c.Options().Addrs
		}
	case *redis.Ring:
		if c != nil {
			at = slices.Sorted(maps.Values(c.Options().Addrs))
		}
	}
	return "Redis " + strings.Join(at, ", ")
}

// require remembers that an option is wrong, unless it is valid.
func (s *Store) require(valid bool, problem, write string) {
	if !valid {
		s.bad = append(s.bad, inside.NewSpecError("", problem, write))
	}
}

// unusable returns the error of all calls of a store that can't be used.
func (s *Store) unusable() error {
	if s.wrong != nil {
		return s.wrong
	}
	var wrong []error
	for _, e := range s.Misconfigured() {
		wrong = append(wrong, e)
	}
	return fmt.Errorf("redisstore: %w: %w", ErrConfiguration, errors.Join(wrong...))
}

// Misconfigured implements store.Checked. It returns the problems of New's arguments. It
// returns one problem for a Store that wasn't made by New.
func (s *Store) Misconfigured() (all []*store.SpecError) {
	if s.closed == nil {
		return []*store.SpecError{inside.NewSpecError("", "the zero redisstore.Store", "use redisstore.New(client)")}
	}
	all = slices.Clone(s.bad)
	if v := reflect.ValueOf(s.client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		all = append(all, &store.SpecError{Problem: "the Redis client is nil",
			Write: "pass a client, such as redis.NewClient(…)"})
	}
	if strings.ContainsAny(s.prefix, "{}") {
		all = append(all, &store.SpecError{Problem: fmt.Sprintf("prefix %q", s.prefix), Write: "use a prefix without braces"})
	}
	return all
}

// check is the beginning of Take and Settle.
func (s *Store) check(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if s.wrong != nil || s.closed == nil {
		return s.unusable()
	}
	if err := store.Check(charges, results); err != nil {
		return store.NotMade(fmt.Errorf("redisstore: %w", err))
	}
	if ctx.Err() != nil {
		return store.NotMade(fault.ContextEnded(ctx))
	}
	return nil
}

// Observe implements store.Observable: it sends store.MayForget to o. It returns at once, and
// checks the servers in the background.
func (s *Store) Observe(o *store.Observer) {
	if s.Misconfigured() == nil {
		s.evictions.observe(o)
	}
}

// Timeout implements store.Bounded. It returns the duration set by WithTimeout.
func (s *Store) Timeout() time.Duration { return s.timeout }
