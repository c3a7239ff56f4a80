package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// WithLeasing makes this store take up to n tokens of a bucket at once and give them
// out by itself for up to maxAge; unused tokens then go back. A hot key costs the
// server one call for n tokens instead of one call for each. It is off by default, and
// does nothing if n is below 2 or maxAge isn't positive.
//
// It never lets more through in total, because what is given out here was taken there.
// But it shifts usage in time:
//
//   - What each store has taken and not yet given out, at most n per key, may come on
//     top of the burst in any span.
//   - Others may be refused meanwhile, including callers of this store that come while
//     the last tokens are on their way to it.
//   - A process that crashes takes its tokens along until time gives them back.
//
// Remaining is what the server said when the tokens were taken, less what has been used
// since. A call of cost 0 asks the server, which counts the held tokens as taken. Reset
// drops what this store holds of a key. Other stores still give out what they hold, and
// don't return the rest.
//
// For the same reason a store with leasing fails one rule of package storetest: that
// exactly the burst, not less, passes for callers at one instant.
//
// Leasing applies to calls with one limit, a TokenBucket without queue, debt or maximum
// wait; all others ask the server as usual. n is at most a tenth of the limit's burst;
// maxAge is at most a second and the time in which n tokens arrive. A key is leased
// from its second call within maxAge.
func WithLeasing(n int64, maxAge time.Duration) Option {
	return func(s *Store) {
		if n > 1 && maxAge > 0 {
			s.stocks = newStocks(n, maxAge)
		}
	}
}

// stocks are tokens that were taken but not given out yet.
type stocks struct {
	n      int64
	maxAge time.Duration
	now    func() time.Time // time.Now, except in tests

	sweep func() // gives back what has expired

	mu     sync.Mutex
	held   map[stockOf]*stock
	timer  *time.Timer // runs sweep while anything is held
	closed bool
	backs  sync.WaitGroup // of giveBack, while it has something
}

func newStocks(n int64, maxAge time.Duration) *stocks {
	return &stocks{n: n, maxAge: min(maxAge, time.Second), now: time.Now, held: make(map[stockOf]*stock)}
}

// mostStocks bounds the keys kept track of; further keys ask the server as usual.
const mostStocks = 1 << 16

// stockOf is a key under the name of a limit, as Reset identifies it: a program may
// make its limits anew at any time.
type stockOf struct {
	key   string
	limit uint64 // store.Limit.Hash
}

type stock struct {
	limit    *store.Limit // whose tokens they are
	left     int64
	charged  store.Result // of the call that took them
	at       time.Time    // the time of that call
	until    time.Time
	fetching bool
}

// share returns how many tokens of the limit to take at once, 0 for none.
func (s *stocks) share(c *store.Charge) int64 {
	spec := c.Limit.Spec()
	if c.Cost < 1 || c.MaxWait > 0 || c.DryRun || !algorithms[spec.Algorithm].stocked || spec.Debt || spec.Queue > 0 ||
		len(c.Key) > longestKey {
		return 0
	}
	if n := min(s.n, spec.Burst/10); n > 1 && c.Cost <= n/2 {
		return n
	}
	return 0
}

// age returns how long n tokens of the limit may be held.
func (s *stocks) age(l *store.Limit, n int64) time.Duration {
	spec := l.Spec()
	if span := spec.Period / time.Duration(spec.Units); span < s.maxAge/time.Duration(n) {
		return max(span*time.Duration(n), time.Millisecond)
	}
	return s.maxAge
}

