package redisstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// leases are the leases that this store holds and has to renew.
type leases struct {
	mu     sync.Mutex
	byKey  map[string]*holding // by key in the server
	stop   chan struct{}       // ends the renewal; nil while none runs
	closed bool
	calls  sync.WaitGroup // a renewal's calls, while they are under way
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
	limit    *store.Limit
	observer *store.Observer // of the charge
	several  bool            // it may hold several slots
}

// startRenewal starts renewing a lease that was asked for at since.
func (s *Store) startRenewal(key string, c *store.Charge, id store.LeaseID, since time.Time) {
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
	h.renewed[id] = lease{since, c.Limit, c.Observer, c.Cost > 1}
	if l.stop == nil && !l.closed {
		l.stop = make(chan struct{})
		go s.renewLoop(l.stop)
	}
}

// amend records that a lease may hold several slots from now on.
func (l *leases) amend(key string, id store.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.byKey[key]
	if h == nil {
		return
	}
	if of, ok := h.renewed[id]; ok {
		of.several = true
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
			c := store.Charge{Key: h.identity, Limit: of.limit, Receipt: store.Receipt{Cost: 1, Lease: id}}
			held = append(held, heldLease{key, c, of.several})
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
		s.leases.calls.Wait() // a renewal must not come after the release
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
		var calls []call
		for key, ids := range plain {
			for some := range slices.Chunk(ids, mostRenewed) {
				calls = append(calls, call{args: append([]any{"zrem", key}, some...)})
			}
		}
		if len(calls) > 0 {
			s.exec(ctx, calls)
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

// renewing is a renewal call for leases of one place.
type renewing struct {
	site site
	keys []string
	args []any
	ids  [][]store.LeaseID // by key
	many int               // ids in all
}

// mostRenewed is the most leases in one call. That many take the server half a
// millisecond, during which all other callers wait.
const mostRenewed = 500

func (s *Store) renewCall(times timeArgs, r *renewing) call {
	args := append(make([]any, s.head(r.keys)), times.clock, times.lease)
	return s.call(scripts.Renew(), r.site, r.keys, append(args, r.args...))
}

// renew renews at once every lease last renewed longer than age ago, and reports
// whether the server answered all calls.
func (s *Store) renew(age time.Duration) bool {
	asked := time.Now()
	rs := s.leases.due(asked, age, s.siteOf)
	if len(rs) == 0 {
		return true
	}
	defer s.leases.calls.Done()
	times := s.timeArgs(nil)
	calls := make([]call, len(rs))
	for i, r := range rs {
		calls[i] = s.renewCall(times, r)
	}
	// Longer than a call's timeout: no caller waits, and there may be thousands of leases.
	ctx, end := context.WithTimeout(context.Background(), max(s.timeout, s.lease/6))
	defer end()
	s.exec(ctx, calls)
	rs, calls = s.separate(ctx, times, rs, calls)
	well := true
	for i, r := range rs {
		gone, err := calls[i].cmd.Slice()
		if err != nil {
			well = false
			continue
		}
		s.leases.extend(r, asked)
		for j := 0; j+1 < len(gone); j += 2 {
			n, _ := gone[j].(int64)
			id, _ := gone[j+1].(string)
			if n < 1 || int(n) > len(r.keys) || len(id) != len(store.LeaseID{}) {
				continue
			}
			s.reportLost(r.keys[n-1], store.LeaseID([]byte(id)))
		}
	}
	return well
}

// due returns the leases to renew, as calls. If there are any, the caller calls calls.Done
// when they are answered.
func (l *leases) due(now time.Time, age time.Duration, siteOf func(string) site) (rs []*renewing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // close may wait for calls
		return nil
	}
	l.sweep()
	last := make(map[site]*renewing) // call of a place
	for key, h := range l.byKey {
		var ids []store.LeaseID
		for id, of := range h.renewed {
			if now.Sub(of.at) >= age {
				ids = append(ids, id)
			}
		}
		p := siteOf(key)
		for len(ids) > 0 {
			r := last[p]
			if r == nil || r.many == mostRenewed {
				r = &renewing{site: p}
				last[p] = r
				rs = append(rs, r)
			}
			n := min(len(ids), mostRenewed-r.many)
			r.add(key, ids[:n:n])
			ids = ids[n:]
		}
	}
	if len(rs) > 0 {
		l.calls.Add(1)
	}
	return rs
}

func (r *renewing) add(key string, ids []store.LeaseID) {
	r.keys = append(r.keys, key)
	r.ids = append(r.ids, ids)
	r.many += len(ids)
	r.args = append(r.args, len(ids))
	for i := range ids {
		r.args = append(r.args, ids[i][:])
	}
}

// extend records the renewal of r's leases, except those released meanwhile.
func (l *leases) extend(r *renewing, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range r.keys {
		h := l.byKey[key]
		if h == nil {
			continue
		}
		for _, id := range r.ids[i] {
			if of, held := h.renewed[id]; held {
				of.at = at
				h.renewed[id] = of
			}
		}
	}
}

// reportLost reports a lost lease, unless it has been released meanwhile, or is being reset.
func (s *Store) reportLost(key string, id store.LeaseID) {
	s.leases.mu.Lock()
	h := s.leases.byKey[key]
	report := h != nil && h.resets == 0
	s.leases.mu.Unlock()
	if !report {
		return
	}
	of, held := s.leases.stopRenewal(key, id)
	if !held {
		return
	}
	// The other leases are renewed whatever these functions do.
	if of.observer != nil {
		background.Do("reporting a lost lease", func() {
			of.observer.Tell(store.Notice{Kind: store.LeaseLost, Key: h.identity, Limit: of.limit})
		})
	}
	if s.lost != nil {
		background.Do("reporting a lost lease", func() { s.lost(h.identity, of.limit) })
	}
}

// LeaseTTL implements store.Leaser. It returns that of WithLeaseTTL.
func (s *Store) LeaseTTL() time.Duration { return s.lease }
