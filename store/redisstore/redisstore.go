// Package redisstore is a store in Redis or Valkey. All processes that use the same
// server, cluster or ring share its limits:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	limiter, err := stint.New(…, stint.WithStore(redisstore.New(rdb)))
//
// All limits of a Take are decided in one call of a script, by the server's clock. The
// answers equal those of package memstore to the integer. It needs Redis 6.2 or newer,
// or Valkey.
//
// # Batches
//
// Calls made while others are under way travel together: up to 128 in one script call
// on a single server, or in one pipeline to a cluster or a ring. No call waits for
// others to arrive. [WithoutBatching] sends each call by itself.
//
// Equal decisions that travel together are made as one, in the order in which they came,
// and so are releases of slots of one key. Settle returns when the server has released a
// slot: a client whose answer waits for that finds its slot free, whichever process it calls next.
//
// A Take may have up to 7000 charges per server, or per slot of a cluster; larger ones
// fail with [ErrConfiguration]. A Settle may have any number.
//
// # Clusters
//
// All limits of one key share a slot: the key, escaped, is the hash tag. A Take with
// several keys may need several slots. Each slot then decides by itself, all at the
// same time. If one denies, what the others granted is settled back; if that fails, or
// its outcome isn't known in time, the error is [ErrIndeterminate]. Such a call never
// lets more through, but until it is settled back another caller may be denied who
// would otherwise have passed.
//
// The same applies to the servers of a ring, and to clients this package doesn't know,
// such as go-redis's AutoPipeliner. It treats those as a cluster's and sends each call
// by itself. On a single server, with or without Sentinel, a call is always atomic.
//
// # Failure
//
// No call is sent twice: if an answer is lost, the call fails and the charge may stand.
// No call takes longer than [WithTimeout], whatever timeouts the client has. A
// *redis.Client, Sentinel's included, ends its part of the call then too: a clone with
// ContextTimeoutEnabled makes the store's calls, on the same connections and behind your
// hooks. The first call of a store adds a hook for that, one for all stores on the client; hooks
// that you add later don't see the stores' calls. Your own calls stay as they are.
//
// A cluster's or a ring's client can't be cloned. Set its ContextTimeoutEnabled: without it
// the client goes on waiting for the server by itself, and while all 8 connections used here
// do so, calls fail at once. Also, each call then takes another goroutine, and a caller by
// itself waits half as long again. New logs a warning to slog.Default.
//
// A panic during a call, for instance of a hook of the client, is logged to slog.Default at level
// Error, and the call fails with ErrIndeterminate.
//
// Errors have a class:
// [ErrUnavailable], [ErrIndeterminate], [ErrServer] or [ErrConfiguration].
//
// If a decision is granted to a caller that has gone, or whose call has timed out,
// it is settled back when its answer arrives. That is retried for one to two minutes
// while the server is known not to have done it. So the server has charged what callers
// were granted, less what they settled back, plus what was lost on the way: grants whose
// answers never came, and requests to give back.
//
// A client with ContextTimeoutEnabled closes the connection at the timeout, so a late answer
// is lost: what it granted stands until time gives it back. A client without the option reads
// late answers, and they are settled back. Slots that a call without an answer may have
// taken, and those whose release failed, are released when the server answers again.
//
// # Evictions
//
// A server that evicts keys forgets what they have used. From when a limiter has the store,
// INFO is asked of each master, and again every five minutes, and the limiter warns of a
// maxmemory-policy other than noeviction and volatile-ttl, and of keys that were evicted. A
// server that refuses INFO isn't asked again.
//
// # Leases
//
// Concurrency slots are leased, by default for 15 seconds, and renewed in the
// background while they are held: every third of that time, up to 500 in a call. If a
// process dies, its slots come free within the lease's time; [Store.Close] releases them
// at once. Settling a lease to 0 ends its renewal even if the server can't be reached.
//
// A lease that the server has lost, by an outage longer than the lease or a FLUSHALL, counts
// again when it is renewed next, and the limiter that took the slot reports it (stint.EventLeaseLost). More slots may be held then than the
// limit has. A lease that was released never comes back, and none that Reset has removed does,
// unless a FLUSHALL or a step back of the server's clock comes between. A lease that hasn't been
// renewed for half a day doesn't come back.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// Store keeps its states in Redis. Make one with New. It is safe for concurrent use.
type Store struct {
	server
	bad   []*store.SpecError // options
	wrong error              // what is wrong with New's arguments, for each call

	takes       batch.Queue[taking]
	settles     batch.Queue[settling]
	takeCalls   sync.Pool // of *batch.Call[taking]
	settleCalls sync.Pool // of *batch.Call[settling]

	denies      *denyCache
	prefetching *prefetching
	leases      leases
	renewals    renewals
	retries     releaseRetries
	giveBacks   giveBacks
	evictions   evictions

	closing sync.Once
	closed  chan struct{}
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)
	_ store.Verifier = (*Store)(nil)

	_ store.Checked = (*Store)(nil)
	_ store.Bounded = (*Store)(nil)

	_ store.Observable = (*Store)(nil)
)

