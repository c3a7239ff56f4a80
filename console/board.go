package console

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/topkeys"
)

const (
	// parts is into how many parts counts are split by key, so that requests with
	// different keys rarely wait for each other.
	parts = 4
	// held is how many keys a part knows, of those admitted and of those refused.
	held = 64
	// mostLimits is how many limits of a limiter have figures of their own: a
	// WithLimitFunc may make names without end.
	mostLimits = 100
	// kept is how many refusals are shown, and perSecond how many of a second's.
	kept, perSecond = 50, 10
)

// board is what the page knows of one limiter. It sees every event.
type board struct {
	limiter *stint.Limiter
	began   time.Time
	seed    maphash.Seed

	parts             [parts]part
	waiting, inFlight gauge
	limits            atomic.Pointer[map[string]*limit]

	mu       sync.Mutex // guards what comes seldom
	refusals []refusal  // the newest last
	noted    struct{ second, n uint32 }
	failure  failure
	degraded failure
	policy   failure
	updated  time.Time
}

// part is what some of the keys have come to.
type part struct {
	mu       sync.Mutex
	ring     ring
	outcomes [32]uint64 // by kind of event
	store    durations
	_        [64]byte
}

// failure is the last error of a kind.
type failure struct {
	at   time.Time
	what string
	err  string
}

// refusal is one of those shown live.
type refusal struct {
	at                time.Time
	route, limit, key string
	remaining         int64
	retryAfter        time.Duration
}

// limit is what the page knows of one limit.
type limit struct {
	name    string
	bound   atomic.Uint64 // refusals that were its
	dry     atomic.Uint64 // refusals that it has only reported
	bans    atomic.Uint64
	held    gauge // slots, of this process
	fleet   atomic.Int64
	quota   atomic.Int64
	parts   [parts]limitPart
	adapted atomic.Pointer[adapted]
}

type limitPart struct {
	mu                sync.Mutex
	ring              ring
	allowed, refused  uint64
	admitted, stopped *topkeys.Recent
}

// adapted is where an adaptive limit has been.
type adapted struct {
	to, latency gauge // latency in µs
	reason      atomic.Value
}

func newBoard(l *stint.Limiter) *board {
	b := &board{limiter: l, began: time.Now(), seed: maphash.MakeSeed()}
	b.limits.Store(&map[string]*limit{})
	return b
}

// second is what rings go by; it is never 0.
func second(at time.Duration) uint32 { return uint32(at/time.Second) + 1 }

func (b *board) observe(e stint.Event) {
	at := time.Since(b.began)
	now := second(at)
	switch e.Kind {
	case stint.EventEnded:
		b.inFlight.add(-1, now)
		b.slots(&e, -1, now)
		return
	case stint.EventWaiting:
		b.waiting.add(1, now)
		return
	case stint.EventLimitChanged:
		b.adapt(e.Change, now)
		return
	}
	if e.EndsWait {
		b.waiting.add(-1, now)
	}
	p := &b.parts[b.part(e.Key(0))]
	p.mu.Lock()
	p.outcomes[e.Kind%32]++
	switch e.Kind {
	case stint.EventAdmitted:
		p.ring.add(allowed, now)
		p.store.add(e.StoreTook, now)
	case stint.EventDenied:
		p.ring.add(refused, now)
		p.store.add(e.StoreTook, now)
	case stint.EventBlocked, stint.EventEmptyKey:
		p.ring.add(refused, now)
	}
	p.mu.Unlock()
	switch e.Kind {
	case stint.EventAdmitted:
		b.inFlight.add(1, now)
		b.slots(&e, 1, now)
		b.count(&e, at)
	case stint.EventDenied:
		b.count(&e, at)
		if l := b.limit(e.Decision.Limit); l != nil {
			l.bound.Add(1)
		}
		b.refusal(&e, now)
	case stint.EventDryRunDenied:
		if l := b.limit(e.Decision.Limit); l != nil {
			l.dry.Add(1)
		}
	case stint.EventBanned:
		for i := range e.Decision.Limits {
			if l := b.limit(e.Decision.Limits[i].Name); l != nil && !e.Decision.Limits[i].Allowed {
				l.bans.Add(1)
			}
		}
	case stint.EventSettled, stint.EventPaced, stint.EventCanceled, stint.EventBlocked, stint.EventEmptyKey:
	default:
		b.rare(&e)
	}
}

