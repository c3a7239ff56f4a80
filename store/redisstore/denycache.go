package redisstore

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// longestDenial bounds how long a denial is answered from memory.
const longestDenial = time.Second

// denyCache remembers denied calls whose charges all have the same key.
type denyCache struct {
	seed   maphash.Seed
	shards [denyShards]denyShard
	room   int              // calls per shard
	now    func() time.Time // time.Now, except in tests
}

const (
	denyShards = 16
	denyMarks  = 64  // per shard
	longestKey = 512 // longer keys aren't remembered
)

type denyShard struct {
	mu    sync.Mutex
	calls map[string]denial
	// forgot is when a key with this mark was last forgotten. The answer to a call sent
	// before that may date from before there was room, and arrive afterwards.
	forgot [denyMarks]time.Time
}

// denial is a denied call. since is before the call was sent: the server decided
// later, so the times it gave end later than since plus them.
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

// deny answers a call that is known to be still denied.
func (c *denyCache) deny(charges []store.Charge, results []store.Result) bool {
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
	passed := now.Sub(d.since)
	for i := range d.results {
		r := d.results[i]
		r.ResetAfter, r.MoreAfter = upToMicrosecond(r.ResetAfter-passed), upToMicrosecond(r.MoreAfter-passed)
		if r.RetryAfter != store.Never {
			r.RetryAfter = upToMicrosecond(r.RetryAfter - passed)
		}
		results[i] = r
	}
	return true
}

func sameCharge(a, b store.Charge) bool {
	return a.Limit == b.Limit && a.Cost == b.Cost && a.MaxWait == b.MaxWait && a.DryRun == b.DryRun &&
		a.Final == b.Final && a.Key == b.Key
}

// upToMicrosecond rounds up to a microsecond, as the server does, with 0 as the
// minimum.
func upToMicrosecond(d time.Duration) time.Duration {
	return (max(d, 0) + time.Microsecond - 1).Truncate(time.Microsecond)
}

// instant returns the time to pass to remember, taken before the call is sent.
func (c *denyCache) instant() time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.now()
}

// remember keeps a denied call that was sent after since.
func (c *denyCache) remember(charges []store.Charge, results []store.Result, since time.Time) {
	if c == nil || len(charges[0].Key) > longestKey {
		return
	}
	lasts := denialLasts(charges, results)
	if lasts <= 0 {
		return
	}
	d := denial{slices.Clone(charges), slices.Clone(results), since, since.Add(lasts)}
	for i := range d.charges {
		d.charges[i].Receipt = store.Receipt{}
		d.results[i].Begun = false // the ban began with that call, not with the repeated ones
	}
	c.keep(d)
}

// denialLasts returns how long the results answer the same call again, at most longestDenial: until the
// first limit that denies has more left, or would grant the charge. It is 0 for calls with several
// keys, for slots, and if a ban has to count the next denial as well.
func denialLasts(charges []store.Charge, results []store.Result) time.Duration {
	lasts := longestDenial
	for i := range charges {
		c, r := &charges[i], &results[i]
		traits := wire.TraitsOf(c.Limit)
		if c.Key != charges[0].Key || traits.Leases || traits.CountsDenied && (r.OK || c.DryRun) {
			return 0
		}
		if r.OK {
			continue
		}
		lasts = min(lasts, r.RetryAfter)
		if r.MoreAfter > 0 {
			lasts = min(lasts, r.MoreAfter)
		}
	}
	return lasts
}

// keep stores a denial, unless its key was forgotten after the call was sent. If the shard is full, it
// drops another denial, whose next call asks the server.
func (c *denyCache) keep(d denial) {
	key := d.charges[0].Key
	sh, mark := c.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if forgot := sh.forgot[mark]; !forgot.IsZero() && !d.since.After(forgot) {
		return
	}
	if sh.calls == nil {
		sh.calls = make(map[string]denial)
	}
	if _, known := sh.calls[key]; !known && len(sh.calls) >= c.room {
		for other := range sh.calls {
			delete(sh.calls, other)
			break
		}
	}
	sh.calls[key] = d
}

// forget drops a key that may have room now.
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
