package redisstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/lua"
	"github.com/stint-go/stint/store"
)

// leases are the leases that this store holds and has to renew.
type leases struct {
	mu     sync.Mutex
	held   map[string]*holding // by key in the server
	stop   chan struct{}       // ends the renewal; nil while none runs
	closed bool
}

// holding is the leases on one key.
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
}

// keep starts renewing a lease that was asked for at since.
func (s *Store) keep(key string, c *store.Charge, id store.LeaseID, since time.Time) {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[string]*holding)
	}
	h := l.held[key]
	if h == nil {
		h = &holding{key: key, identity: c.Key, renewed: make(map[store.LeaseID]lease)}
		l.held[key] = h
	}
	h.renewed[id] = lease{since, c.Limit, c.Observer}
	if l.stop == nil && !l.closed {
		l.stop = make(chan struct{})
		go s.renewal(l.stop)
	}
}

// drop stops renewing a lease, and reports whether it was held.
func (l *leases) drop(key string, id store.LeaseID) (of lease, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[key]
	if h == nil {
		return lease{}, false
	}
	return l.end(h, id)
}

// end stops renewing a lease of a holding, and reports whether it was held. The caller
// holds the lock.
func (l *leases) end(h *holding, id store.LeaseID) (of lease, held bool) {
	of, held = h.renewed[id]
	delete(h.renewed, id)
	if len(h.renewed) == 0 && l.held[h.key] == h {
		delete(l.held, h.key)
	}
	return of, held
}

// resetting says that keys are about to be reset. Until ended is called, nobody is told
// that their leases are gone. If the reset was made, those that were held before it are
// no longer renewed.
func (l *leases) resetting(keys []string) (ended func(made bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := make(map[*holding][]store.LeaseID)
	for _, key := range keys {
		if h := l.held[key]; h != nil && before[h] == nil {
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
					l.end(h, id)
				}
			}
		}
	}
}

func (l *leases) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.stop != nil {
		close(l.stop)
		l.stop = nil
	}
}

// renewal renews leases until none is held. It runs every third of a lease's time and
// skips leases younger than a sixth: a short request's lease is never renewed, and any
// other must fail twice to be lost.
func (s *Store) renewal(stop chan struct{}) {
	timer := time.NewTimer(s.lease / 3)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		next := s.lease / 3
		if !s.renew(s.lease / 6) {
			next = s.lease / 12
		}
		l := &s.leases
		l.mu.Lock()
		if len(l.held) == 0 && l.stop == stop {
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
// millisecond, during which everybody else waits.
const mostRenewed = 500

func (s *Store) renewCall(told told, r *renewing) call {
	args := append(make([]any, s.head(r.keys)), told.clock, told.lease)
	return s.call(lua.Renew(), r.site, r.keys, append(args, r.args...))
}

// renew renews at once every lease last renewed longer than age ago, and reports
// whether all of it was answered.
func (s *Store) renew(age time.Duration) bool {
	asked := time.Now()
	rs := s.leases.due(asked, age, s.siteOf)
	if len(rs) == 0 {
		return true
	}
	told := s.told(nil)
	calls := make([]call, len(rs))
	for i, r := range rs {
		calls[i] = s.renewCall(told, r)
	}
	// Longer than a call's timeout: nobody waits for it, and there may be thousands of
	// leases.
	ctx, end := context.WithTimeout(context.Background(), max(s.timeout, s.lease/6))
	defer end()
	s.exec(ctx, calls)
	rs, calls = s.separate(ctx, told, rs, calls)
	well := true
	for i, r := range rs {
		gone, err := calls[i].cmd.Slice()
		if err != nil {
			well = false
			continue
		}
		s.leases.renewed(r, asked)
		for j := 0; j+1 < len(gone); j += 2 {
			n, _ := gone[j].(int64)
			id, _ := gone[j+1].(string)
			if n < 1 || int(n) > len(r.keys) || len(id) != len(store.LeaseID{}) {
				continue
			}
			s.lose(r.keys[n-1], store.LeaseID([]byte(id)))
		}
	}
	return well
}

// due returns the leases to renew, as calls.
func (l *leases) due(now time.Time, age time.Duration, siteOf func(string) site) (rs []*renewing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := make(map[site]*renewing) // call of a place
	for key, h := range l.held {
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

// renewed records that r was renewed, except leases released meanwhile.
func (l *leases) renewed(r *renewing, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range r.keys {
		h := l.held[key]
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

// lose reports a lost lease, unless it has been released meanwhile, or is being reset.
func (s *Store) lose(key string, id store.LeaseID) {
	s.leases.mu.Lock()
	h := s.leases.held[key]
	tell := h != nil && h.resets == 0
	s.leases.mu.Unlock()
	if !tell {
		return
	}
	of, held := s.leases.drop(key, id)
	if !held {
		return
	}
	// The other leases are renewed whatever these functions do.
	if of.observer != nil {
		background.Do("telling that a lease is lost", func() {
			of.observer.Tell(store.Notice{Kind: store.LeaseLost, Key: h.identity, Limit: of.limit})
		})
	}
	if s.lost != nil {
		background.Do("telling that a lease is lost", func() { s.lost(h.identity, of.limit) })
	}
}
