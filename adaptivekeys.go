package stint

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/store"
)

// adaptives holds a family's limits of this process by name, as a store would,
// so that what Update or a plan's next load makes of a limit goes on where the
// old one stood.
type adaptives struct {
	mu    sync.Mutex
	names map[string]*adaptiveKeys
	made  uint64 // rules
}

// adaptiveKeys holds an AdaptiveConcurrency's limit for each key.
//
// Keys with requests in flight are kept, and of the idle ones up to
// adaptiveIdle: what is kept is bounded by that and by the requests in flight.
// An idle key carries only what it has learnt, so forgetting it can't let more
// than the start value pass.
type adaptiveKeys struct {
	mu   sync.Mutex
	keys map[string]*adaptiveKey
	idle list.List // of *adaptiveKey, used last first
	born time.Time
}

// adaptiveIdle is how many keys without a request in flight are remembered.
const adaptiveIdle = 10_000

// adaptiveKey is one key's limit.
type adaptiveKey struct {
	key      string
	rule     *adaptiveRule
	limit    *adaptive.Limit
	shown    *store.Limit // says Current as its units
	inFlight int64
	place    *list.Element // in idle
}

// adaptiveRule is what an entry knows of its AdaptiveConcurrency. A key goes by
// the newest that it has met: requests that began before an Update are decided
// by what is in force, and don't turn it back.
type adaptiveRule struct {
	made  uint64
	keys  *adaptiveKeys
	cfg   adaptive.Config
	start *store.Limit // says cfg.Start as its units
}

// rule makes the rule of a limit.
func (a *adaptives) rule(l *store.Limit, cfg adaptive.Config) *adaptiveRule {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.names[l.Name()]
	if k == nil {
		k = &adaptiveKeys{keys: map[string]*adaptiveKey{}, born: time.Now()}
		if a.names == nil {
			a.names = map[string]*adaptiveKeys{}
		}
		a.names[l.Name()] = k
	}
	a.made++
	return &adaptiveRule{made: a.made, keys: k, cfg: cfg, start: showing(l, cfg.Start)}
}

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
	k := a.keys[key]
	if k == nil {
		if cost == 0 {
			return store.Result{OK: true, Remaining: r.cfg.Start}, adaptiveSlot{reason: ReasonStart}, r.start
		}
		k = &adaptiveKey{key: key, rule: r, limit: adaptive.New(r.cfg, rand.Uint64()), shown: r.start}
	} else if r.made > k.rule.made {
		if k.rule = r; k.limit.Config() != r.cfg {
			k.limit = k.limit.Follow(r.cfg, rand.Uint64())
			k.show()
		}
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
		a.keys[key] = k
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

// show brings shown up to date.
func (k *adaptiveKey) show() {
	if n := k.limit.Current(); n != k.shown.Spec().Units {
		k.shown = showing(k.shown, n)
	}
}

// adaptiveSlot is what a charge holds of a limit, and where the limit stood
// when it was decided.
type adaptiveSlot struct {
	keys     *adaptiveKeys
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
	if k.inFlight == 0 && a.keys[k.key] == k { // else Reset has forgotten it
		k.place = a.idle.PushFront(k)
		if a.idle.Len() > adaptiveIdle {
			last := a.idle.Remove(a.idle.Back()).(*adaptiveKey)
			delete(a.keys, last.key)
		}
	}
	return change
}

// reset forgets a key. What is in flight is counted no longer, and its release
// frees nothing.
func (a *adaptiveKeys) reset(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.keys[key]; k != nil {
		delete(a.keys, key)
		if k.place != nil {
			a.idle.Remove(k.place)
		}
	}
}
