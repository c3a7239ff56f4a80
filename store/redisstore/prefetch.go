package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// WithPrefetch makes this store take up to n tokens of a bucket at once and give them
// out by itself for up to maxAge; unused tokens then go back. A hot key costs the
// server one call for n tokens instead of one call for each. It is off by default, and
// does nothing if n is below 2 or maxAge isn't positive. Prefetched tokens are not
// leases: only slots of a concurrency limit are leased.
//
// Prefetching never lets more through in total, because the server has charged every
// token that a store gives out. But it shifts usage in time:
//
//   - Each store may give out its prefetched tokens, at most n per key, on top of the
//     burst in any span.
//   - Other callers may be denied meanwhile, including callers of this store that arrive
//     while it fetches the last tokens.
//   - If a process crashes, its prefetched tokens stay charged until the bucket refills.
//
// Remaining is the server's count when the tokens were taken, less the tokens used
// since. A call of cost 0 asks the server, which counts prefetched tokens as taken. Reset
// drops this store's prefetched tokens of the key. Other stores still give out theirs, and
// don't give back the rest.
//
// For the same reason a store with prefetching fails one rule of package storetest: that
// exactly the burst, not less, passes for callers at one instant.
//
// Prefetching applies to calls with one limit, a TokenBucket without queue, debt or maximum
// wait; all others ask the server as usual. n is at most a tenth of the limit's burst;
// maxAge is at most a second and the time in which n tokens arrive. The store prefetches
// for a key from its second call within maxAge. n is at least 2, and maxAge 1 ms; see New
// for other values.
func WithPrefetch(n int64, maxAge time.Duration) Option {
	return option(func(s *Store) {
		valid, write := engine.CheckDuration(maxAge, n > 1 && maxAge > 0, "write 2 tokens or more and a positive age, or leave it out")
		if s.require(valid, fmt.Sprintf("WithPrefetch(%d, %v)", n, maxAge), write); valid {
			s.stocks = newStocks(n, maxAge)
		}
	})
}

// stocks are the tokens that this store has prefetched, by key and limit.
type stocks struct {
	n      int64
	maxAge time.Duration
	now    func() time.Time // time.Now, except in tests

	sweep func() // gives back expired tokens

	mu     sync.Mutex
	byKey  map[stockOf]*stock
	timer  *time.Timer // runs sweep while there is a stock
	closed bool
	// givingBack counts the calls of giveBackPrefetched that have tokens to give back.
	givingBack sync.WaitGroup
}

func newStocks(n int64, maxAge time.Duration) *stocks {
	return &stocks{n: n, maxAge: min(maxAge, time.Second), now: time.Now, byKey: make(map[stockOf]*stock)}
}

// mostStocks bounds the keys with a stock; further keys ask the server as usual.
const mostStocks = 1 << 16

// stockOf is a key under the name of a limit, as Reset identifies it: a program may
// make its limits anew at any time.
type stockOf struct {
	key   string
	limit uint64 // store.Limit.Hash
}

// stock is the tokens prefetched for one key from one limit.
type stock struct {
	limit    *store.Limit
	left     int64
	charged  store.Result // of the call that took the tokens
	at       time.Time    // the time of that call
	until    time.Time
	fetching bool
}

