package redisstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// leases are the leases that this store holds and has to renew.
type leases struct {
	mu       sync.Mutex
	byKey    map[string]*holding // by key in the server
	stop     chan struct{}       // ends the renewal; nil while none runs
	closed   bool
	underWay sync.WaitGroup // renewals
}

// holding is the leases on one key. One without leases stays until the renewal next runs: the
// next request on the key would make another.
type holding struct {
	key      string // in the server
	identity string
	renewed  map[store.LeaseID]lease
	resets   int // under way
}

type lease struct {
	at       time.Time // when it was taken or renewed
	seen     int64     // the server's instant when it was taken or renewed
	limit    *store.Limit
	observer *store.Observer // of the charge
	slots    int64           // that it holds
	several  bool            // it may hold several
}

// startRenewal starts renewing a lease that was asked for at since, and that the server gave at
// its instant seen.
func (s *Store) startRenewal(key string, c *store.Charge, id store.LeaseID, since time.Time, seen int64) {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = make(map[string]*holding)
	}
	h := l.byKey[key]
	if h == nil {
		h = &holding{key: key, identity: c.Key, renewed: make(map[store.LeaseID]lease)}
		l.byKey[key] = h
	}
	h.renewed[id] = lease{since, seen, c.Limit, c.Observer, c.Cost, c.Cost > 1}
	if l.stop == nil && !l.closed {
		l.stop = make(chan struct{})
		go s.renewLoop(l.stop)
	}
}

// amend records that a lease may hold so many slots from now on.
func (l *leases) amend(key string, id store.LeaseID, slots int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.byKey[key]
	if h == nil {
		return
	}
	if of, ok := h.renewed[id]; ok {
		of.slots, of.several = slots, true
		h.renewed[id] = of
	}
}

// stopRenewal stops renewing a lease, and reports whether it was held.
func (l *leases) stopRenewal(key string, id store.LeaseID) (of lease, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.byKey[key]
	if h == nil {
		return lease{}, false
	}
	return l.remove(h, id)
}

// remove stops renewing a lease of a holding, and reports whether it was held. The caller
// holds the lock.
func (l *leases) remove(h *holding, id store.LeaseID) (of lease, held bool) {
	of, held = h.renewed[id]
	delete(h.renewed, id)
	if len(h.renewed) == 0 && l.stop == nil && l.byKey[h.key] == h { // no goroutine sweeps
		delete(l.byKey, h.key)
	}
	return of, held
}

// sweep removes holdings without leases. The caller holds the lock.
func (l *leases) sweep() {
	maps.DeleteFunc(l.byKey, func(_ string, h *holding) bool { return len(h.renewed) == 0 })
}

// beginReset prepares for the reset of keys. Until end is called, their leases aren't
// reported lost. If the reset was made, end stops renewing the leases that were held
// before it.
func (l *leases) beginReset(keys []string) (end func(made bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := make(map[*holding][]store.LeaseID)
	for _, key := range keys {
		if h := l.byKey[key]; h != nil && before[h] == nil {
			h.resets++
			before[h] = slices.Collect(maps.Keys(h.renewed))
		}
	}
	return func(made bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for h, ids := range before {
			h.resets--
			for _, id := range ids {
				if made {
					l.remove(h, id)
				}
			}
		}
	}
}

// heldLease is a lease that was held when its store was closed.
type heldLease struct {
	key     string       // in the server
	release store.Charge // which releases it
	several bool         // it may hold several slots
}

// close ends the renewal, and returns the leases that are held. They aren't held any more.
func (l *leases) close() (held []heldLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.stop != nil {
		close(l.stop)
		l.stop = nil
	}
	for key, h := range l.byKey {
		for id, of := range h.renewed {
			held = append(held, heldLease{key, h.release(id, of.limit), of.several})
		}
	}
	l.byKey = nil
	return held
}

// releaseAll releases leases that are no longer held, and those whose release is being retried.
// It returns once the server has answered, after the timeout of a call at the latest.
func (s *Store) releaseAll(held []heldLease) {
	ctx, end := context.WithTimeout(context.Background(), s.timeout)
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.leases.underWay.Wait() // a renewal must not come after the release
		others := s.retries.removeAll()
		plain := make(map[string][]any) // the ids of leases of one slot, by key
		for i := range held {
			h := &held[i]
			if h.several {
				others = append(others, h.release)
			} else {
				plain[h.key] = append(plain[h.key], h.release.Receipt.Lease[:])
			}
		}
		var commands []command
		for key, ids := range plain {
			for some := range slices.Chunk(ids, mostRenewed) {
				commands = append(commands, command{args: append([]any{"zrem", key}, some...)})
			}
		}
		if len(commands) > 0 {
			s.exec(ctx, commands)
		}
		if len(others) > 0 {
			_ = s.settle(ctx, others, make([]store.Result, len(others))) // what isn't released runs out
		}
	}()
	select {
	case <-done:
	case <-ctx.Done(): // the client may not notice
	}
}