// Option changes a default of New.
type Option interface{ apply(*Store) }

type option func(*Store)

func (set option) apply(s *Store) { set(s) }

const (
	defaultTimeout = 100 * time.Millisecond
	defaultLease   = 15 * time.Second
	shortestLease  = 100 * time.Millisecond

	// Batches in flight at a time: more where round trips are long (batch.Queue).
	maxInFlight = 8
	maxNear     = 2
	maxBatch    = 128 // calls
)

// WithTimeout sets how long a call may take in total: waiting for a connection,
// sending, and the answer. Set it to at least three times what nearly all calls take.
// It is 1 ms or more; see New for other values. The default is 100 ms.
func WithTimeout(d time.Duration) Option {
	return option(func(s *Store) {
		valid, write := engine.CheckDuration(d, d > 0, "write a positive duration, or leave it out for 100ms")
		s.require(valid, fmt.Sprintf("WithTimeout(%v)", d), write)
		s.timeout = d
	})
}

// WithPrefix sets the beginning of all keys in the server. Stores with different
// prefixes share nothing. The default is "stint:". A prefix with braces, which would
// choose a cluster's slot, is denied: see New.
func WithPrefix(prefix string) Option {
	return option(func(s *Store) { s.prefix = prefix })
}

// WithClock takes the time from now instead of from the server. Use it for servers that
// refuse TIME to scripts; by default the server's clock decides. now is called
// concurrently.
//
// The clocks of all processes should agree. If they disagree, the latest time seen wins
// and runs on at the server's pace, even while the process that is ahead is silent:
// another key in each call remembers it. So over any span t of real time, a limit lets
// through at most what it allows in t + s, where s is the largest lead of one clock
// over another, plus one more quota for each calendar boundary within s.
//
// A lead lasts until no process has called for a day. To forget it, for instance after
// a clock was wrong by hours, delete the keys that end in "%clock".
func WithClock(now func() time.Time) Option {
	return option(func(s *Store) {
		s.require(now != nil, "WithClock(nil)", "write a function, such as time.Now, or leave it out for the server's clock")
		s.clock = now
	})
}

// WithoutBatching sends each call by itself. Use it for servers that limit the length
// of scripts, and for comparisons. By default calls are batched.
func WithoutBatching() Option {
	return option(func(s *Store) { s.alone = true })
}

// WithLeaseTTL sets how long the slots of a process that has died stay taken. Leases
// are renewed every third of it. Give all processes the same value. It is at least 100 ms;
// see New for other values. The default is 15 seconds.
func WithLeaseTTL(d time.Duration) Option {
	return option(func(s *Store) {
		valid, write := engine.CheckDuration(d, d >= shortestLease, "write 100ms or more, or leave it out for 15s")
		s.require(valid, fmt.Sprintf("WithLeaseTTL(%v)", d), write)
		s.leaseTTL = d
	})
}

// WithDenyCache keeps up to so many denied keys in memory and answers repeated calls
// from there until they may pass. A caller that hammers then costs the server next to
// nothing. Each key takes 64 to 128 bytes plus its results. By default every call asks
// the server. keys is at least 1; see New for other values.
//
// Nothing passes that the server would deny: what others are granted meanwhile only
// delays the instant. In the other direction, a call may still be denied for up to a
// second after room was made where this store can't see it: by a settlement, a Reset or
// a raised limit in another process. A settlement or Reset by this store forgets the
// key. Calls with other limits or costs, and calls with a concurrency limit, always
// ask. Remaining is that of the server's latest answer.
//
// It helps with limits that deny for longer than a call takes. At 1000 per second the
// next request may pass before the server's answer arrives.
func WithDenyCache(keys int64) Option {
	return option(func(s *Store) {
		if s.require(keys > 0, fmt.Sprintf("WithDenyCache(%d)", keys), "write 1 or more, or leave it out"); keys > 0 {
			s.denies = newDenyCache(int(min(keys, math.MaxInt32)))
		}
	})
}

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
			s.prefetching = newPrefetching(n, maxAge)
		}
	})
}

// New returns a store that uses client: a *redis.Client, with or without Sentinel, a
// *redis.ClusterClient or a *redis.Ring. Set ContextTimeoutEnabled of the latter two: see
// the package comment. New makes no call to the server. The client remains the caller's
// to close.
//
// If client is nil, or an option is wrong, stint.New rejects the store, and every call fails
// with ErrConfiguration and says what to write.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{
		server: server{client: client, prefix: "stint:", timeout: defaultTimeout, leaseTTL: defaultLease},
		closed: make(chan struct{}),
	}
	for i, opt := range opts {
		if s.require(opt != nil, fmt.Sprintf("redisstore.New: option %d is nil", i+1), "leave it out"); opt != nil {
			opt.apply(s)
		}
	}
	s.leaseTime = wire.NewLeaseTime(s.leaseTTL)
	direct := s.adaptTo(client)
	if s.Misconfigured() != nil {
		s.wrong = s.unusable()
	}
	s.connect()
	s.makeQueues(direct)
	return s
}

