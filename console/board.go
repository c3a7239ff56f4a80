package console

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

const (
	// mostLimits is how many limits of a limiter have figures of their own: a
	// WithLimitFunc may make names without end.
	mostLimits = 100
	// kept is how many denials are shown, and perSecond how many of a second's.
	kept, perSecond = 50, 10
)

// board keeps one limiter's figures for the page. It sees every event.
type board struct {
	limiter *stint.Limiter
	began   time.Time

	// A part is mostly used by one processor, which finds it in near again.
	parts [parts]part
	near  sync.Pool
	next  atomic.Uint32

	// second is the one that events are counted in: since began, or 0 while nothing
	// happens. It changes from one to the next while all parts are locked, so that each
	// part has counted all that came before, and none has counted what comes after.
	second atomic.Uint32
	limits sync.Map      // name to *limit
	noted  atomic.Uint64 // second and number of the denials noted in it

	mu       sync.Mutex // guards what comes seldom
	met      int        // how many limits there are
	denials  []denial   // the newest last
	failure  failure
	lost     failure // the last lease that was
	leases   int     // lost
	degraded failure
	policy   failure   // or success
	inForce  time.Time // since when the policy is
	updated  time.Time
}

// failure is the last error of a kind.
type failure struct {
	at   time.Time
	what string
	err  string
	path string
}

// denial is one of those shown live.
type denial struct {
	at                time.Time
	route, limit, key string
	remaining, cost   int64
	retryAfter        time.Duration
}

// limit keeps one limit's figures, except those that parts keep.
type limit struct {
	name    string
	dry     atomic.Uint64 // denials that it has only reported
	bans    atomic.Uint64
	held    atomic.Int64 // slots, of this process
	last    atomic.Int64 // slots of the key admitted last, of all processes
	quota   atomic.Int64 // of that key
	adapted atomic.Pointer[adapted]
}

// adapted is the history of an adaptive limit.
type adapted struct {
	to                gauge
	latency, baseline gauge // in µs
	reason            atomic.Value
}

func newBoard(l *stint.Limiter) *board {
	b := &board{limiter: l, began: time.Now()}
	for i := range b.parts {
		b.parts[i].figures = map[string]*figures{}
	}
	b.near.New = func() any { return &b.parts[b.next.Add(1)%parts] }
	return b
}

// second numbers the seconds since the board was made, from 1.
func second(at time.Duration) uint32 { return uint32(at/time.Second) + 1 }

// observe notes an event. It takes a pointer because an event is large.
func (b *board) observe(e *stint.Event) {
	p := b.near.Get().(*part)
	if e.Kind == stint.EventEnded {
		p.ended.Add(1)
		b.now()
		b.near.Put(p)
		b.slots(e, -1)
		return
	}
	p.mu.Lock()
	now := b.now()
	p.note(b, e, now)
	var made denial
	if e.Kind == stint.EventDenied {
		made = denialOf(e)
		p.remember(made)
	}
	p.mu.Unlock()
	b.near.Put(p)

	switch e.Kind {
	case stint.EventAdmitted:
		b.slots(e, 1)
	case stint.EventWaiting, stint.EventCanceled, stint.EventSettled, stint.EventPaced, stint.EventBlocked, stint.EventEmptyKey:
	case stint.EventDenied:
		b.denial(made, now)
	case stint.EventLimitChanged:
		b.adapt(e.Change, now)
	case stint.EventDryRunDenied:
		if l := b.limit(e.Decision.Limit); l != nil {
			l.dry.Add(1)
		}
	case stint.EventBanned:
		if l := b.limit(e.Decision.Limit); l != nil {
			l.bans.Add(1)
		}
	default:
		b.rare(e)
	}
}

// now returns the second that events are counted in. It starts the board's clock: until a
// second passes without an event, turn keeps the second, so that no event has to read a
// clock. Whoever counts without a lock calls it afterwards, so that turn can't miss it.
func (b *board) now() uint32 {
	if now := b.second.Load(); now != 0 {
		return now
	}
	now := second(time.Since(b.began))
	if !b.second.CompareAndSwap(0, now) {
		return b.now()
	}
	past := time.Since(b.began) % time.Second
	time.AfterFunc(time.Second-past, b.turn)
	return now
}

// turn ends the second. If nothing was noted in it, the board's clock stops.
func (b *board) turn() {
	now, noted := b.lock()
	b.second.Store(0) // before the ends are counted, so that one that comes meanwhile starts the clock
	for i := range b.parts {
		noted = b.parts[i].close(b, now) || noted
	}
	b.unlock()
	if noted {
		b.now()
	}
}