// give answers c from what is held.
func (s *stocks) give(c *store.Charge, r *store.Result) bool {
	if s.share(c) == 0 {
		return false
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.held[stockOf{c.Key, c.Limit.Hash()}]
	if k == nil || !k.of(c.Limit) || k.left < c.Cost || !now.Before(k.until) {
		return false
	}
	k.left -= c.Cost
	*r = k.answer(c, now)
	return true
}

// of reports whether the tokens belong to l or to a limit that says the same.
func (k *stock) of(l *store.Limit) bool {
	if k.limit != l && k.limit.Spec() != l.Spec() {
		return false
	}
	k.limit = l
	return true
}

// fetch is called for a charge that give couldn't answer. If n is not 0, the caller
// must take that many tokens for k, and report the outcome to fetched.
func (s *stocks) fetch(c *store.Charge) (k *stock, n int64) {
	if n = s.share(c); n == 0 {
		return nil, 0
	}
	of := stockOf{c.Key, c.Limit.Hash()}
	s.mu.Lock()
	defer s.mu.Unlock()
	k = s.held[of]
	switch {
	case s.closed:
		return nil, 0
	case k == nil:
		if len(s.held) < mostStocks {
			s.held[of] = &stock{limit: c.Limit, until: s.now().Add(s.age(c.Limit, n))}
			s.watch()
		}
		return nil, 0
	case k.fetching || k.left > 0 || !k.of(c.Limit):
		return nil, 0
	}
	k.fetching = true
	return k, n
}

// answer returns the result for a charge of c that has been given out. What is held
// counts as the last part of what was taken, so a refund of this charge finds as much
// of it standing as if the tokens had been taken one by one.
func (k *stock) answer(c *store.Charge, now time.Time) store.Result {
	r := k.charged
	r.Remaining += k.left
	r.ResetAfter = upToMicrosecond(r.ResetAfter - now.Sub(k.at))
	r.Receipt = k.limit.Without(r.Receipt, k.left)
	r.Receipt.Cost = c.Cost
	return r
}

// fetched puts what was taken for c into k and gives c its part. If the store has been
// closed since, the rest is returned, to be given back. If the key has been reset
// since, the rest is dropped: the server may have forgotten that it was taken, and
// would subtract a refund from what others have taken since.
func (s *stocks) fetched(c *store.Charge, k *stock, taken store.Result, n int64, r *store.Result) (ok bool, over int64) {
	now, of := s.now(), stockOf{c.Key, c.Limit.Hash()}
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
	case s.held[of] == k:
		s.watch()
	}
	return true, 0
}

// watch schedules the sweep. The caller holds the lock.
func (s *stocks) watch() {
	if s.timer == nil && s.sweep != nil && !s.closed {
		s.timer = time.AfterFunc(s.maxAge, s.sweep)
	}
}

// expired removes what is too old to be given out, or everything, and returns it as
// charges that settle it back. If there are any, the caller
// calls backs.Done when that has been tried.
func (s *stocks) expired(all bool) (back []store.Charge) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	s.closed = s.closed || all
	for of, k := range s.held {
		if !all && (k.fetching || now.Before(k.until)) {
			continue
		}
		if k.left > 0 {
			c := store.Charge{Key: of.key, Limit: k.limit, Receipt: k.charged.Receipt}
			c.Cost = c.Receipt.Cost - k.left
			back = append(back, c)
		}
		delete(s.held, of)
	}
	if len(s.held) > 0 {
		s.watch()
	}
	if len(back) > 0 {
		s.backs.Add(1)
	}
	return back
}

// forget drops what is held of a key's limits, because they have been reset.
func (s *stocks) forget(key string, limits []*store.Limit) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		delete(s.held, stockOf{key, l.Hash()})
	}
}

// takeStock is Take for a store that may give out tokens itself. What is held comes
// before remembered refusals: the server may have none left because they are here.
func (s *Store) takeStock(ctx context.Context, charges []store.Charge, results []store.Result) error {
	c := &charges[0]
	if s.stocks.give(c, &results[0]) || s.denies.refuse(charges, results) {
		return nil
	}
	k, n := s.stocks.fetch(c)
	if n == 0 {
		return s.ask(ctx, charges, results)
	}
	bulk, taken := []store.Charge{*c}, make([]store.Result, 1)
	bulk[0].Cost = n
	err := s.ask(ctx, bulk, taken)
	if err != nil {
		taken[0] = store.Result{}
	}
	ok, over := s.stocks.fetched(c, k, taken[0], n, &results[0])
	if over > 0 { // who waits for all calls before the client is closed loses nothing
		<-s.putBack(store.Charge{Key: c.Key, Limit: c.Limit, Cost: n - over, Receipt: taken[0].Receipt})
	}
	if ok || err != nil {
		return err
	}
	return s.ask(ctx, charges, results)
}

// giveBack settles back what has been held too long, or everything, and returns when that
// has been tried: after the timeout of a call at the latest.
func (s *Store) giveBack(all bool) {
	if s.stocks == nil {
		return
	}
	if back := s.stocks.expired(all); len(back) > 0 {
		ended := make([]<-chan error, len(back))
		for i, c := range back {
			ended[i] = s.putBack(c)
		}
		for _, tried := range ended {
			<-tried
		}
		s.stocks.backs.Done()
	}
	if all { // also what has become too old just before
		s.stocks.backs.Wait()
	}
}

// putBack settles c without waiting for it, unless its key has been reset since.
func (s *Store) putBack(c store.Charge) (ended <-chan error) {
	key := storageKey(s.prefix, c.Key, c.Limit)
	t := newTicket[settling]()
	t.what.site = s.siteOf(key)
	t.what.unlessReset = true
	t.what.add(c, key, 0)
	return s.handBack(t)
}