// renewLoop renews leases until none is held. It runs every third of a lease's time and
// skips leases younger than a sixth: a short request's lease is never renewed, and any
// other must fail twice to be lost.
func (s *Store) renewLoop(stop chan struct{}) {
	timer := time.NewTimer(s.lease / 3)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		next, well := s.lease/3, false
		background.Do("renewing leases", func() { well = s.renew(s.lease / 6) }) // WithClock's function may panic
		if !well {
			next = s.lease / 12
		}
		l := &s.leases
		l.mu.Lock()
		if len(l.byKey) == 0 && l.stop == stop {
			l.stop = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		timer.Reset(next)
	}
}

// A renewal enters a lease again that the server has lost: by an outage longer than the lease,
// a FLUSHALL, or a failover. More slots may be in use then than the limit has. It must not enter one
// that its holder has released meanwhile, although the server may execute the renewal after
// the release, and although the renewal's answer may be lost. So the server enters leases only
// up to an instant, and leases that were released while a renewal might enter them are
// released once more when it has answered, or else after that instant.

// renewal is a call that renews leases of one place.
type renewal struct {
	wire.Renewal
	site site
}

// mostRenewed is the most leases in one call. That many take the server half a
// millisecond, during which all other callers wait.
const mostRenewed = 500

func (s *Store) renewCommand(times wire.Times, r *renewal) command {
	return s.renewalOf(times, r, r.KeysWithResets(), times.Wall+s.renewalTime().Microseconds())
}

// renewalOf returns the command that renews r, which enters no lease after the instant until.
func (s *Store) renewalOf(times wire.Times, r *renewal, keys []string, until int64) command {
	script, args := r.Args(times, until, s.head(keys))
	return s.command(script, r.site, keys, args)
}

// renewalTime is how long a renewal may take. It is longer than a call's timeout: no caller
// waits, and there may be thousands of leases.
func (s *Store) renewalTime() time.Duration { return max(s.timeout, s.lease/6) }

// renew renews at once every lease last renewed longer than age ago, and reports
// whether the server answered all calls.
func (s *Store) renew(age time.Duration) bool {
	sent := time.Now()
	times := s.times(nil)
	rs := s.leases.due(sent, age, s.siteOf)
	if len(rs) == 0 {
		return true
	}
	defer s.leases.underWay.Done()
	commands := make([]command, len(rs))
	for i, r := range rs {
		commands[i] = s.renewCommand(times, r)
	}
	ctx, end := context.WithTimeout(context.Background(), s.renewalTime())
	defer end()
	s.exec(ctx, commands)
	rs, commands = s.separate(ctx, times, rs, commands)
	well := true
	var entered, unsure []wire.HeldLease // those that the server has entered, or may have
	pending := false                     // it may enter some yet
	for i, r := range rs {
		now, lost, err := renewAnswer(r, commands[i].cmd)
		if err != nil {
			well = false
			if errors.Is(classify(err), ErrIndeterminate) {
				reply := redis.Error(nil)
				pending = pending || !errors.As(err, &reply)
				unsure = append(unsure, slices.Concat(r.Leases...)...)
			}
			continue
		}
		s.learn(now)
		s.leases.extend(r, sent, now)
		for _, l := range lost {
			switch l.Done {
			case "entered":
				entered = append(entered, l.HeldLease)
				s.reportLost(l.Key, l.ID, true)
			case "reset":
				s.reportLost(l.Key, l.ID, false)
			} // what is late is entered next time
		}
	}
	s.releaseAgain(entered)
	if pending {
		select {
		case <-ctx.Done():
		case <-s.closed:
		}
	}
	s.releaseAgain(unsure)
	return well
}

