// Package memory is the store in memory, with the clock that it is given: memstore.Store is one that goes by
// the time of the system, and describes it.
package memory

import (
	"cmp"
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
	// tickAt is the instant of the timer's next tick. Calls that hold a lock read it.
	tickAt atomic.Int64

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
	_ store.Banner    = (*Store)(nil)
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

// Config configures a Store.
type Config struct {
	// MaxKeys is the largest number of keys that the store holds; 0 means DefaultMaxKeys.
	MaxKeys int64
	// Clock returns the present time, and may be nil: then it is time.Now. With a clock of its own, a store
	// decides a day's requests in seconds, beside stores of the same process that go by the real time.
	Clock func() time.Time
	// Wrong has the problems of the options that the store was to be made with. If there is any, each
	// call returns an error.
	Wrong []*store.SpecError
}

// DefaultMaxKeys is the default of Config.MaxKeys.
const DefaultMaxKeys = 1 << 20

// New makes an empty store.
func New(c Config) *Store {
	maxKeys := cmp.Or(c.MaxKeys, DefaultMaxKeys)
	n := shards(int(maxKeys))
	s := &Store{
		clock:  time.Now,
		since:  time.Since,
		seed:   maphash.MakeSeed(),
		shards: make([]shard, n),
		mask:   uint32(n - 1),
		usable: c.Wrong == nil,
		wrong:  c.Wrong,
		max:    maxKeys,
		every:  max(rotation/int64(n), shortestPause),
	}
	if c.Clock != nil {
		s.clock = c.Clock
		s.since = func(t time.Time) time.Duration { return c.Clock().Sub(t) }
	}
	s.base = s.clock()
	s.due.Store(math.MinInt64)
	s.searchAfter.Store(math.MinInt64)
	s.tickAt.Store(noTick)
	if c.Clock != nil {
		s.tickAt.Store(neverTick)
	}
	return s
}

// String describes the store, for log messages.
func (s *Store) String() string { return "memory of this process" }

// Misconfigured implements store.Checked. It returns the problems of New's options. It returns
// one problem for a Store that wasn't made by New.
func (s *Store) Misconfigured() []*store.SpecError {
	if s.shards == nil {
		return []*store.SpecError{{Problem: "the zero memstore.Store", Write: "use memstore.New()"}}
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

// Stats are a store's counters: memstore.Stats has the same fields.
type Stats struct {
	Keys, MaxKeys    int64
	Expired          uint64
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
func (s *Store) Reset(_ context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	if !s.usable {
		return false, s.unusable()
	}
	for _, l := range limits {
		if l == nil || inside.Hash(l) == 0 {
			return false, fail(store.ErrLimit)
		}
	}
	hash, now := s.hash(key), s.steady()
	sh := s.shard(hash)
	for _, l := range limits {
		sh.lock()
		if sl, known := sh.table.Load().find(identity(l, hash)); known {
			if sh.dropIfExpired(sl, now) {
				s.keys.Add(-1)
				s.expired.Add(1)
			} else if w := sl.takeOut(); w != vacant {
				found = true
				sh.drop(sl, w)
				s.keys.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
	return found, nil
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
