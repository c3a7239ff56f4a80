// Package memstore is the store for one process. It keeps counts in memory, and is exact for
// any number of concurrent callers.
//
//	stint.New(stint.Rate(10, time.Second, stint.WithName("calls")), stint.WithKey(stint.RemoteIP()),
//		stint.WithStore(memstore.New(memstore.WithMaxKeys(100_000))))
//
// By default a limiter has a store of its own, of the default size, in which its limits need no
// names. To set another size, to share a store between limiters, or to read Store.Stats, make a
// store with New and pass it to stint.WithStore.
//
// # Memory
//
//	a key of                                               takes
//	a token or leaky bucket                                up to 30 bytes
//	any other algorithm                                    150 to 200 bytes, and its log
//	a bucket with turns reserved beyond its capacity       150 to 200 bytes
//	a bucket after a refund or a change of its numbers     150 to 200 bytes, and its log
//	a bucket of a rate after 1023 different rates          150 to 200 bytes
//
// After a refund, or a change of its units, period or burst, a bucket takes more memory until
// the tokens that were in use at that time have drained.
//
// An empty store of the default size takes 64 KB.
//
// A key is removed once its state equals that of a new key, for instance when its bucket is
// full again, so removal never affects a decision. Calls remove expired keys within about a
// second and free their memory. If there are few calls, a timer does so: at most 10 seconds
// after a call, and without calls after at most twice the time. It runs while the store holds
// keys, and doesn't keep a store that is no longer used, so there is nothing to close.
//
// # The cap
//
// A store holds a bounded number of keys; see [WithMaxKeys]. A full store removes only expired
// keys, so a flood of made-up keys never resets a key in use. If the store is full, new keys
// share states: one state for each limit in each shard of the store. So all keys of a flood
// together have the limits of one key per shard, and other keys aren't affected. Stats counts
// the charges on shared states. The number of shards depends on the cap:
//
//	cap                  shards
//	up to 1024           about one for 16 keys, never more than one for 8
//	up to 65,536         64
//	more                 one for 512 to 1024 keys, at most 2^20
//
// A store of the default size has 1024 shards.
//
// # Time
//
// Instants are microseconds of the monotonic clock since New. Calendar windows follow
// the wall clock. In a testing/synctest bubble, make the store inside the bubble.
package memstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/store"
)

// DefaultMaxKeys is the default of WithMaxKeys. This number of keys takes up to 30 MB for token
// buckets, and up to 200 MB plus logs for other algorithms.
const DefaultMaxKeys = memory.DefaultMaxKeys

// Option configures a Store; see New.
type Option interface{ apply(*config) }

type config struct {
	maxKeys int64
	wrong   []*store.SpecError
}

func (c *config) bad(problem, write string) {
	c.wrong = append(c.wrong, &store.SpecError{Problem: problem, Write: write})
}

type maxKeys int64

func (n maxKeys) apply(c *config) {
	if n < 1 || n > math.MaxInt32 {
		c.bad(fmt.Sprintf("WithMaxKeys(%d)", n), "use 1 to 2147483647")
		return
	}
	c.maxKeys = int64(n)
}

// WithMaxKeys sets the largest number of keys that the store holds. Each pair of a limit and a
// key counts as one key. The package documentation lists the memory of a key. n is from 1 to
// 2^31-1; for other values, stint.New returns an error. The default is DefaultMaxKeys.
func WithMaxKeys(n int64) Option { return maxKeys(n) }

// Store is a store.Store, a store.Resetter and a store.Banner in memory. It is safe for concurrent use.
//
// The methods of a Store ignore their context: a call waits only for the decisions of other
// calls, and a settlement must be made even if its request was canceled.
type Store memory.Store

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Banner    = (*Store)(nil)
	_ store.Immediate = (*Store)(nil)
	_ store.Checked   = (*Store)(nil)

	_ store.Observable = (*Store)(nil)
)

// New makes an empty store. A store needs no Close. If an option is wrong, stint.New and each
// call of the store return an error that describes the correction.
func New(opts ...Option) *Store {
	c := config{maxKeys: DefaultMaxKeys}
	for i, o := range opts {
		if o == nil {
			c.bad(fmt.Sprintf("memstore.New: option %d is nil", i+1), "leave it out")
			continue
		}
		o.apply(&c)
	}
	return (*Store)(memory.New(memory.Config{MaxKeys: c.maxKeys, Wrong: c.wrong}))
}

func (s *Store) memory() *memory.Store { return (*memory.Store)(s) }

// Take decides the charges at one instant; see store.Store. Up to 8 charges are decided
// without an allocation, unless a state needs to grow.
func (s *Store) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	return s.memory().Take(ctx, charges, results)
}

// Settle replaces the cost of each earlier charge by charges[i].Cost; see store.Store. The
// charges are settled one after the other.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	return s.memory().Settle(ctx, charges, results)
}

// Reset removes the states of key for the limits. If the store was full and the key shares a
// state with other keys, the shared state isn't changed.
func (s *Store) Reset(ctx context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	return s.memory().Reset(ctx, key, limits...)
}

// Ban implements store.Banner. If the store is full, keys that it doesn't hold already can't be banned: the error
// says so.
func (s *Store) Ban(
	ctx context.Context, key string, d time.Duration, limits ...*store.Limit,
) (results []store.Result, err error) {
	return s.memory().Ban(ctx, key, d, limits...)
}

// Observe implements store.Observable. It sends store.Full to o once, at the 100th charge on a
// new key for which the store has no room.
func (s *Store) Observe(o *store.Observer) { s.memory().Observe(o) }

// AnswersAtOnce implements store.Immediate. It returns true.
func (s *Store) AnswersAtOnce() bool { return true }

// Misconfigured implements store.Checked. It returns the problems of New's options. It returns
// one problem for a Store that wasn't made by New.
func (s *Store) Misconfigured() []*store.SpecError { return s.memory().Misconfigured() }

// String describes the store, for log messages.
func (s *Store) String() string { return s.memory().String() }

// Stats are a store's counters.
type Stats struct {
	// Keys is the number of keys held. MaxKeys is the largest number of keys.
	Keys, MaxKeys int64
	// Expired is the number of keys dropped since New because they had expired.
	Expired uint64
	// Overflow is the number of charges since New on keys for which the store had no room.
	// Denied is the number of such charges that were denied.
	Overflow, Denied uint64
}

// Stats returns the store's counters. The counters are read one after the other, not at one
// instant.
func (s *Store) Stats() Stats { return Stats(s.memory().Stats()) }
