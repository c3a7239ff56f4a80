package adaptive

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Keys holds the limits of this process by name and key, as a store does, so that a new
// Rule continues at the value of the one before. It is safe for concurrent use.
//
// It keeps keys with slots in use, and up to mostIdle idle ones of all limits together.
// So memory is bounded by that and by the slots in use, even if every tenant has its
// own limits. An idle key holds only what it has learnt: if it is forgotten, no more
// than the start value can pass.
type Keys struct {
	freed func(limit, key string)

	mu        sync.Mutex
	keys      map[limitKey]*entry
	idle      list.List // of *entry, most recently used first
	leases    map[store.LeaseID]lease
	lastLease uint64    // newest lease
	rules     uint64    // number of rules
	start     time.Time // the origin of the samples' times
}

// mostIdle is how many keys without a slot in use are remembered.
const mostIdle = 10_000

// limitKey identifies a limit of a key.
type limitKey struct{ limit, key string }

// entry is one key's limit.
type entry struct {
	limitKey
	rule        *Rule
	limit       *Limit
	inFlight    int64
	idleElement *list.Element // in Keys.idle, or nil
	retired     bool          // an Update has removed the limit: don't remember the key when idle
}

// lease is a charge's slots.
type lease struct {
	entry    *entry
	units    int64
	inFlight int64 // when it was taken, including itself
}

// Rule is the configuration of a limit of this process. A key follows the newest rule
// that was used for it. Requests that began under an older rule are decided by the newer one and
// don't bring the old one back.
type Rule struct {
	number uint64
	keys   *Keys
	name   string
	cfg    Config
}

// NewKeys returns an empty table. It calls freed, holding no lock, when slots of a
// limit and key have come free or may have.
func NewKeys(freed func(limit, key string)) *Keys {
	return &Keys{freed: freed, keys: map[limitKey]*entry{}, leases: map[store.LeaseID]lease{}, start: time.Now()}
}

// Limit returns a copy of l that a Store over k decides, following cfg.
func (k *Keys) Limit(l *store.Limit, cfg Config) *store.Limit {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules++
	return inside.DecidedBy(l, &Rule{number: k.rules, keys: k, name: l.Name(), cfg: cfg})
}

// RuleOf returns the rule of a limit of this process, or nil for any other limit.
func RuleOf(l *store.Limit) *Rule {
	r, _ := inside.Decider(l).(*Rule)
	return r
}

// Config returns the rule's configuration.
func (r *Rule) Config() Config { return r.cfg }

// SlotsFor returns the present limit of a key. It also has the key follow this rule if this is the newest,
// and then wakes the calls that wait for its slots: a call that waits in a line asks no store, which would
// do that.
func (r *Rule) SlotsFor(key string) int64 {
	limit, newer := r.slotsFor(key)
	if newer {
		r.keys.freed(r.name, key)
	}
	return limit
}

func (r *Rule) slotsFor(key string) (limit int64, newer bool) {
	r.keys.mu.Lock()
	defer r.keys.mu.Unlock()
	e := r.keys.keys[limitKey{r.name, key}]
	if e == nil {
		return r.cfg.Start, false
	}
	newer = e.follow(r)
	return e.limit.Current(), newer
}

// follow makes the key follow r if r is newer, and reports whether it is.
func (e *entry) follow(r *Rule) bool {
	if r.number <= e.rule.number {
		return false
	}
	e.rule, e.retired = r, false
	if e.limit.Config() != r.cfg {
		e.limit = e.limit.Follow(r.cfg, rand.Uint64())
	}
	return true
}

// decide decides a charge by the present limit, and makes it if it fits. The caller
// holds k.mu.
func (k *Keys) decide(r *Rule, c *store.Charge) store.Result {
	id := limitKey{r.name, c.Key}
	e := k.keys[id]
	switch {
	case e != nil:
		e.follow(r)
	case c.Cost == 0:
		return withCapacity(store.Result{OK: true}, r.cfg.Start, 0, Start)
	default:
		e = &entry{limitKey: id, rule: r, limit: New(r.cfg, rand.Uint64())}
	}
	res := store.Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > e.rule.cfg.Max:
		res.OK, res.RetryAfter = false, store.Never
	case e.inFlight > 0 && e.inFlight+c.Cost > e.limit.Current():
		res.OK = false
	default:
		res.Receipt = store.Receipt{Cost: c.Cost, Lease: k.grant(e, c.Cost)}
	}
	return withCapacity(res, e.limit.Current(), e.inFlight, e.limit.Reason())
}

// grant grants slots of a key. The caller holds k.mu.
func (k *Keys) grant(e *entry, units int64) store.LeaseID {
	if e.idleElement != nil {
		k.idle.Remove(e.idleElement)
		e.idleElement = nil
	}
	k.keys[e.limitKey] = e
	e.inFlight += units
	k.lastLease++
	id := store.Lease(k.lastLease)
	k.leases[id] = lease{e, units, e.inFlight}
	return id
}

// release gives back the slots of a lease and reports whether it held any; a second
// release finds none. The caller holds k.mu.
func (k *Keys) release(id store.LeaseID) (l lease, held bool) {
	l, held = k.leases[id]
	if !held {
		return l, false
	}
	delete(k.leases, id)
	l.entry.inFlight -= l.units
	return l, true
}

// keepIdle remembers a key without slots in use for a while. The caller holds k.mu.
func (k *Keys) keepIdle(e *entry) {
	switch {
	case e.inFlight > 0 || k.keys[e.limitKey] != e: // in use, or forgotten by Reset
		return
	case e.retired:
		delete(k.keys, e.limitKey)
		return
	}
	e.idleElement = k.idle.PushFront(e)
	if k.idle.Len() > mostIdle {
		k.forget(k.idle.Back().Value.(*entry))
	}
}

func (k *Keys) forget(e *entry) {
	delete(k.keys, e.limitKey)
	if e.idleElement != nil {
		k.idle.Remove(e.idleElement)
		e.idleElement = nil
	}
}

// reset forgets a key. Slots in use no longer count, and releasing them frees nothing.
func (r *Rule) reset(key string) (found bool) {
	k := r.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.keys[limitKey{r.name, key}]
	if e != nil {
		k.forget(e)
	}
	return e != nil
}

// Retire forgets the keys of limits that an Update has removed. A key in use is forgotten when its slots
// are released.
func (k *Keys) Retire(retired map[string]bool) {
	if len(retired) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.keys {
		if !retired[e.limitKey.limit] {
			continue
		}
		if e.retired = true; e.idleElement != nil {
			k.forget(e)
		}
	}
}

// Len returns the number of keys remembered.
func (k *Keys) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys)
}
