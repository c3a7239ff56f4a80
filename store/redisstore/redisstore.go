// Package redisstore is a store in Redis or Valkey, shared by all processes that
// use the same server, cluster or ring:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	limiter, err := stint.New(…, stint.WithStore(redisstore.New(rdb)))
//
// All limits of a Take are one call of a script, decided by the server's clock,
// and answer to the integer what package memstore answers. It needs Redis 6.2
// or newer, or Valkey.
//
// # Batches
//
// Calls that come while others are under way travel together: up to 128 in one
// script call on a single server, in one pipeline to a cluster or a ring. No
// call waits for others to come. [WithoutBatching] sends each by itself.
//
// A Take has room for 7000 charges on one server, or in one slot; more are refused
// as ErrConfiguration. A Settle may have any number.
//
// # Clusters
//
// All limits of one key share a slot: the key, escaped, is the hash tag. A Take
// with several keys may need several slots. Then each is decided by itself, at
// the same time as the others; if one refuses, what the others have granted is
// settled back; if that fails, or isn't known in time, the error is
// [ErrIndeterminate]. Such a call never lets more through, but for a moment between
// the two another caller may be refused who would have passed. It is the same
// for a ring's servers, and for clients this package doesn't know, such as
// go-redis's AutoPipeliner, which it takes for a cluster's and sends each call
// by itself. On a single server, with or without Sentinel, there are no such
// moments.
//
// # Failure
//
// Nothing is sent twice: an answer that is lost is an error, and the charge may
// stand. No call takes longer than [WithTimeout] says, whatever timeouts the
// client has; but a client without ContextTimeoutEnabled goes on waiting for the
// server by itself, and while all connections used here (8) do so, calls fail at
// once. Errors have a class: [ErrUnavailable], [ErrIndeterminate], [ErrServer],
// [ErrConfiguration].
//
// A decision granted to a caller that has gone, or has been told of the timeout,
// is settled back when its answer comes, and again for two minutes while the server
// is known not to have done it. So the server has charged what callers were granted,
// less what they settled back, and what was lost on the way: the grants of answers
// that never came, and requests to give back.
//
// # Leases
//
// The slots of a concurrency limit are leased, by default for 15 seconds, and
// renewed in the background for as long as they are held: all at once every third
// of that, 500 in a call. The slots of a process that dies come free
// within the lease's time. Settling a lease to 0 ends its renewal even if the
// server can't be reached.
package redisstore

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
)

// Store keeps its states in Redis. It is safe for concurrent use. Make one with
// New.
type Store struct {
	client  redis.UniversalClient
	layout  layout
	wrong   error // what New was given
	prefix  string
	timeout time.Duration
	lease   time.Duration
	clock   func() time.Time
	lost    func(key string, limit *store.Limit)
	tells   store.Observers
	alone   bool // no batches
	denies  *denyCache
	stocks  *stocks

	ahead   atomic.Int64 // of the server's clock, in microseconds
	takes   line[taking]
	settles line[settling]
	tickets sync.Pool // of *ticket[taking]
	leases  leases

	closing sync.Once
	closed  chan struct{}
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)

	_ store.Checked    = (*Store)(nil)
	_ store.Observable = (*Store)(nil)
)

// layout is what must not be put into one call.
type layout uint8

const (
	oneServer layout = iota
	bySlot
	byTag
)

// Option changes a default of New.
type Option func(*Store)

const (
	defaultTimeout = 100 * time.Millisecond
	defaultLease   = 15 * time.Second
	shortestLease  = 100 * time.Millisecond

	batchWays = 8
	batchFew  = 2
	batchMost = 128
)

// WithTimeout sets how long a call may take in all, 100 ms by default: waiting
// for a connection, sending, and the answer. Set it to three times what nearly
// all calls take, or more. A value not above 0 keeps the default.
func WithTimeout(d time.Duration) Option {
	return func(s *Store) {
		if d > 0 {
			s.timeout = d
		}
	}
}

// WithPrefix sets what all keys in the server begin with, "stint:" by default.
// Stores with different prefixes share nothing. It may not have braces, which
// would choose a cluster's slot.
func WithPrefix(prefix string) Option {
	return func(s *Store) { s.prefix = prefix }
}

