package stint

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/store"
)

// adaptives holds a family's limits of this process by name and key, as a store
// would, so that what Update or a plan's next load makes of a limit goes on where
// the old one stood.
//
// Keys with requests in flight are kept, and of the idle ones up to
// adaptiveIdle, whatever their limits: what is kept is bounded by that and by the
// requests in flight, also where every tenant has limits of its own. An idle key
// carries only what it has learnt, so forgetting it can't let more than the start
// value pass.
type adaptives struct {
	mu   sync.Mutex
	keys map[adaptiveID]*adaptiveKey
	idle list.List // of *adaptiveKey, used last first
	born time.Time // of the first rule: samples are timed by it
	made uint64    // rules
}

// adaptiveIdle is how many keys without a request in flight are remembered.
const adaptiveIdle = 10_000

// adaptiveID says which limit, and for whom.
type adaptiveID struct{ name, key string }

// adaptiveKey is one key's limit.
type adaptiveKey struct {
	id       adaptiveID
	rule     *adaptiveRule
	limit    *adaptive.Limit
	shown    *store.Limit // says Current as its units
	inFlight int64
	place    *list.Element // in idle
	gone     bool          // nothing is to be remembered of it
}

// adaptiveRule is what an entry knows of its AdaptiveConcurrency. A key goes by
// the newest that it has met: requests that began before an Update are decided
// by what is in force, and don't turn it back.
type adaptiveRule struct {
	made  uint64
	keys  *adaptives
	cfg   adaptive.Config
	start *store.Limit // says cfg.Start as its units
}

// rule makes the rule of a limit.
func (a *adaptives) rule(l *store.Limit, cfg adaptive.Config) *adaptiveRule {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys == nil {
		a.keys, a.born = map[adaptiveID]*adaptiveKey{}, time.Now()
	}
	a.made++
	return &adaptiveRule{made: a.made, keys: a, cfg: cfg, start: showing(l, cfg.Start)}
}

// id is where a key's limit is kept.
func (r *adaptiveRule) id(key string) adaptiveID { return adaptiveID{r.start.Name(), key} }

// showing is a limit with n units under l's name. Decisions and fields read a
// limit's number from the store's kind of limit.
func showing(l *store.Limit, n int64) *store.Limit {
	spec := l.Spec()
	spec.Units = n
	s, err := store.NewLimit(spec)
	if err != nil {
		return l // can't be: l itself has been made with a number as good
	}
	return s
}

// take decides a charge by the limit of the moment and makes it if it fits.
func (r *adaptiveRule) take(key string, cost int64) (res store.Result, s adaptiveSlot, shown *store.Limit) {
	a := r.keys
	a.mu.Lock()
	defer a.mu.Unlock()
	id := r.id(key)
	k := a.keys[id]
	if k == nil {
		if cost == 0 {
			return store.Result{OK: true, Remaining: r.cfg.Start}, adaptiveSlot{reason: ReasonStart}, r.start
		}
		k = &adaptiveKey{id: id, rule: r, limit: adaptive.New(r.cfg, rand.Uint64()), shown: r.start}
	} else {
		k.meet(r)
	}
	limit := k.limit.Current()
	res.OK = true
	switch {
	case cost == 0:
	case cost > k.rule.cfg.Max:
		res.OK, res.RetryAfter = false, Never
	case k.inFlight > 0 && k.inFlight+cost > limit:
		res.OK = false
	default:
		a.keys[id] = k
		if k.place != nil {
			a.idle.Remove(k.place)
			k.place = nil
		}
		k.inFlight += cost
		s.held = cost
	}
	res.Remaining = max(0, limit-k.inFlight)
	s.keys, s.key, s.inFlight, s.reason = a, k, k.inFlight, Reason(k.limit.Reason())
	return res, s, k.shown
}

// meet has the key go by r if that is newer, and reports whether it is.
func (k *adaptiveKey) meet(r *adaptiveRule) bool {
	if r.made <= k.rule.made {
		return false
	}
	k.rule, k.gone = r, false
	if k.limit.Config() != r.cfg {
		k.limit = k.limit.Follow(r.cfg, rand.Uint64())
		k.show()
	}
	return true
}

// meet is for a call that stands behind others, and doesn't take: the key may go
// by a newer rule for it, and its line then has to ask. It returns the limit of
// the moment.
func (r *adaptiveRule) meet(key string) (limit int64, newer bool) {
	r.keys.mu.Lock()
	defer r.keys.mu.Unlock()
	k := r.keys.keys[r.id(key)]
	if k == nil {
		return r.cfg.Start, false
	}
	newer = k.meet(r)
	return k.limit.Current(), newer
}

// show brings shown up to date.
func (k *adaptiveKey) show() {
	if n := k.limit.Current(); n != k.shown.Spec().Units {
		k.shown = showing(k.shown, n)
	}
}

// adaptiveSlot is what a charge holds of a limit, and where the limit stood
// when it was decided.
type adaptiveSlot struct {
	keys     *adaptives
	key      *adaptiveKey
	held     int64 // units
	inFlight int64
	reason   Reason
}

// free gives back what is held, with a sample or without, and says what has
// changed by it.
func (s *adaptiveSlot) free(sample *adaptive.Sample) *LimitChange {
	if s.held == 0 {
		return nil
	}
	a, k := s.keys, s.key
	a.mu.Lock()
	defer a.mu.Unlock()
	k.inFlight -= s.held
	s.held = 0
	var change *LimitChange
	if sample != nil {
		before := k.limit.Current()
		sample.InFlight = s.inFlight
		if k.limit.Add(time.Since(a.born), *sample) {
			k.show()
			change = &LimitChange{
				Limit: k.shown.Name(), From: before, To: k.limit.Current(), Reason: Reason(k.limit.Reason()),
				InFlight: k.inFlight, Latency: k.limit.Latency(), Baseline: k.limit.Baseline(),
			}
		}
	}
	if k.inFlight == 0 && a.keys[k.id] == k { // else Reset has forgotten it
		a.rest(k)
	}
	return change
}

// rest has a key with nothing in flight remembered for a while.
func (a *adaptives) rest(k *adaptiveKey) {
	if k.gone {
		delete(a.keys, k.id)
		return
	}
	k.place = a.idle.PushFront(k)
	if a.idle.Len() > adaptiveIdle {
		a.forget(a.idle.Back().Value.(*adaptiveKey))
	}
}

func (a *adaptives) forget(k *adaptiveKey) {
	delete(a.keys, k.id)
	if k.place != nil {
		a.idle.Remove(k.place)
	}
}

// reset forgets a key. What is in flight is counted no longer, and its release
// frees nothing.
func (r *adaptiveRule) reset(key string) {
	a := r.keys
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.keys[r.id(key)]; k != nil {
		a.forget(k)
	}
}

// retire forgets the keys of limits that are gone: those in use when they no
// longer are.
func (a *adaptives) retire(gone map[string]bool) {
	if len(gone) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.keys {
		if !gone[k.id.name] {
			continue
		}
		if k.gone = true; k.place != nil {
			a.forget(k)
		}
	}
}
