package redisstore

import (
	"sync"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// prefetching holds the tokens that this store has prefetched, by key and limit.
type prefetching struct {
	n      int64
	maxAge time.Duration
	now    func() time.Time // time.Now, except in tests

	// refund settles a charge, without waiting for it.
	refund func(store.Charge) (tried <-chan error)

	mu     sync.Mutex
	byKey  map[prefetchedKey]*prefetched
	timer  *time.Timer // runs sweep while byKey has any
	closed bool
	// refunding counts the calls of refundTokens that have tokens to refund.
	refunding sync.WaitGroup
}

func newPrefetching(n int64, maxAge time.Duration) *prefetching {
	return &prefetching{n: n, maxAge: min(maxAge, time.Second), now: time.Now, byKey: make(map[prefetchedKey]*prefetched)}
}

// mostPrefetched bounds the keys with prefetched tokens; further keys ask the server as usual.
const mostPrefetched = 1 << 16

// prefetchedKey is a key under the name of a limit, as Reset identifies it: a program may
// make its limits anew at any time.
type prefetchedKey struct {
	identity string
	limit    uint64 // store.Limit.Hash
}

// prefetched is the tokens fetched ahead for one key from one limit.
type prefetched struct {
	limit    *store.Limit
	left     int64
	charged  store.Result // of the call that took the tokens
	at       time.Time    // the time of that call
	until    time.Time
	fetching bool
}

// bulk returns how many tokens of the limit to take at once for a charge, 0 for none.
func (s *prefetching) bulk(c *store.Charge) int64 {
	spec := c.Limit.Spec()
	if c.Cost < 1 || c.MaxWait > 0 || c.DryRun || !wire.TraitsOf(c.Limit).Prefetchable || spec.Debt || spec.Queue > 0 ||
		len(c.Key) > longestKey {
		return 0
	}
	if n := min(s.n, spec.Burst/10); n > 1 && c.Cost <= n/2 {
		return n
	}
	return 0
}

// age returns how long n tokens of the limit may be kept.
func (s *prefetching) age(l *store.Limit, n int64) time.Duration {
	spec := l.Spec()
	if span := spec.Period / time.Duration(spec.Units); span < s.maxAge/time.Duration(n) {
		return max(span*time.Duration(n), time.Millisecond)
	}
	return s.maxAge
}

// take answers c from the prefetched tokens, and reports whether there were enough tokens.
func (s *prefetching) take(c *store.Charge, r *store.Result) bool {
	if s.bulk(c) == 0 {
		return false
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[prefetchedKey{c.Key, inside.Hash(c.Limit)}]
	if k == nil || !k.isOf(c.Limit) || k.left < c.Cost || !now.Before(k.until) {
		return false
	}
	k.left -= c.Cost
	*r = k.answer(c, now)
	return true
}

// isOf reports whether the tokens belong to l or to a limit with the same Spec.
func (k *prefetched) isOf(l *store.Limit) bool {
	if k.limit != l && k.limit.Spec() != l.Spec() {
		return false
	}
	k.limit = l
	return true
}

// beginFetch is called for a charge that take couldn't answer. If n is not 0, the caller
// must take that many tokens for k, and report the outcome to endFetch.
func (s *prefetching) beginFetch(c *store.Charge) (k *prefetched, n int64) {
	if n = s.bulk(c); n == 0 {
		return nil, 0
	}
	key := prefetchedKey{c.Key, inside.Hash(c.Limit)}
	s.mu.Lock()
	defer s.mu.Unlock()
	k = s.byKey[key]
	switch {
	case s.closed:
		return nil, 0
	case k == nil:
		if len(s.byKey) < mostPrefetched {
			s.byKey[key] = &prefetched{limit: c.Limit, until: s.now().Add(s.age(c.Limit, n))}
			s.scheduleSweep()
		}
		return nil, 0
	case k.fetching || k.left > 0 || !k.isOf(c.Limit):
		return nil, 0
	}
	k.fetching = true
	return k, n
}

// answer returns the result of c, which has been charged to the prefetched tokens. Those left
// count as the last of those taken, so a refund of c finds as much of it standing
// as if the tokens had been taken one by one.
func (k *prefetched) answer(c *store.Charge, now time.Time) store.Result {
	r := k.charged
	r.Remaining += k.left
	passed := now.Sub(k.at)
	r.ResetAfter, r.MoreAfter = upToMicrosecond(r.ResetAfter-passed), upToMicrosecond(r.MoreAfter-passed)
	r.Receipt = inside.Without(k.limit, r.Receipt, k.left)
	r.Receipt.Cost = c.Cost
	return r
}

// endFetch puts the tokens taken for c into k and charges c to them. If the store has been
// closed since, over is the number of tokens left, which the caller must refund. If the
// key has been reset since, they are dropped: the server may have forgotten that they were
// taken, and would subtract a refund from later charges of others.
func (s *prefetching) endFetch(
	c *store.Charge, k *prefetched, taken store.Result, n int64, r *store.Result,
) (ok bool, over int64) {
	now, key := s.now(), prefetchedKey{c.Key, inside.Hash(c.Limit)}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.fetching = false
	if !taken.OK || taken.Receipt.Cost != n {
		return false, 0
	}
	k.left, k.at, k.until = n-c.Cost, now, now.Add(s.age(c.Limit, n))
	k.charged = taken
	*r = k.answer(c, now)
	switch {
	case s.closed:
		return true, k.left
	case s.byKey[key] == k:
		s.scheduleSweep()
	}
	return true, 0
}

// scheduleSweep schedules the sweep. The caller holds the lock.
func (s *prefetching) scheduleSweep() {
	if s.timer == nil && s.refund != nil && !s.closed {
		s.timer = time.AfterFunc(s.maxAge, s.sweep)
	}
}

// removeExpired removes the tokens that are too old, or all, and returns the charges that
// give their tokens back. If there are any, the caller calls refunding.Done once it has
// tried them.
func (s *prefetching) removeExpired(all bool) (refunds []store.Charge) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	s.closed = s.closed || all
	for key, k := range s.byKey {
		if !all && (k.fetching || now.Before(k.until)) {
			continue
		}
		if k.left > 0 {
			c := store.Charge{Key: key.identity, Limit: k.limit, Receipt: k.charged.Receipt}
			c.Cost = c.Receipt.Cost - k.left
			refunds = append(refunds, c)
		}
		delete(s.byKey, key)
	}
	if len(s.byKey) > 0 {
		s.scheduleSweep()
	}
	if len(refunds) > 0 {
		s.refunding.Add(1)
	}
	return refunds
}

// forget drops the tokens of a key's limits, because the limits have been reset.
func (s *prefetching) forget(key string, limits []*store.Limit) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		delete(s.byKey, prefetchedKey{key, inside.Hash(l)})
	}
}

// refundTokens refunds the tokens kept too long, or all. It returns once it has
// tried: after the timeout of a call at the latest.
func (s *prefetching) refundTokens(all bool) {
	if s == nil {
		return
	}
	if refunds := s.removeExpired(all); len(refunds) > 0 {
		tried := make([]<-chan error, len(refunds))
		for i, c := range refunds {
			tried[i] = s.refund(c)
		}
		for _, one := range tried {
			<-one
		}
		s.refunding.Done()
	}
	if all { // a sweep may have begun just before
		s.refunding.Wait()
	}
}

// sweep refunds the tokens kept too long.
func (s *prefetching) sweep() { s.refundTokens(false) }