// share returns how many tokens of the limit to take at once, 0 for none.
func (s *stocks) share(c *store.Charge) int64 {
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
func (s *stocks) age(l *store.Limit, n int64) time.Duration {
	spec := l.Spec()
	if span := spec.Period / time.Duration(spec.Units); span < s.maxAge/time.Duration(n) {
		return max(span*time.Duration(n), time.Millisecond)
	}
	return s.maxAge
}

// take answers c from the stock, and reports whether there were enough tokens.
func (s *stocks) take(c *store.Charge, r *store.Result) bool {
	if s.share(c) == 0 {
		return false
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[stockOf{c.Key, inside.Hash(c.Limit)}]
	if k == nil || !k.of(c.Limit) || k.left < c.Cost || !now.Before(k.until) {
		return false
	}
	k.left -= c.Cost
	*r = k.answer(c, now)
	return true
}

// of reports whether the tokens belong to l or to a limit with the same Spec.
func (k *stock) of(l *store.Limit) bool {
	if k.limit != l && k.limit.Spec() != l.Spec() {
		return false
	}
	k.limit = l
	return true
}

// beginFetch is called for a charge that take couldn't answer. If n is not 0, the caller
// must take that many tokens for k, and report the outcome to endFetch.
func (s *stocks) beginFetch(c *store.Charge) (k *stock, n int64) {
	if n = s.share(c); n == 0 {
		return nil, 0
	}
	of := stockOf{c.Key, inside.Hash(c.Limit)}
	s.mu.Lock()
	defer s.mu.Unlock()
	k = s.byKey[of]
	switch {
	case s.closed:
		return nil, 0
	case k == nil:
		if len(s.byKey) < mostStocks {
			s.byKey[of] = &stock{limit: c.Limit, until: s.now().Add(s.age(c.Limit, n))}
			s.scheduleSweep()
		}
		return nil, 0
	case k.fetching || k.left > 0 || !k.of(c.Limit):
		return nil, 0
	}
	k.fetching = true
	return k, n
}

// answer returns the result of c, which has been charged to the stock. The tokens left in
// the stock count as the last of those taken, so a refund of c finds as much of it standing
// as if the tokens had been taken one by one.
func (k *stock) answer(c *store.Charge, now time.Time) store.Result {
	r := k.charged
	r.Remaining += k.left
	gone := now.Sub(k.at)
	r.ResetAfter, r.MoreAfter = upToMicrosecond(r.ResetAfter-gone), upToMicrosecond(r.MoreAfter-gone)
	r.Receipt = inside.Without(k.limit, r.Receipt, k.left)
	r.Receipt.Cost = c.Cost
	return r
}

// endFetch puts the tokens taken for c into k and charges c to them. If the store has been
// closed since, over is the number of tokens left, which the caller must give back. If the
// key has been reset since, they are dropped: the server may have forgotten that they were
// taken, and would subtract a refund from later charges of others.
func (s *stocks) endFetch(c *store.Charge, k *stock, taken store.Result, n int64, r *store.Result) (ok bool, over int64) {
	now, of := s.now(), stockOf{c.Key, inside.Hash(c.Limit)}
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
	case s.byKey[of] == k:
		s.scheduleSweep()
	}
	return true, 0
}

// scheduleSweep schedules the sweep. The caller holds the lock.
func (s *stocks) scheduleSweep() {
	if s.timer == nil && s.sweep != nil && !s.closed {
		s.timer = time.AfterFunc(s.maxAge, s.sweep)
	}
}

// removeExpired removes the stocks that are too old, or all, and returns the charges that
// give their tokens back. If there are any, the caller calls givingBack.Done once it has
// tried them.
func (s *stocks) removeExpired(all bool) (back []store.Charge) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	s.closed = s.closed || all
	for of, k := range s.byKey {
		if !all && (k.fetching || now.Before(k.until)) {
			continue
		}
		if k.left > 0 {
			c := store.Charge{Key: of.key, Limit: k.limit, Receipt: k.charged.Receipt}
			c.Cost = c.Receipt.Cost - k.left
			back = append(back, c)
		}
		delete(s.byKey, of)
	}
	if len(s.byKey) > 0 {
		s.scheduleSweep()
	}
	if len(back) > 0 {
		s.givingBack.Add(1)
	}
	return back
}

// forget drops the stocks of a key's limits, because the limits have been reset.
func (s *stocks) forget(key string, limits []*store.Limit) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		delete(s.byKey, stockOf{key, inside.Hash(l)})
	}
}

// takePrefetched is Take for a store that prefetches. It asks the stock before the deny
// cache: the server may have no tokens left because this store has them.
func (s *Store) takePrefetched(ctx context.Context, charges []store.Charge, results []store.Result) error {
	c := &charges[0]
	if s.stocks.take(c, &results[0]) || s.denies.deny(charges, results) {
		return nil
	}
	k, n := s.stocks.beginFetch(c)
	if n == 0 {
		return s.ask(ctx, charges, results)
	}
	bulk, taken := []store.Charge{*c}, make([]store.Result, 1)
	bulk[0].Cost = n
	err := s.ask(ctx, bulk, taken)
	if err != nil {
		taken[0] = store.Result{}
	}
	ok, over := s.stocks.endFetch(c, k, taken[0], n, &results[0])
	if over > 0 { // wait, so a program that closes the client after its last call loses no tokens
		<-s.giveBackTokens(store.Charge{Key: c.Key, Limit: c.Limit, Cost: n - over, Receipt: taken[0].Receipt})
	}
	if ok || err != nil {
		return err
	}
	return s.ask(ctx, charges, results)
}

// giveBackPrefetched gives back the tokens kept too long, or all. It returns once it has
// tried: after the timeout of a call at the latest.
func (s *Store) giveBackPrefetched(all bool) {
	if s.stocks == nil {
		return
	}
	if back := s.stocks.removeExpired(all); len(back) > 0 {
		ended := make([]<-chan error, len(back))
		for i, c := range back {
			ended[i] = s.giveBackTokens(c)
		}
		for _, tried := range ended {
			<-tried
		}
		s.stocks.givingBack.Done()
	}
	if all { // a sweep may have begun just before
		s.stocks.givingBack.Wait()
	}
}

// giveBackTokens gives back the tokens of c, unless its key has been reset since. It
// doesn't wait for the server.
func (s *Store) giveBackTokens(c store.Charge) (ended <-chan error) {
	key := wire.StorageKey(s.prefix, c.Key, c.Limit)
	t := batch.NewCall[settling]()
	t.Body.site = s.siteOf(key)
	t.Body.unlessReset = true
	t.Body.add(c, key, 0)
	return s.giveBack(t)
}
