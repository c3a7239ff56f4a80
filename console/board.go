package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/failover"
)

const (
	// mostLimits is how many limits of a limiter have figures of their own: a
	// WithLimitFunc may make names without end.
	mostLimits = 100
)

// board keeps one limiter's figures for the page. It sees every event.
type board struct {
	limiter   *stint.Limiter
	id, title string // in links, on the page
	began     time.Time

	// A part is mostly used by one processor, which finds it in near again.
	parts    [parts]part
	partPool sync.Pool
	nextPart atomic.Uint32

	// second is the one that events are counted in: since began, or 0 while nothing
	// happens. It changes from one to the next while all parts are locked, so that each
	// part has counted all that came before, and none has counted what comes after.
	second atomic.Uint32
	limits sync.Map // name to *limit
	keys   seenKeys // that were decided

	sourceFailed time.Time // when the source last failed to answer the page; under page.mu

	mu          sync.Mutex                   // guards what comes seldom
	limitCount  int                          // how many limits there are
	failures    map[stint.EventKind]*failure // the last of each kind
	leases      int                          // lost
	openSince   time.Time                    // since when the breaker of a failover is; zero: it is closed
	policy      failure                      // or success
	policySince time.Time                    // since when the policy is
	updated     time.Time
}

// failure is the last error of a kind.
type failure struct {
	at    time.Time
	what  string
	err   string
	path  string
	limit string
}

// denial is a denial by a limit or, in a dry run, one that it would have made.
type denial struct {
	at                        time.Time
	route, limit, key         string
	remaining, capacity, cost int64
	retryAfter                time.Duration
	dryRun                    bool
}

// limit keeps one limit's figures, except those that parts keep.
type limit struct {
	name          string
	dryRunDenials atomic.Uint64
	bans          atomic.Uint64
	reached       atomic.Uint64 // percentages of WithNearLimit, by keys
	held          atomic.Int64  // slots, of this process
	lastHeld      atomic.Int64  // slots of the key admitted last, of all processes
	capacity      atomic.Int64  // of that key
	adaptation    atomic.Pointer[adaptation]
	sourced       atomic.Pointer[sourcedRule]
}

// sourcedRule is the rule that a WithLimitSource returns for a key of the limit.
type sourcedRule struct {
	key      string     // as stores see it
	rule     stint.Rule // without a name: the source has none
	askedKey string     // the key that was asked for last, for which it may have none
	at       time.Time  // when
}

// adaptation is the history of an adaptive limit.
type adaptation struct {
	to                gauge
	latency, baseline gauge // in µs
	reason            atomic.Value
}

func newBoard(l *stint.Limiter) *board {
	b := &board{limiter: l, began: time.Now(), failures: map[stint.EventKind]*failure{}}
	b.keys.begin()
	for i := range b.parts {
		b.parts[i].figures = map[string]*figures{}
	}
	b.partPool.New = func() any { return &b.parts[b.nextPart.Add(1)%parts] }
	return b
}

// second numbers the seconds since the board was made, from 1.
func second(at time.Duration) uint32 { return uint32(at/time.Second) + 1 }

// observe records an event. It takes a pointer because an event is large.
func (b *board) observe(e *stint.Event) {
	p := b.partPool.Get().(*part)
	if e.Kind == stint.EventEnded {
		p.ended.Add(1)
		b.currentSecond()
		b.partPool.Put(p)
		b.countSlots(e, -1)
		return
	}
	p.mu.Lock()
	now := b.currentSecond()
	p.record(b, e, now)
	if denies(e) {
		p.recordDenial(e)
	}
	p.mu.Unlock()
	b.partPool.Put(p)

	switch e.Kind {
	case stint.EventAdmitted:
		b.countSlots(e, 1)
	case stint.EventWaiting, stint.EventCanceled, stint.EventSettled, stint.EventPaced, stint.EventBlocked, stint.EventEmptyKey, stint.EventDenied:
	case stint.EventExtended:
		if e.Err != nil && !errors.Is(e.Err, context.Canceled) {
			b.recordRare(e)
		}
	case stint.EventLimitChanged:
		b.recordChange(e.Change, now)
	case stint.EventDryRunDenied:
		if l := b.limit(e.Decision.Limit); l != nil {
			l.dryRunDenials.Add(1)
		}
	case stint.EventNearLimit:
		if l := b.limit(e.Decision.Limit); l != nil {
			l.reached.Add(1)
		}
	case stint.EventBanned:
		if l := b.limit(e.Decision.Limit); l != nil {
			l.bans.Add(1)
		}
	default:
		b.recordRare(e)
	}
}