// count adds a decision to the limits that took part in it: all of those that let it
// pass, and, where it was refused, those that refused.
func (b *board) count(e *stint.Event, at time.Duration) {
	now := second(at)
	for i := range e.Decision.Limits {
		s := &e.Decision.Limits[i]
		if s.Allowed != e.Decision.Allowed || s.DryRun && !s.Allowed {
			continue
		}
		l := b.limit(s.Name)
		if l == nil {
			continue
		}
		key := e.Key(i)
		p := &l.parts[b.part(key)]
		p.mu.Lock()
		if s.Allowed {
			p.allowed++
			p.ring.add(allowed, now)
			p.admitted.Add(key, at)
		} else {
			p.refused++
			p.ring.add(refused, now)
			p.stopped.Add(key, at)
		}
		p.mu.Unlock()
	}
}

// slots counts what is held of the limits that have slots.
func (b *board) slots(e *stint.Event, sign int64, now uint32) {
	for i := range e.Decision.Limits {
		s := &e.Decision.Limits[i]
		if s.InFlight == 0 || !s.Allowed {
			continue
		}
		if l := b.limit(s.Name); l != nil {
			l.held.add(sign*s.Cost, now)
			l.fleet.Store(s.InFlight)
			l.quota.Store(s.Quota)
		}
	}
}

func (b *board) part(key string) uint64 { return maphash.String(b.seed, key) % parts }

// limit returns the figures of a limit; nil where there are too many.
func (b *board) limit(name string) *limit {
	if l := (*b.limits.Load())[name]; l != nil {
		return l
	}
	return b.meet(name)
}

// meet makes the figures of a limit that is seen for the first time.
func (b *board) meet(name string) *limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := *b.limits.Load()
	if l := before[name]; l != nil || len(before) >= mostLimits || name == "" {
		return l
	}
	l := &limit{name: name}
	for i := range l.parts {
		l.parts[i].admitted = topkeys.NewRecent(held, span*time.Second)
		l.parts[i].stopped = topkeys.NewRecent(held, span*time.Second)
	}
	after := make(map[string]*limit, len(before)+1)
	for n, o := range before {
		after[n] = o
	}
	after[name] = l
	b.limits.Store(&after)
	return l
}

func (b *board) adapt(c *stint.LimitChange, now uint32) {
	if c == nil {
		return
	}
	l := b.limit(c.Limit)
	if l == nil {
		return
	}
	a := l.adapted.Load()
	if a == nil {
		a = new(adapted)
		a.to.set(c.From, max(now, 2)-1)
		if !l.adapted.CompareAndSwap(nil, a) {
			a = l.adapted.Load()
		}
	}
	a.to.set(c.To, now)
	a.latency.set(c.Latency.Microseconds(), now)
	a.reason.Store(c.Reason.String())
}

// refusal keeps one to show. Of a flood it keeps some of each second.
func (b *board) refusal(e *stint.Event, now uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noted.second != now {
		b.noted.second, b.noted.n = now, 0
	}
	if b.noted.n++; b.noted.n > perSecond {
		return
	}
	r := refusal{at: time.Now(), route: e.Route, limit: e.Decision.Limit, remaining: e.Decision.Remaining, retryAfter: e.Decision.RetryAfter}
	for i := range e.Decision.Limits {
		if e.Decision.Limits[i].Name == r.limit {
			r.key = strings.Clone(e.Key(i))
		}
	}
	if len(b.refusals) == kept {
		copy(b.refusals, b.refusals[1:])
		b.refusals = b.refusals[:kept-1]
	}
	b.refusals = append(b.refusals, r)
}

// rare notes what is no decision.
func (b *board) rare(e *stint.Event) {
	f := failure{at: time.Now(), what: e.Kind.String()}
	if e.Err != nil {
		f.err = e.Err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case stint.EventStoreFailed, stint.EventSettleFailed, stint.EventKeyFailed, stint.EventLimitsFailed:
		b.failure = f
	case stint.EventStoreDegraded:
		b.degraded = f
	case stint.EventPolicy:
		b.policy = f
	case stint.EventUpdated:
		b.updated = f.at
	}
}
