package redisstore

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// WithDenyCache answers a refused call that is made again from memory, until it
// may pass, and asks the server only then: a caller that hammers costs the
// server next to nothing. Up to that many keys are remembered, 64 to 128 bytes
// each and their results.
//
// What others are let through in the meantime only puts the instant off, so that
// nothing passes that the server would refuse. The other way round, a call may
// be refused for up to a second after something that this store does not see has
// made room: a settlement or a Reset by another process, or a limit raised there.
// A settlement or a Reset by this store forgets the key, and a call with other
// limits or costs always asks. Remaining is what the server last said, and calls
// with a concurrency limit always ask.
//
// It is worth it for limits that refuse for longer than a call takes: at 1000 a
// second the next one may pass sooner than the answer comes. Without it, which is
// the default, every call asks.
func WithDenyCache(keys int) Option {
	return func(s *Store) {
		if keys > 0 {
			s.denies = newDenyCache(keys)
		}
	}
}

// longestDenial bounds how long a refusal is answered from memory.
const longestDenial = time.Second

// denyCache remembers refused calls all of whose charges have one key.
type denyCache struct {
	seed   maphash.Seed
	shards [denyShards]denyShard
	room   int              // of a shard
	now    func() time.Time // time.Now, but where a test sets the clock
}

const (
	denyShards = 16
	denyMarks  = 64  // of a shard
	longestKey = 512 // that is remembered
)

type denyShard struct {
	mu    sync.Mutex
	calls map[string]denial
	// forgot is when a key was last forgotten, of those with one mark. The answer
	// to a call that was sent before may be from before there was room, and come
	// in afterwards.
	forgot [denyMarks]time.Time
}

// denial is a refused call. since is before it was sent: the server decided
// later, so what it says is to be waited for is over later.
type denial struct {
	charges      []store.Charge
	results      []store.Result
	since, until time.Time
}

func newDenyCache(keys int) *denyCache {
	return &denyCache{seed: maphash.MakeSeed(), room: (keys + denyShards - 1) / denyShards, now: time.Now}
}

func (c *denyCache) shard(key string) (sh *denyShard, mark uint64) {
	h := maphash.String(c.seed, key)
	return &c.shards[h%denyShards], h / denyShards % denyMarks
}

// refuse answers a call if it is known to be refused still.
func (c *denyCache) refuse(charges []store.Charge, results []store.Result) bool {
	if c == nil {
		return false
	}
	key := charges[0].Key
	sh, _ := c.shard(key)
	sh.mu.Lock()
	d, ok := sh.calls[key]
	sh.mu.Unlock()
	if !ok || !slices.EqualFunc(d.charges, charges, sameCharge) {
		return false
	}
	now := c.now()
	if !now.Before(d.until) {
		return false
	}
	gone := now.Sub(d.since)
	for i := range d.results {
		r := d.results[i]
		r.ResetAfter = upToMicrosecond(r.ResetAfter - gone)
		if r.RetryAfter != store.Never {
			r.RetryAfter = upToMicrosecond(r.RetryAfter - gone)
		}
		results[i] = r
	}
	return true
}

func sameCharge(a, b store.Charge) bool {
	return a.Limit == b.Limit && a.Cost == b.Cost && a.MaxWait == b.MaxWait && a.DryRun == b.DryRun && a.Key == b.Key
}

// upToMicrosecond rounds up, as the server does, from 0.
func upToMicrosecond(d time.Duration) time.Duration {
	return (max(d, 0) + time.Microsecond - 1).Truncate(time.Microsecond)
}

// instant is taken before a call is sent, for remember.
func (c *denyCache) instant() time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.now()
}

// remember keeps a refused call that was sent after since.
func (c *denyCache) remember(charges []store.Charge, results []store.Result, since time.Time) {
	if c == nil || len(charges[0].Key) > longestKey {
		return
	}
	wait := longestDenial
	for i := range charges {
		if charges[i].Key != charges[0].Key || algorithms[charges[i].Limit.Algorithm()].leases {
			return
		}
		if algorithms[charges[i].Limit.Algorithm()].counts && (results[i].OK || charges[i].DryRun) {
			return // it has to count the next refusal as well
		}
		if !results[i].OK {
			// Until the first of them would be granted the answers stay as they
			// are; one of a dry run too.
			wait = min(wait, results[i].RetryAfter)
		}
	}
	if wait <= 0 {
		return
	}
	d := denial{slices.Clone(charges), slices.Clone(results), since, since.Add(wait)}
	for i := range d.charges {
		d.charges[i].Receipt = store.Receipt{}
		d.results[i].Begun = false // with that call
	}
	sh, mark := c.shard(charges[0].Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if forgot := sh.forgot[mark]; !forgot.IsZero() && !since.After(forgot) {
		return
	}
	if sh.calls == nil {
		sh.calls = make(map[string]denial)
	}
	if _, known := sh.calls[charges[0].Key]; !known && len(sh.calls) >= c.room {
		for key := range sh.calls { // any: it only has to ask again
			delete(sh.calls, key)
			break
		}
	}
	sh.calls[charges[0].Key] = d
}

// forget is called for a key that may have got room, after it has.
func (c *denyCache) forget(key string) {
	if c == nil {
		return
	}
	sh, mark := c.shard(key)
	sh.mu.Lock()
	delete(sh.calls, key)
	sh.forgot[mark] = c.now()
	sh.mu.Unlock()
}