// adaptTo sets what depends on the kind of the client. It reports whether a call that is made
// directly ends at its deadline.
func (s *Store) adaptTo(client redis.UniversalClient) (direct bool) {
	switch c := client.(type) {
	case nil:
	case *redis.Client:
		return c != nil
	case *redis.ClusterClient:
		s.layout = bySlot
		if c != nil && !c.Options().ContextTimeoutEnabled {
			warnOfWaiting("ClusterOptions")
		}
	case *redis.Ring:
		s.layout = byTag
		if c != nil && !c.Options().ContextTimeoutEnabled {
			warnOfWaiting("RingOptions")
		}
	default:
		s.layout, s.alone = bySlot, true
	}
	return false
}

// connect gives the parts of a store each other.
func (s *Store) connect() {
	s.leases.renewUntil = s.renewals.run
	s.renewals = renewals{server: &s.server, leases: &s.leases, retries: &s.retries, closed: s.closed}
	s.retries.settle, s.retries.timeout, s.retries.leaseTTL, s.retries.closed = s.settle, s.timeout, s.leaseTTL, s.closed
	s.giveBacks = giveBacks{server: &s.server, settles: &s.settles, closed: s.closed}
	s.evictions.client, s.evictions.closed = s.client, s.closed
	if s.prefetching != nil {
		s.prefetching.giveBack = s.giveBacks.tokens
	}
}

// makeQueues makes the queues of calls.
func (s *Store) makeQueues(direct bool) {
	inFlight, near, size := maxInFlight, maxNear, maxBatch
	if s.alone {
		inFlight, near, size = 1<<30, 0, 1
	}
	sendTakes, sendSettles := s.sendTakes, settleSender{&s.server, s.denies}.send
	if s.layout == bySlot {
		sendTakes, sendSettles = separating(sendTakes, partsOfTaking), separating(sendSettles, partsOfSettling)
	}
	s.takes = batch.Queue[taking]{
		MaxInFlight: inFlight, MaxNear: near, MaxSize: size, Timeout: s.timeout, Direct: direct,
		Send: sendTakes, AfterSend: s.retries.addUnanswered, Abandoned: s.giveBacks.abandoned,
	}
	s.settles = batch.Queue[settling]{
		MaxInFlight: inFlight, MaxNear: near, MaxSize: size, Timeout: s.timeout, Direct: direct,
		Send: sendSettles, Abandoned: func(*batch.Call[settling]) {},
	}
}

// String names the servers by their addresses, for lines of a log.
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

// Misconfigured implements store.Checked. It returns what is wrong with New's arguments, or
// that New hasn't made the store.
func (s *Store) Misconfigured() (all []*store.SpecError) {
	if s.closed == nil {
		return []*store.SpecError{inside.NewSpecError("", "the zero redisstore.Store", "write redisstore.New(client)")}
	}
	all = slices.Clone(s.bad)
	if v := reflect.ValueOf(s.client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		all = append(all, &store.SpecError{Problem: "the Redis client is nil", Write: "write one, such as redis.NewClient(…)"})
	}
	if strings.ContainsAny(s.prefix, "{}") {
		all = append(all, &store.SpecError{Problem: fmt.Sprintf("prefix %q", s.prefix), Write: "write one without braces"})
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

// Observe implements store.Observable: it tells o of store.MayForget. It returns at once,
// and asks the servers in the background.
func (s *Store) Observe(o *store.Observer) {
	if s.Misconfigured() == nil {
		s.evictions.observe(o)
	}
}

// Timeout implements store.Bounded. It returns that of WithTimeout.
func (s *Store) Timeout() time.Duration { return s.timeout }

// Close releases the slots that this store still holds, ends the renewal of leases, and gives
// back the tokens of WithPrefetch. It returns when that has been tried, after the time of
// WithTimeout at the latest, so the client may be closed then: Close doesn't close it. If the
// server doesn't answer, slots come free within the lease's time, and tokens are given back
// once more in the background.
//
// A program calls Close when it ends. Requests that still run then, such as streams, run
// without their slots, so more than the limit's number may be in flight until they end.
// Releasing their slots again is harmless. Slots taken after Close aren't renewed: they come
// free when they are released, or within the lease's time.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.closed) })
	released := make(chan struct{})
	go func() {
		defer close(released)
		s.renewals.releaseAll(s.leases.close())
	}()
	s.prefetching.giveBackTokens(true)
	<-released
	return nil
}
