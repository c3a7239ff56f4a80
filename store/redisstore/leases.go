package redisstore

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// leases are the leases that this store holds and has to renew.
type leases struct {
	// renewUntil renews leases until stop is closed, or none is held. It runs on a goroutine of its
	// own while there are any.
	renewUntil func(stop chan struct{})

	mu       sync.Mutex
	byKey    map[string]*holding // by key in the server
	stopped  chan struct{}       // ends renewUntil; nil while it doesn't run
	closed   bool
	underWay sync.WaitGroup // renewals
}

// holding is the leases on one key. One without leases stays until the renewal next runs: the
// next request on the key would make another.
type holding struct {
	key      string // in the server
	identity string
	leases   map[store.LeaseID]lease
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

// start starts renewing a lease that was asked for at since, and that the server gave at
// its instant seen.
func (l *leases) start(key string, c *store.Charge, id store.LeaseID, since time.Time, seen int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = make(map[string]*holding)
	}
	h := l.byKey[key]
	if h == nil {
		h = &holding{key: key, identity: c.Key, leases: make(map[store.LeaseID]lease)}
		l.byKey[key] = h
	}
	h.leases[id] = lease{since, seen, c.Limit, c.Observer, c.Cost, c.Cost > 1}
	if l.stopped == nil && !l.closed {
		l.stopped = make(chan struct{})
		go l.renewUntil(l.stopped)
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
	if amended, ok := h.leases[id]; ok {
		amended.slots, amended.several = slots, true
		h.leases[id] = amended
	}
}

// stop stops renewing a lease, and reports whether it was held.
func (l *leases) stop(key string, id store.LeaseID) (stopped lease, held bool) {
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
func (l *leases) remove(h *holding, id store.LeaseID) (removed lease, held bool) {
	removed, held = h.leases[id]
	delete(h.leases, id)
	if len(h.leases) == 0 && l.stopped == nil && l.byKey[h.key] == h { // no goroutine sweeps
		delete(l.byKey, h.key)
	}
	return removed, held
}

// sweep removes holdings without leases. The caller holds the lock.
func (l *leases) sweep() {
	maps.DeleteFunc(l.byKey, func(_ string, h *holding) bool { return len(h.leases) == 0 })
}

// endIfEmpty records that renewUntil, which has stop, ends if there are no holdings, and reports whether it
// must. The next lease starts another. It is false once stop is closed: renewUntil ends by that.
func (l *leases) endIfEmpty(stop chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byKey) > 0 || l.stopped != stop {
		return false
	}
	l.stopped = nil
	return true
}

// beginReset prepares for the reset of keys. Until end is called, their leases aren't
// reported lost. If the reset was made, end stops renewing the leases that were held
// before it.
func (l *leases) beginReset(keys []string) (end func(made bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := make(map[*holding][]store.LeaseID)
	for _, key := range keys {
		h := l.byKey[key]
		if _, twice := before[h]; h == nil || twice {
			continue
		}
		h.resets++
		before[h] = slices.Collect(maps.Keys(h.leases))
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
	if l.stopped != nil {
		close(l.stopped)
		l.stopped = nil
	}
	for key, h := range l.byKey {
		for id, one := range h.leases {
			held = append(held, heldLease{key, h.release(id, one.limit), one.several})
		}
	}
	l.byKey = nil
	return held
}

// release returns the charge that releases a lease.
func (h *holding) release(id store.LeaseID, l *store.Limit) store.Charge {
	return store.Charge{Key: h.identity, Limit: l, Receipt: store.Receipt{Cost: 1, Lease: id}}
}

// due calls f, under the lock, with the leases to renew on each key: those last renewed more than
// age before now. If there are any, the caller calls underWay.Done when their renewal is answered.
func (l *leases) due(now time.Time, age time.Duration, f func(key string, leases []wire.HeldLease)) (any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // Close may wait for renewals under way
		return false
	}
	l.sweep()
	for key, h := range l.byKey {
		var all []wire.HeldLease
		for id, one := range h.leases {
			if now.Sub(one.at) >= age {
				all = append(all, wire.HeldLease{ID: id, Release: h.release(id, one.limit), Slots: one.slots, Seen: one.seen})
			}
		}
		if len(all) > 0 {
			any = true
			f(key, all)
		}
	}
	if any {
		l.underWay.Add(1)
	}
	return any
}

// extend records the renewal of leases on keys at the server's instant now, except those released
// meanwhile. It had those, or knew of no Reset since it had them.
func (l *leases) extend(r *wire.Renewal, at time.Time, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range r.Keys {
		h := l.byKey[key]
		if h == nil {
			continue
		}
		for j := range r.Leases[i] {
			id := r.Leases[i][j].ID
			if renewed, held := h.leases[id]; held {
				renewed.at, renewed.seen = at, now
				h.leases[id] = renewed
			}
		}
	}
}

// lost returns a lost lease, which has been entered again or isn't renewed any more, and whose it is.
// It is zero if it isn't to be reported: it has been released meanwhile, or is being reset.
func (l *leases) lost(key string, id store.LeaseID, entered bool) (one lease, identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.byKey[key]
	if h == nil || h.resets > 0 {
		return lease{}, ""
	}
	one = h.leases[id]
	if !entered {
		l.remove(h, id)
	}
	return one, h.identity
}

// notHeld returns the charges that release those of the leases that aren't held. keyOf returns the
// server's key of a charge.
func (l *leases) notHeld(all []wire.HeldLease, keyOf func(*store.Charge) string) (releases []store.Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range all {
		c := &all[i].Release
		held := false
		if h := l.byKey[keyOf(c)]; h != nil {
			_, held = h.leases[all[i].ID]
		}
		if !held {
			releases = append(releases, *c)
		}
	}
	return releases
}