// WithClock takes the time from now instead of from the server, for servers that
// refuse TIME to scripts. The clocks of all processes should agree. If they don't,
// the latest time seen wins, and goes on at the server's pace, also while the process
// that is ahead is silent: another key in each call remembers it. So over any span t
// of real time, a limit lets through at most what it allows in t + s, where s is the
// largest lead of one clock over another, and one more quota for each calendar
// boundary within s.
//
// A lead lasts until no process has called for a day. To forget it, as after a clock
// that was wrong by hours, delete the keys that end in "%clock".
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.clock = now }
}

// WithoutBatching sends each call by itself. It is for servers that hold the
// length of scripts against one, and for comparing.
func WithoutBatching() Option {
	return func(s *Store) { s.alone = true }
}

// WithLeaseTTL sets how long the slots of a process that has died stay taken, 15
// seconds by default. Leases are renewed every third of it. All processes should
// say the same. Below 100 ms it is 100 ms; a value not above 0 keeps the
// default.
func WithLeaseTTL(d time.Duration) Option {
	return func(s *Store) {
		if d > 0 {
			s.lease = max(d, shortestLease)
		}
	}
}

// WithLost calls lost when a lease that is still held turns out to be gone: the
// server could not be reached for longer than a lease's time, has lost the key,
// or was told to Reset it. Its slot may have been given to somebody else. The
// calls come one at a time and delay the renewal of others: be quick. A panic of
// lost is written to slog.Default at Error. Limiters are told without it, and log it.
func WithLost(lost func(key string, limit *store.Limit)) Option {
	return func(s *Store) { s.lost = lost }
}

// New returns a store that uses client, which stays the caller's: a
// *redis.Client, with or without Sentinel, a *redis.ClusterClient or a
// *redis.Ring. It doesn't ask the server for anything.
//
// What New can't use (no client, a prefix with braces) is refused by stint.New, and by
// every call as ErrConfiguration.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: "stint:", timeout: defaultTimeout, lease: defaultLease, closed: make(chan struct{})}
	for _, opt := range opts {
		opt(s)
	}
	if s.stocks != nil {
		s.stocks.sweep = func() { s.giveBack(false) }
	}
	direct := false
	switch c := client.(type) {
	case nil:
	case *redis.Client:
		direct = c != nil && c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.layout = bySlot
	case *redis.Ring:
		s.layout = byTag
	default:
		s.layout, s.alone = bySlot, true
	}
	var wrong []error
	for _, e := range s.Misconfigured() {
		wrong = append(wrong, e)
	}
	if err := errors.Join(wrong...); err != nil {
		s.wrong = fmt.Errorf("redisstore: %w: %w", ErrConfiguration, err)
	}
	ways, few, most := batchWays, batchFew, batchMost
	if s.alone {
		ways, few, most = 1<<30, 0, 1
	}
	s.takes = line[taking]{ways: ways, few: few, most: most, timeout: s.timeout, direct: direct, send: s.sendTakes, gone: s.undo}
	s.settles = line[settling]{ways: ways, few: few, most: most, timeout: s.timeout, direct: direct, send: s.sendSettles, gone: func(*ticket[settling]) {}}
	if s.layout == bySlot {
		s.takes.send = separating(s.sendTakes, partsOfTaking)
		s.settles.send = separating(s.sendSettles, partsOfSettling)
	}
	return s
}

// Misconfigured implements store.Checked.
func (s *Store) Misconfigured() (all []*store.SpecError) {
	if v := reflect.ValueOf(s.client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		all = append(all, &store.SpecError{Problem: "a Redis client that is nil", Write: "write one, such as redis.NewClient(…)"})
	}
	if strings.ContainsAny(s.prefix, "{}") {
		all = append(all, &store.SpecError{Problem: fmt.Sprintf("prefix %q", s.prefix), Write: "write one without braces"})
	}
	return all
}

// Observe implements store.Observable: o is told of leases that are lost, as WithLost
// says.
func (s *Store) Observe(o *store.Observer) { s.tells.Observe(o) }

// Close ends the renewal of leases, and gives back what WithLeasing holds. Slots
// that are still held come free within the lease's time, or when they are
// released, which the store still does; a lease taken later is not renewed. The
// client stays open.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.closed) })
	s.leases.close()
	s.giveBack(true)
	return nil
}

// site is what must be in one call together with nothing else.
type site struct {
	slot uint16
	tag  string
}

func (s *Store) siteOf(key string) site {
	switch s.layout {
	case bySlot:
		return site{slot: slotOf(tagIn(key))}
	case byTag:
		return site{tag: tagIn(key)}
	}
	return site{}
}