// lock locks all parts, so that what they have counted is of one instant: nothing is in
// flight in one part that has ended in another. It returns the second of that instant, and
// whether anything was noted. Most is counted before, since requests wait for this lock.
func (b *board) lock() (now uint32, noted bool) {
	for i := range b.parts {
		p := &b.parts[i]
		p.mu.Lock()
		noted = p.noted() || noted
		p.count(b)
		p.mu.Unlock()
	}
	for i := range b.parts {
		b.parts[i].mu.Lock()
	}
	if now = b.second.Load(); now == 0 {
		now = second(time.Since(b.began))
	}
	return now, noted
}

func (b *board) unlock() {
	for i := range b.parts {
		b.parts[i].mu.Unlock()
	}
}

// slots counts the slots that a request takes or releases.
func (b *board) slots(e *stint.Event, sign int64) {
	for i := range e.Decision.Limits {
		s := &e.Decision.Limits[i]
		if s.InFlight == 0 || !s.Allowed {
			continue
		}
		if l := b.limit(s.Name); l != nil {
			l.held.Add(sign * s.Cost)
			if sign > 0 {
				l.last.Store(s.InFlight)
				l.quota.Store(s.Capacity)
			}
		}
	}
}

// seen calls yield for each limit that events have named.
func (b *board) seen(yield func(*limit) bool) {
	for i := range b.parts {
		p := &b.parts[i]
		p.mu.Lock()
		p.count(b)
		p.mu.Unlock()
	}
	b.limits.Range(func(_, l any) bool { return yield(l.(*limit)) })
}

// limit returns what is known of a limit, or nil if there are too many limits.
func (b *board) limit(name string) *limit {
	if l, ok := b.limits.Load(name); ok {
		return l.(*limit)
	}
	return b.meet(name)
}

// meet adds a limit that is seen for the first time.
func (b *board) meet(name string) *limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.limits.Load(name); ok {
		return l.(*limit)
	}
	if b.met >= mostLimits || name == "" {
		return nil
	}
	l := &limit{name: name}
	b.limits.Store(name, l)
	b.met++
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
	a.baseline.set(c.Baseline.Microseconds(), now)
	a.reason.Store(c.Reason.String())
}

// denial keeps a denial to show it, at most perSecond in a second.
func (b *board) denial(r denial, now uint32) {
	if !b.mayNote(now) {
		return
	}
	r.key = strings.Clone(r.key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.denials) == kept {
		copy(b.denials, b.denials[1:])
		b.denials = b.denials[:kept-1]
	}
	b.denials = append(b.denials, r)
}

func denialOf(e *stint.Event) denial {
	r := denial{at: time.Now(), route: e.Route, limit: e.Decision.Limit, remaining: e.Decision.Remaining, retryAfter: e.Decision.RetryAfter}
	for i := range e.Decision.Limits {
		if s := &e.Decision.Limits[i]; s.Name == r.limit {
			r.key, r.cost = e.Key(i), s.Cost
		}
	}
	return r
}

// denialsOf returns the latest denials of a key, as stores see it, the newest first: those that
// parts remember, and those shown live.
func (b *board) denialsOf(key string) (all []denial) {
	for i := range b.parts {
		p := &b.parts[i]
		p.mu.Lock()
		if p.denied != nil {
			if of := &p.denied[maphash.String(seed, key)%remembered]; of.key == key {
				all = append(all, of.last[:min(of.n, len(of.last))]...)
			}
		}
		p.mu.Unlock()
	}
	b.mu.Lock()
	for _, r := range b.denials {
		if r.key == key {
			all = append(all, r)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(x, y denial) int { return y.at.Compare(x.at) })
	return slices.Compact(all) // what is shown live may be remembered, too
}

// mayNote reports whether a denial is one of the first perSecond in its second.
func (b *board) mayNote(now uint32) bool {
	for {
		was := b.noted.Load()
		next := uint64(now)<<32 | 1
		if uint32(was>>32) == now {
			if next = was + 1; uint32(next) > perSecond {
				return false
			}
		}
		if b.noted.CompareAndSwap(was, next) {
			return true
		}
	}
}

// rare notes an event that isn't about a decision.
func (b *board) rare(e *stint.Event) {
	f := failure{at: time.Now(), what: inWords(e.Kind), path: e.Path}
	if e.Err != nil {
		f.err = e.Err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case stint.EventStoreFailed, stint.EventSettleFailed, stint.EventKeyFailed, stint.EventLimitsFailed:
		b.failure = f
	case stint.EventLeaseLost:
		b.lost, b.leases = f, b.leases+1
		b.lost.what = e.Decision.Limit
	case stint.EventStoreDegraded:
		b.degraded = f
	case stint.EventPolicy:
		b.policy = f
		if e.Err == nil {
			b.inForce = f.at
		}
	case stint.EventUpdated:
		b.updated = f.at
	}
}
