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
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// Store keeps its states in Redis. Make one with New. It is safe for concurrent use.
type Store struct {
	client    redis.UniversalClient
	layout    layout
	bad       []*store.SpecError // options
	wrong     error              // what is wrong with New's arguments, for each call
	prefix    string
	timeout   time.Duration
	lease     time.Duration
	leaseTime *wire.LeaseTime // lease, as arguments
	clock     func() time.Time
	alone     bool // no batches
	denies    *denyCache
	stocks    *stocks

	ahead         atomic.Int64 // of the server's clock, in microseconds
	takes         batch.Queue[taking]
	settles       batch.Queue[settling]
	tickets       sync.Pool // of *batch.Call[taking]
	settleTickets sync.Pool // of *batch.Call[settling]
	leases        leases
	retries       releaseRetries
	watch         watch
	evictions     evictions

	first   sync.Once // call
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

// layout says what must not be put into one call.
type layout uint8

const (
	oneServer layout = iota
	bySlot
	byTag
)

// Option changes a default of New.
type Option interface{ apply(*Store) }

type option func(*Store)

func (set option) apply(x *Store) { set(x) }

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
		s.lease = d
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
	s := &Store{client: client, prefix: "stint:", timeout: defaultTimeout, lease: defaultLease, closed: make(chan struct{})}
	for i, opt := range opts {
		if s.require(opt != nil, fmt.Sprintf("redisstore.New: option %d is nil", i+1), "leave it out"); opt != nil {
			opt.apply(s)
		}
	}
	s.leaseTime = wire.NewLeaseTime(s.lease)
	if s.stocks != nil {
		s.stocks.sweep = func() { s.giveBackPrefetched(false) }
	}
	direct := false
	switch c := client.(type) {
	case nil:
	case *redis.Client:
		direct = c != nil
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
	if s.Misconfigured() != nil {
		s.wrong = s.unusable()
	}
	inFlight, near, size := maxInFlight, maxNear, maxBatch
	if s.alone {
		inFlight, near, size = 1<<30, 0, 1
	}
	s.takes = batch.Queue[taking]{
		MaxInFlight: inFlight, MaxNear: near, MaxSize: size, Timeout: s.timeout, Direct: direct,
		Send: s.sendTakes, AfterSend: s.releaseUnanswered, Abandoned: s.giveBackAbandoned,
	}
	s.settles = batch.Queue[settling]{
		MaxInFlight: inFlight, MaxNear: near, MaxSize: size, Timeout: s.timeout, Direct: direct,
		Send: s.sendSettles, Abandoned: func(*batch.Call[settling]) {},
	}
	if s.layout == bySlot {
		s.takes.Send = separating(s.sendTakes, partsOfTaking)
		s.settles.Send = separating(s.sendSettles, partsOfSettling)
	}
	return s
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
		s.releaseAll(s.leases.close())
	}()
	s.giveBackPrefetched(true)
	<-released
	return nil
}

// site identifies the keys that one call may have: all of its keys are of one site.
type site struct {
	slot uint16
	tag  string
}

func (s *Store) siteOf(key string) site {
	switch s.layout {
	case bySlot:
		return site{slot: wire.SlotOf(wire.TagIn(key))}
	case byTag:
		return site{tag: wire.TagIn(key)}
	}
	return site{}
}
