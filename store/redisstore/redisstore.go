// Package redisstore is a store in Redis or Valkey. All processes that use the same
// server, cluster or ring share its limits:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", DialerRetries: 1})
//	limiter, err := stint.New(…, stint.WithStore(redisstore.New(rdb)))
//
// One script call decides all limits of a Take, by the server's clock. The results are exactly
// those of package memstore. The server must be Redis 6.2 or newer, or Valkey.
//
// # Batches
//
// Calls that arrive while other calls are in flight are batched: up to 128 in one script call
// on a single server, or in one pipeline to a cluster or a ring. No call waits for others to
// arrive. WithoutBatching turns batching off.
//
// Within a batch, equal decisions are combined, in their order of arrival, and releases of
// slots of one key are combined too. Settle returns when the server has released the slot. So
// the slot is free for the client's next request, in any process.
//
// A Take may have up to 7000 charges per server, or per slot of a cluster; a larger Take fails
// with ErrConfiguration. A Settle may have any number of charges.
//
// # Clusters
//
// All limits of one key share a cluster slot: the key, escaped, is the hash tag. The keys of a
// Take may be in several slots, which decide separately and concurrently. If one slot denies,
// the charges in the other slots are canceled. If canceling fails or takes too long, the error
// is ErrIndeterminate. Such a call never admits more than the limits allow. But until its
// charges are canceled, a concurrent request may be denied that would otherwise have passed.
//
// The same applies to the servers of a ring. Other client types, such as go-redis's
// AutoPipeliner, are treated like a cluster, without batching. On a single server, with or
// without Sentinel, a call is always atomic.
//
// # Failure
//
// No call is sent twice: if a reply is lost, the call fails, and its charges may have been
// made. No call takes longer than WithTimeout, even if the client has longer timeouts. For a
// *redis.Client, with or without Sentinel, the store uses a clone of the client with
// ContextTimeoutEnabled, so that the client also stops at the timeout. The clone has the same
// connections and hooks. For this purpose, the first call of a store adds one hook to the
// client. Hooks that are added later aren't run for the store's calls. Other calls of the
// client aren't affected.
//
// A cluster's or a ring's client can't be cloned. Set its ContextTimeoutEnabled. Without that
// option, New logs a warning to slog.Default: the client keeps waiting for the server after the
// timeout, and while all 8 connections of the store wait, calls fail at once. Also, each call
// then needs a goroutine of its own and takes about 50% longer.
//
// A panic during a call, for instance in a hook of the client, is logged to slog.Default at
// level Error, and the call fails with ErrIndeterminate.
//
// Each error belongs to a class: ErrUnavailable, ErrIndeterminate, ErrServer or
// ErrConfiguration. A call that had no connection within the timeout fails with ErrUnavailable
// and the error of the last dial: it charges nothing, and is never sent later.
//
// By default go-redis dials five times, 100 ms apart, before it reports a refused connection.
// So every call takes the whole timeout. Set DialerRetries: 1 in the client's options: then a
// refused connection is reported in about 2 ms.
//
// If a decision is granted after its caller has canceled the call or timed out, its charges are
// canceled when the reply arrives. A cancellation that is known to have failed is retried for
// one to two minutes. So the server counts too much only if the reply to a grant never arrives,
// or if the reply to a cancellation is lost.
//
// A client with ContextTimeoutEnabled closes the connection at the timeout, so a late reply is
// lost, and its charges remain until they are refilled. A client without the option reads late
// replies, and their charges are canceled. Slots that may have been taken by a call without a
// reply, and slots whose release failed, are released when the server replies again.
//
// # Evictions
//
// If a server evicts a key, the counts of that key are lost. So a store that is used by a
// limiter calls INFO on each master every five minutes. The limiter logs a warning if
// maxmemory-policy isn't noeviction or volatile-ttl, or if keys were evicted. If a server
// refuses INFO, the store doesn't call it again.
//
// # Leases
//
// Concurrency slots are leased, by default for 15 seconds. While a slot is held, its lease is
// renewed in the background every third of that time, up to 500 leases in a call. If a process
// dies, its slots are released within the lease time. Store.Close releases them at once. When a
// lease is settled to 0, its renewal ends even if the server can't be reached.
//
// If the server loses a lease, because of an outage longer than the lease time or a FLUSHALL,
// the next renewal restores the lease, and the limiter that took the slot sends
// stint.EventLeaseLost. Until then, more slots may be held than the limit allows. A lease isn't
// restored if it was released, removed by a Reset, or not renewed for half a day. There is one
// exception: a lease that a Reset has removed may be restored after a FLUSHALL, or after the
// server's clock is set back.
package redisstore