// denies reports whether e is the denial of a request or of a raise.
func denies(e *stint.Event) bool {
	switch e.Kind {
	case stint.EventDenied, stint.EventDryRunDenied:
		return true
	case stint.EventExtended:
		return e.Err == nil && !e.Decision.Allowed
	}
	return false
}

// currentSecond returns the second that events are counted in. It starts the board's clock: until a
// second passes without an event, endSecond sets the second, so that no event has to read a
// clock. Code that counts without a lock calls it afterwards, so that endSecond can't miss the event.
func (b *board) currentSecond() uint32 {
	if now := b.second.Load(); now != 0 {
		return now
	}
	now := second(time.Since(b.began))
	if !b.second.CompareAndSwap(0, now) {
		return b.currentSecond()
	}
	past := time.Since(b.began) % time.Second
	time.AfterFunc(time.Second-past, b.endSecond)
	return now
}

// endSecond ends the second. If no event was recorded in it, the board's clock stops.
func (b *board) endSecond() {
	now, recorded := b.lock()
	b.second.Store(0) // before the ends are counted, so that one that comes meanwhile starts the clock
	for i := range b.parts {
		recorded = b.parts[i].closeSecond(b, now) || recorded
	}
	b.unlock()
	if recorded {
		b.currentSecond()
	}
}

// lock locks all parts, so that their counts are of one instant: no request is in
// flight in one part and ended in another. It returns the second of that instant, and
// whether an event was recorded. It counts most events before, since requests wait for this lock.
func (b *board) lock() (now uint32, recorded bool) {
	for i := range b.parts {
		p := &b.parts[i]
		p.mu.Lock()
		recorded = p.hasEvents() || recorded
		p.countBatch(b)
		p.mu.Unlock()
	}
	for i := range b.parts {
		b.parts[i].mu.Lock()
	}
	if now = b.second.Load(); now == 0 {
		now = second(time.Since(b.began))
	}
	return now, recorded
}

func (b *board) unlock() {
	for i := range b.parts {
		b.parts[i].mu.Unlock()
	}
}

// countSlots counts the slots that a request takes or releases.
func (b *board) countSlots(e *stint.Event, sign int64) {
	for i := range e.Decision.Limits {
		s := &e.Decision.Limits[i]
		if s.InFlight == 0 || !s.Allowed {
			continue
		}
		if l := b.limit(s.Name); l != nil {
			l.held.Add(sign * s.Cost)
			if sign > 0 {
				l.lastHeld.Store(s.InFlight)
				l.capacity.Store(s.Capacity)
			}
		}
	}
}

// eachLimit calls yield for each limit that events have named.
func (b *board) eachLimit(yield func(*limit) bool) {
	for i := range b.parts {
		p := &b.parts[i]
		p.mu.Lock()
		p.countBatch(b)
		p.mu.Unlock()
	}
	b.limits.Range(func(_, l any) bool { return yield(l.(*limit)) })
}

// limit returns the figures of a limit, or nil if there are too many limits.
func (b *board) limit(name string) *limit {
	if l, ok := b.limits.Load(name); ok {
		return l.(*limit)
	}
	return b.addLimit(name)
}

// addLimit adds a limit that is seen for the first time.
func (b *board) addLimit(name string) *limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.limits.Load(name); ok {
		return l.(*limit)
	}
	if b.limitCount >= mostLimits || name == "" {
		return nil
	}
	l := &limit{name: name}
	b.limits.Store(name, l)
	b.limitCount++
	return l
}