// renewAnswer reads the answer to a renewal.
func renewAnswer(r *renewal, cmd *redis.Cmd) (now int64, lost []wire.LostLease, err error) {
	reply, err := cmd.Result()
	if err != nil {
		return 0, nil, err
	}
	if now, lost, err = r.Answer(reply); err != nil {
		err = unread(err)
	}
	return now, lost, err
}

// releaseAgain releases those of the leases that aren't held any more.
func (s *Store) releaseAgain(all []wire.HeldLease) {
	var releases []store.Charge
	s.leases.mu.Lock()
	for i := range all {
		c := &all[i].Release
		h := s.leases.byKey[wire.StorageKey(s.prefix, c.Key, c.Limit)]
		held := false
		if h != nil {
			_, held = h.renewed[all[i].ID]
		}
		if !held {
			releases = append(releases, *c)
		}
	}
	s.leases.mu.Unlock()
	if len(releases) > 0 {
		s.retryReleases(releases)
	}
}

// due returns the leases to renew, as calls. If there are any, the caller calls calls.Done
// when they are answered.
func (l *leases) due(now time.Time, age time.Duration, siteOf func(string) site) (rs []*renewal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // close may wait for calls
		return nil
	}
	l.sweep()
	last := make(map[site]*renewal) // call of a place
	for key, h := range l.byKey {
		var all []wire.HeldLease
		for id, of := range h.renewed {
			if now.Sub(of.at) >= age {
				all = append(all, wire.HeldLease{ID: id, Release: h.release(id, of.limit), Slots: of.slots, Seen: of.seen})
			}
		}
		p := siteOf(key)
		for len(all) > 0 {
			r := last[p]
			if r == nil || r.Size == mostRenewed {
				r = &renewal{site: p}
				last[p] = r
				rs = append(rs, r)
			}
			n := min(len(all), mostRenewed-r.Size)
			r.Add(key, all[:n:n])
			all = all[n:]
		}
	}
	if len(rs) > 0 {
		l.underWay.Add(1)
	}
	return rs
}

// release returns the charge that releases a lease.
func (h *holding) release(id store.LeaseID, l *store.Limit) store.Charge {
	return store.Charge{Key: h.identity, Limit: l, Receipt: store.Receipt{Cost: 1, Lease: id}}
}

// extend records the renewal of r's leases at the server's instant now, except those released
// meanwhile. It had those, or knew of no Reset since it had them.
func (l *leases) extend(r *renewal, at time.Time, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range r.Keys {
		h := l.byKey[key]
		if h == nil {
			continue
		}
		for j := range r.Leases[i] {
			id := r.Leases[i][j].ID
			if of, held := h.renewed[id]; held {
				of.at, of.seen = at, now
				h.renewed[id] = of
			}
		}
	}
}

// reportLost reports a lost lease, which has been entered again or isn't renewed any more,
// unless it has been released meanwhile, or is being reset.
func (s *Store) reportLost(key string, id store.LeaseID, entered bool) {
	s.leases.mu.Lock()
	h := s.leases.byKey[key]
	if h == nil || h.resets > 0 {
		s.leases.mu.Unlock()
		return
	}
	of := h.renewed[id] // without an observer, if it has been released
	if !entered {
		s.leases.remove(h, id)
	}
	s.leases.mu.Unlock()
	// The other leases are renewed whatever the observer does.
	if of.observer != nil {
		background.Do("reporting a lost lease", func() {
			of.observer.Tell(store.Notice{Kind: store.LeaseLost, Key: h.identity, Limit: of.limit})
		})
	}
}