import (
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)
	_ store.Banner   = (*Store)(nil)
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
	maxInFlight      = 8
	maxInFlightShort = 2
	maxBatch         = 128 // calls
)

// WithTimeout sets the longest duration of a call, from waiting for a connection to reading the
// reply. Use at least three times the duration of nearly all calls. d is 1 ms or more; for
// other values, stint.New returns an error. The default is 100 ms.
func WithTimeout(d time.Duration) Option {
	return option(func(s *Store) {
		valid, write := optionerror.CheckDuration(d, time.Millisecond, 0,
			"use 1ms or more, or leave it out for the default of 100ms")
		s.require(valid, fmt.Sprintf("WithTimeout(%v)", d), write)
		s.timeout = d
	})
}

// WithPrefix sets the prefix of all keys on the server. Stores with different prefixes share
// nothing. The default is "stint:". stint.New returns an error for a prefix with braces,
// because all keys would then be in one cluster slot.
func WithPrefix(prefix string) Option {
	return option(func(s *Store) { s.prefix = prefix })
}

// WithClock makes the store use the time that now returns. Use it for servers that don't allow
// scripts to call TIME. By default, the store uses the server's clock. now is called
// concurrently.
//
// The clocks of all processes should agree. If they disagree, the latest time wins: a key in
// the server stores the lead of the fastest clock, so that the lead remains even while the
// process with that clock makes no calls. Let s be the largest difference between two clocks.
// In any span t of real time, a limit admits at most the units that it allows in t + s. A
// calendar quota is admitted once more for each calendar boundary within s.
//
// The lead expires after a day without calls. To remove the lead earlier, for instance after a
// clock was wrong by hours, delete the keys that end in "%clock".
func WithClock(now func() time.Time) Option {
	return option(func(s *Store) {
		s.require(now != nil, "WithClock(nil)", "pass a function, such as time.Now, or leave it out for the server's clock")
		s.clock = now
	})
}

// WithoutBatching makes the store send each call separately. Use it for servers that limit the
// length of scripts, and for benchmarks. By default calls are batched.
func WithoutBatching() Option {
	return option(func(s *Store) { s.alone = true })
}

// WithLeaseTTL sets the time after which the slots of a dead process are released. Leases are
// renewed every third of d. Use the same value in all processes. d is at least 100 ms; for
// other values, stint.New returns an error. The default is 15 seconds.
func WithLeaseTTL(d time.Duration) Option {
	return option(func(s *Store) {
		valid, write := optionerror.CheckDuration(d, shortestLease, 0,
			"use 100ms or more, or leave it out for the default of 15s")
		s.require(valid, fmt.Sprintf("WithLeaseTTL(%v)", d), write)
		s.leaseTTL = d
	})
}

// WithDenyCache caches denials in memory, for at most the given number of keys. Repeated calls
// are denied from the cache until the key may pass, so that a client that keeps calling costs
// the server almost nothing. Each key takes 64 to 128 bytes plus its results. By default every
// call is sent to the server. keys is at least 1; for other values, stint.New returns an error.
//
// The cache never admits a request that the server would deny. But it may deny a request for up
// to a second after another process has settled a charge, called Reset or raised the limit. A
// settlement or Reset by this store removes the key from the cache. Calls with other limits or
// costs, and calls with a concurrency limit, are always sent to the server. Remaining is taken
// from the server's latest reply.
//
// The cache saves calls only for limits whose RetryAfter is longer than a call takes. At 1000
// per second, the next request may pass before the server's answer arrives.
func WithDenyCache(keys int64) Option {
	return option(func(s *Store) {
		if s.require(keys > 0, fmt.Sprintf("WithDenyCache(%d)", keys), "use 1 or more, or leave it out"); keys > 0 {
			s.denies = newDenyCache(int(min(keys, math.MaxInt32)))
		}
	})
}

