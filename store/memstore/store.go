// Package memstore is the store for one process: exact decisions in memory,
// shared by any number of goroutines.
//
//	stint.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()),
//		stint.WithMemory(memstore.WithMaxKeys(100_000)))
//
// That is a limiter's own store. One that several limiters share, or whose
// [Store.Stats] are to be read, is made by [New] and given to stint.WithStore.
//
// # Memory
//
// A key of a token or leaky bucket is 16 bytes in a table that is more than half
// full while it grows: 30 bytes at the most. One of any other algorithm, or with
// turns reserved beyond the capacity, takes 112 bytes more, 150 to 200 in all,
// and its log if it has one; so do buckets of rates beyond the first thousand
// different ones that the process makes up, and of numbers that take two integers.
// An empty store of the default size is 64 KB. What has become as if never seen
// is dropped by calls within a second or so, and its memory handed back: there is no
// goroutine, no timer, and nothing to close. Nothing is dropped earlier, so
// nobody can tell.
//
// # The cap
//
// A store holds a bounded number of keys, see [WithMaxKeys]. A full one drops
// what has expired, and never a key that still holds anything: a flood of
// made-up keys resets nobody. New keys that find no place are decided by their
// limit's own rules against a state that they share: one for each limit in
// each of the store's shards. Of these there is one for every 512 to 1024 keys
// of the cap, in stores of less than 64,000 keys up to 64, but never more than
// one for 8 keys. So all the keys of a flood together get what that many keys
// would, and keys that have a place get what they always got. [Stats] counts
// what was decided so.
//
// # Time
//
// Instants are microseconds of the monotonic clock since New; calendar windows
// follow the wall clock. In a testing/synctest bubble, make the store inside.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/store"
)

// DefaultMaxKeys is the number of keys a store holds unless WithMaxKeys says
// otherwise: 30 MB of token buckets, 200 MB at the most of other algorithms.
const DefaultMaxKeys = 1 << 20

// Option changes what New makes.
type Option interface{ apply(*config) }

type config struct{ maxKeys int }

type maxKeys int

func (n maxKeys) apply(c *config) { c.maxKeys = int(n) }

// WithMaxKeys bounds the number of keys the store holds at a time, counting
// each pair of limit and key: 30 bytes each for token buckets, 200 at the most
// for the other algorithms, logs not counted. DefaultMaxKeys by default; less
// than 1 is 1, and 2^31-1 is the most.
func WithMaxKeys(n int) Option { return maxKeys(n) }

// Store is a store.Store and a store.Resetter in memory. It is safe for
// concurrent use.
//
// No context is looked at: a call never waits for anything but another call's
// decision, and what it settles has to be settled.
type Store struct {
	// Read on every call, written by New only.
	base   time.Time
	seed   maphash.Seed
	shards []shard
	mask   uint32 // len(shards)-1
	max    int64
	every  int64 // microseconds between two visits of the sweep

	_ [64]byte // what follows is written all the time

	// due is the instant of the sweep's next visit. Every call looks at it.
	due atomic.Int64

	_ [64]byte

	vain     atomic.Int64  // no search for room before this instant
	keys     atomic.Int64  // in the tables, or about to be
	next     atomic.Uint32 // the shard the sweep visits next
	leases   atomic.Uint64
	expired  atomic.Uint64
	overflow atomic.Uint64
	refused  atomic.Uint64
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Immediate = (*Store)(nil)
)

const (
	// perShard is how many keys a shard holds when the store is full: so few
	// that moving or looking at all of them takes a few tens of microseconds.
	perShard   = 1024
	mostShards = 1 << 20
)

// New makes an empty store. It needs no closing.
func New(opts ...Option) *Store {
	c := config{maxKeys: DefaultMaxKeys}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	c.maxKeys = min(max(c.maxKeys, 1), math.MaxInt32)
	n := shards(c.maxKeys)
	s := &Store{
		base:   clock.Now(),
		seed:   maphash.MakeSeed(),
		shards: make([]shard, n),
		mask:   uint32(n - 1),
		max:    int64(c.maxKeys),
		every:  max(rotation/int64(n), shortest),
	}
	s.due.Store(math.MinInt64)
	s.vain.Store(math.MinInt64)
	return s
}

// shards is a power of two. Small stores have fewer keys in a shard, so that
// goroutines don't meet, but not so few that the states which the shards keep
// for keys beyond the cap outnumber a sixteenth of the keys.
func shards(maxKeys int) int {
	n := (maxKeys-1)/perShard + 1
	n = max(n, min(64, maxKeys/16), 1)
	return min(1<<bits.Len(uint(n-1)), mostShards)
}

// Stats is what a store holds and what has become of the rest.
type Stats struct {
	// Keys is the number of keys held, MaxKeys the cap.
	Keys, MaxKeys int
	// Expired is the number of keys dropped since New because they had become
	// as if never seen.
	Expired uint64
	// Overflow is the number of charges since New on keys that found the
	// store full, decided against the state such keys share; Refused is how
	// many of them were refused.
	Overflow, Refused uint64
}

// Stats reports the store's counters. They are read one after the other, not
// at one instant.
func (s *Store) Stats() Stats {
	return Stats{
		Keys:     int(s.keys.Load()),
		MaxKeys:  int(s.max),
		Expired:  s.expired.Load(),
		Overflow: s.overflow.Load(),
		Refused:  s.refused.Load(),
	}
}

// AnswersAtOnce implements store.Immediate: it is true.
func (s *Store) AnswersAtOnce() bool { return true }

// Reset makes the limits forget key. What the key was charged while the store
// was full, together with others, stays charged.
func (s *Store) Reset(_ context.Context, key string, limits ...*store.Limit) error {
	for _, l := range limits {
		if l == nil || l.Hash() == 0 {
			return fail(store.ErrLimit)
		}
	}
	for _, l := range limits {
		h := l.KeyHash(s.seed, key)
		sh := s.shard(h)
		sh.lock()
		if sl, found := sh.table.Load().find(h); found {
			if w := sl.hold(); w != vacant {
				sh.drop(sl, w)
				s.keys.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
	return nil
}

func fail(err error) error { return fmt.Errorf("memstore: %w", err) }

// shard picks by the upper half of a hash; the table uses the lower. The seed is this
// store's own and never leaves it, so nobody can aim at a shard or a place in its table.
func (s *Store) shard(h uint64) *shard { return &s.shards[uint32(h>>32)&s.mask] }
