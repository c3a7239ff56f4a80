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
//	a bucket of a rate after the process's first 1023      150 to 200 bytes
//
// After a refund, or a change of its units, period or burst, a bucket takes more memory until
// the tokens that were in use at that time have drained.
//
// An empty store of the default size takes 64 KB.
//
// A key is removed once its state equals that of a new key, for instance when its bucket is
// full again, so removal never affects a decision. Calls remove expired keys within about a
// second and free their memory. There is no goroutine, no timer, and nothing to close.
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
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// DefaultMaxKeys is the default of WithMaxKeys. This number of keys takes up to 30 MB for token
// buckets, and up to 200 MB plus logs for other algorithms.
const DefaultMaxKeys = 1 << 20

// Option configures a Store; see New.
type Option interface{ apply(*config) }

type config struct {
	maxKeys int
	wrong   []*store.SpecError
}

func (c *config) bad(problem, write string) {
	c.wrong = append(c.wrong, inside.NewSpecError("", problem, write))
}

type maxKeys int64

func (n maxKeys) apply(c *config) {
	if n < 1 || n > math.MaxInt32 {
		c.bad(fmt.Sprintf("WithMaxKeys(%d)", n), "write a number from 1 to 2147483647")
		return
	}
	c.maxKeys = int(n)
}

// WithMaxKeys sets the largest number of keys that the store holds. Each pair of a limit and a
// key counts as one key. The package documentation lists the memory of a key. n is from 1 to
// 2^31-1; for other values, stint.New returns an error. The default is DefaultMaxKeys.
func WithMaxKeys(n int64) Option { return maxKeys(n) }

// Store is a store.Store and a store.Resetter in memory. It is safe for concurrent use.
//
// The methods of a Store ignore their context: a call waits only for the decisions of other
// calls, and a settlement must be made even if its request was canceled.
type Store struct {
	// Every call reads these fields; only New writes them.
	base   time.Time
	clock  func() time.Time              // time.Now, or a clock that was set
	since  func(time.Time) time.Duration // by that clock
	seed   maphash.Seed
	shards []shard
	mask   uint32 // len(shards)-1
	usable bool   // New has made it, of valid options
	max    int64
	every  int64 // microseconds between the sweeps of two shards
	wrong  []*store.SpecError

	_ [64]byte // the fields below are written all the time

	// due is the instant at which the next shard is swept. Every call reads it.
	due atomic.Int64

	_ [64]byte

	searchAfter atomic.Int64  // no call searches for room before this instant
	keys        atomic.Int64  // in the tables, or reserved there
	next        atomic.Uint32 // the shard to be swept next
	leases      atomic.Uint64
	expired     atomic.Uint64
	overflow    atomic.Uint64
	denied      atomic.Uint64

	observers store.Observers
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Immediate = (*Store)(nil)
	_ store.Checked   = (*Store)(nil)

	_ store.Observable = (*Store)(nil)
)

const (
	// perShard is the most keys a shard holds on average. Moving or examining so few takes
	// some tens of microseconds.
	perShard   = 1024
	mostShards = 1 << 20
	// shortestPause is the least time in microseconds between the sweeps of two shards. Each takes a
	// few microseconds, so all of them cost a few percent of one core.
	shortestPause = 200
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
	n := shards(c.maxKeys)
	s := &Store{
		base:   time.Now(),
		clock:  time.Now,
		since:  time.Since,
		seed:   maphash.MakeSeed(),
		shards: make([]shard, n),
		mask:   uint32(n - 1),
		usable: c.wrong == nil,
		wrong:  c.wrong,
		max:    int64(c.maxKeys),
		every:  max(rotation/int64(n), shortestPause),
	}
	s.due.Store(math.MinInt64)
	s.searchAfter.Store(math.MinInt64)
	return s
}

// String describes the store, for log messages.
func (s *Store) String() string { return "memory of this process" }

// Misconfigured implements store.Checked. It returns the problems of New's options. It returns
// one problem for a Store that wasn't made by New.
func (s *Store) Misconfigured() []*store.SpecError {
	if s.shards == nil {
		return []*store.SpecError{inside.NewSpecError("", "the zero memstore.Store", "write memstore.New()")}
	}
	return s.wrong
}

// unusable returns the error of all calls of a store that can't be used.
func (s *Store) unusable() error {
	var all []error
	for _, e := range s.Misconfigured() {
		all = append(all, e)
	}
	return fail(errors.Join(all...))
}

// shards returns the number of shards, a power of two. Small stores have fewer keys per
// shard, so that goroutines rarely contend. But each shard lets a flood have a shared
// state, so there are no more shards than about a sixteenth of the keys.
func shards(maxKeys int) int {
	n := (maxKeys-1)/perShard + 1
	n = max(n, min(64, maxKeys/16), 1)
	return min(1<<bits.Len(uint(n-1)), mostShards)
}

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
func (s *Store) Stats() Stats {
	return Stats{
		Keys:     int64(s.keys.Load()),
		MaxKeys:  int64(s.max),
		Expired:  s.expired.Load(),
		Overflow: s.overflow.Load(),
		Denied:   s.denied.Load(),
	}
}

// AnswersAtOnce implements store.Immediate. It returns true.
func (s *Store) AnswersAtOnce() bool { return true }

// Reset removes the states of key for the limits. If the store was full and the key shares a
// state with other keys, the shared state isn't changed.
func (s *Store) Reset(_ context.Context, key string, limits ...*store.Limit) error {
	if !s.usable {
		return s.unusable()
	}
	for _, l := range limits {
		if l == nil || inside.Hash(l) == 0 {
			return fail(store.ErrLimit)
		}
	}
	hash := s.hash(key)
	sh := s.shard(hash)
	for _, l := range limits {
		sh.lock()
		if sl, found := sh.table.Load().find(identity(l, hash)); found {
			if w := sl.takeOut(); w != vacant {
				sh.drop(sl, w)
				s.keys.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
	return nil
}

func fail(err error) error { return store.NotMade(fmt.Errorf("memstore: %w", err)) }

// hash returns the hash of a key, from which the key's identity under each limit is made.
// The seed is random and never leaves the store, so no caller can choose keys that meet in
// one shard or slot.
func (s *Store) hash(key string) uint64 { return maphash.String(s.seed, key) }

// shard returns the shard of a key with this hash, the same under all limits: a request
// that has one key takes one lock.
func (s *Store) shard(hash uint64) *shard { return &s.shards[s.shardIndex(hash)] }

// shardIndex uses the hash's upper half; the shard's table uses the lower half of identities.
func (s *Store) shardIndex(hash uint64) uint32 { return uint32(hash>>32) & s.mask }