func (b *board) recordChange(c *stint.LimitChange, now uint32) {
	if c == nil {
		return
	}
	l := b.limit(c.Limit)
	if l == nil {
		return
	}
	a := l.adaptation.Load()
	if a == nil {
		a = new(adaptation)
		a.to.set(c.From, max(now, 2)-1)
		if !l.adaptation.CompareAndSwap(nil, a) {
			a = l.adaptation.Load()
		}
	}
	a.to.set(c.To, now)
	a.latency.set(c.Latency.Microseconds(), now)
	a.baseline.set(c.Baseline.Microseconds(), now)
	a.reason.Store(c.Reason.String())
}

// denialsOf returns the latest denials of a key, as stores see it, the newest first.
func (b *board) denialsOf(key string) (all []denial) {
	for i := range b.parts {
		p := &b.parts[i]
		p.mu.Lock()
		for _, d := range p.placesFor(key) {
			if d.n > 0 && d.key == key {
				all = append(all, d.last[:min(d.n, len(d.last))]...)
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y denial) int { return y.at.Compare(x.at) })
	return all
}

// lastDenial returns the latest denial of a key by a limit, if it is remembered.
func (b *board) lastDenial(key, limit string) (denial, bool) {
	for _, r := range b.denialsOf(key) {
		if r.limit == limit {
			return r, true
		}
	}
	return denial{}, false
}

// isAnswer reports whether an error is an answer to the caller, such as 403 for a key without a
// plan, and not a failure.
func isAnswer(e *stint.Event) bool {
	if e.Kind != stint.EventKeyFailed && e.Kind != stint.EventLimitsFailed {
		return false
	}
	var s interface{ StatusCode() int }
	return errors.As(e.Err, &s) && s.StatusCode() < http.StatusInternalServerError
}

// recordRare records an event that isn't about a decision.
func (b *board) recordRare(e *stint.Event) {
	f := failure{at: time.Now(), what: failureText[e.Kind], path: e.Path, limit: e.Decision.Limit}
	if e.Err != nil {
		f.err = e.Err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case stint.EventLeaseLost:
		b.leases++
		b.failures[e.Kind] = &f
	case stint.EventExtended:
		f.what = failureText[stint.EventStoreFailed]
		b.failures[stint.EventStoreFailed] = &f
	case stint.EventStoreFailed, stint.EventSettleFailed, stint.EventKeyFailed, stint.EventLimitsFailed:
		if !isAnswer(e) {
			b.failures[e.Kind] = &f
		}
	case stint.EventSourceFailed:
		if e.Err == nil { // it answers again
			delete(b.failures, e.Kind)
		} else {
			b.failures[e.Kind] = &f
		}
	case stint.EventStoreDegraded:
		switch {
		case e.Err == nil: // earlier failures are over
			b.openSince = time.Time{}
			delete(b.failures, e.Kind)
		case !errors.Is(e.Err, failover.ErrOpen):
			b.failures[e.Kind] = &f
		case b.openSince.IsZero():
			b.openSince = f.at
		}
	case stint.EventPolicy:
		b.policy = f
		if e.Err == nil {
			b.policySince = f.at
		}
	case stint.EventUpdated:
		b.updated = f.at
	}
}

// failureText describes kinds of failures on the page.
var failureText = map[stint.EventKind]string{
	stint.EventStoreFailed:   "the store failed to decide",
	stint.EventSettleFailed:  "the store failed to settle a charge, or to release a slot",
	stint.EventKeyFailed:     "a key function failed",
	stint.EventLimitsFailed:  "limits, or a cost, could not be determined",
	stint.EventSourceFailed:  "limits could not be loaded: requests get earlier or default limits, or what the failure policy says",
	stint.EventStoreDegraded: "a call of the primary store failed",
	stint.EventLeaseLost:     "leases lost",
}