// WithPrefetch makes this store take up to n tokens of a bucket in one call, and spend them
// without further calls for up to maxAge. Then it returns unused tokens. So a hot key costs the
// server one call for n tokens instead of n calls. By default the store doesn't prefetch.
//
// Prefetching never admits more in total, because the server charges every token before a store
// spends the token. But it shifts usage in time:
//
//   - In any span of time, each store may spend its prefetched tokens, at most n per key, on
//     top of the burst.
//   - Other callers may be denied while a store holds tokens, including callers of this store
//     that arrive while it fetches the last tokens.
//   - If a process crashes, its prefetched tokens stay charged until the bucket refills.
//
// Remaining is the server's count at the time of the prefetch, less the tokens used since. A
// call of cost 0 is sent to the server, which counts prefetched tokens as used. Reset drops
// this store's prefetched tokens of the key. Other stores still spend their prefetched tokens,
// and don't return unused ones.
//
// A store with prefetching fails one test of package storetest, which requires that exactly the
// burst passes for concurrent callers.
//
// Prefetching applies to calls with one limit, a TokenBucket without queue, debt or maximum
// wait. All other calls are sent to the server. n is at most a tenth of the limit's burst: a
// larger n is lowered to that. maxAge is at most a second, and at most the time in which n
// tokens arrive: a longer maxAge is lowered to that. The store prefetches for a key from the
// key's second call within maxAge. n is at least 2, and maxAge at least 1 ms; for other values,
// stint.New returns an error.
func WithPrefetch(n int64, maxAge time.Duration) Option {
	return option(func(s *Store) {
		const instead = "use 2 or more tokens and 1ms or more, or leave it out"
		valid, write := optionerror.CheckDuration(maxAge, time.Millisecond, 0, instead)
		if n < 2 {
			valid, write = false, instead
		}
		if s.require(valid, fmt.Sprintf("WithPrefetch(%d, %v)", n, maxAge), write); valid {
			s.prefetching = newPrefetching(n, maxAge)
		}
	})
}

// New returns a store that uses client: a *redis.Client, with or without Sentinel, a
// *redis.ClusterClient or a *redis.Ring. For a cluster or a ring, set ContextTimeoutEnabled in
// the client's options: see the package comment. New makes no call to the server. The caller
// closes the client.
//
// If client is nil or an option is wrong, stint.New returns an error, and every call fails with
// ErrConfiguration. The error describes the correction.
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
	s.renewals = renewals{server: &s.server, leases: &s.leases, unreleased: &s.unreleased, closed: s.closed}
	s.unreleased.settle, s.unreleased.closed = s.settle, s.closed
	s.unreleased.timeout, s.unreleased.leaseTTL = s.timeout, s.leaseTTL
	s.refunds = refunds{server: &s.server, settles: &s.settles, closed: s.closed}
	s.evictions.client, s.evictions.closed = s.client, s.closed
	if s.prefetching != nil {
		s.prefetching.refund = s.refunds.refundTokens
	}
}

// makeQueues makes the queues of calls.
func (s *Store) makeQueues(direct bool) {
	inFlight, near, size := maxInFlight, maxInFlightShort, maxBatch
	if s.alone {
		inFlight, near, size = 1<<30, 0, 1
	}
	sendTakes, sendSettles := s.sendTakes, settleSender{&s.server, s.denies}.send
	if s.layout == bySlot {
		sendTakes, sendSettles = resendApart(sendTakes, partsOfTake), resendApart(sendSettles, partsOfSettle)
	}
	s.takes = batch.Queue[takeRequest]{
		MaxInFlight: inFlight, MaxInFlightShort: near, MaxSize: size, Timeout: s.timeout, Direct: direct,
		Send: sendTakes, Unsent: s.unsent, AfterSend: s.unreleased.addUnanswered, Abandoned: s.refunds.refundAbandoned,
	}
	s.settles = batch.Queue[settleRequest]{
		MaxInFlight: inFlight, MaxInFlightShort: near, MaxSize: size, Timeout: s.timeout, Direct: direct,
		Send: sendSettles, Unsent: s.unsent, Abandoned: func(*batch.Call[settleRequest]) {},
	}
}

// Close releases the slots that this store still holds, ends the renewal of leases, and returns
// prefetched tokens. Close takes at most as long as WithTimeout. The client may be closed after
// Close returns; Close doesn't close the client. If the server doesn't reply, slots are
// released within the lease time, and the return of tokens is retried once in the background.
//
// Call Close when the program ends. Requests that are still running, such as streams, continue
// without their slots, so more requests than the limit allows may be in flight until these
// requests end. Their slots may be released again without harm. Leases of slots taken after
// Close aren't renewed: these slots are free when they are released, or when the lease time
// ends.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.closed) })
	released := make(chan struct{})
	go func() {
		defer close(released)
		s.renewals.releaseAll(s.leases.close())
	}()
	s.prefetching.refundTokens(true)
	<-released
	return nil
}
