// Package waiting holds the lines of those who wait, in one process: who is next,
// and what goes back to the store when somebody leaves. There are lines for turns
// ([Turns]) and for slots ([Slots]); in both, waiters have a [Rank].
//
// A turn is an instant that a rate has reserved in its future. Requests of one
// kind (the same limits, keys and costs) are interchangeable, so what they have
// reserved isn't theirs: a [Turns] keeps the waiters of a kind and what they have
// reserved as two sequences side by side, and the first waiter gets what comes
// first. Whoever leaves therefore only leaves the sequence of waiters. What
// nobody stands for any more, the vacancies, is always what was reserved last,
// and the store takes that back whole: nothing stands behind it.
//
// A vacancy goes to the next newcomer of its kind, or back to the store. See
// settle.go for what has to be true for the latter.
package waiting

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/store"
)

// Turns is the lines of who waits for turns. The zero value is ready, and safe
// for concurrent use.
type Turns struct {
	vacant  atomic.Int64 // vacancies, in lines and on their way back
	waiting atomic.Int64
	mu      sync.Mutex
	lines   map[string]*line
	buckets map[bucketKey]*bucket
}

// Settle settles charges in the store, whatever has become of ctx, and returns
// the results, or nil if it has failed or its outcome isn't known.
type Settle func(ctx context.Context, charges []store.Charge) []store.Result

// Part is the charge of one limit in a call that waits.
type Part struct {
	Charge store.Charge // with the receipt, where the charge has been made
	Wait   time.Duration
	Most   time.Duration // how long it may wait, in Claim
	Index  int           // the caller's
}

// Vacant reports whether somebody has left a turn that nobody has taken yet. It
// is one atomic load; without, no call has to look at lines.
func (ts *Turns) Vacant() bool { return ts.vacant.Load() > 0 }

// Waiting reports whether anybody waits for a turn. It is one atomic load.
func (ts *Turns) Waiting() bool { return ts.waiting.Load() > 0 }

// Queued is how many wait in the line of a kind.
func (ts *Turns) Queued(parts []Part) int {
	kind := kindOf(parts)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if l := ts.lines[kind]; l != nil {
		return l.waiters.n
	}
	return 0
}

// Lines is how many lines there are.
func (ts *Turns) Lines() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.lines)
}

// kindOf says what makes charges interchangeable: what their limits say, and
// for whom and at what cost. Two limits that say the same are the same here, as
// they are to a store.
func kindOf(parts []Part) string {
	b := make([]byte, 0, 256)
	for i := range parts {
		c := &parts[i].Charge
		s := c.Limit.Spec()
		for _, text := range [...]string{s.Name, c.Key, s.Window.String()} {
			b = strconv.AppendInt(b, int64(len(text)), 10)
			b = append(append(b, ' '), text...)
		}
		debt := int64(0)
		if s.Debt {
			debt = 1
		}
		for _, n := range [...]int64{c.Cost, int64(s.Algorithm), s.Units, int64(s.Period), s.Burst, s.Queue, debt, int64(s.WarmUp), s.Buckets} {
			b = append(strconv.AppendInt(b, n, 36), ' ')
		}
	}
	return string(b)
}

// Turn is one call's wait.
type Turn struct {
	Rank
	turns   *Turns
	until   time.Time // the latest that it may become; zero for any
	line    *line
	at      *node[*Turn]  // nil once it has come
	parts   []*part       // what it has got, once it has come
	granted chan struct{} // closed then
	over    bool          // used or left; the waiter's own
}

// Join enters a line with what a call has reserved, or has claimed. The waiter
// stands where its instant belongs, as calls decided at nearly the same time may
// come here in another order; then it overtakes those that rank behind it, as
// far as they may wait for the turn of the next. Join also returns how many wait
// now, and for how long the new one has to.
func (ts *Turns) Join(ctx context.Context, parts []Part, claim *Claim, r Rank, until time.Time, settle Settle) (t *Turn, waiting int, d time.Duration) {
	kind := kindOf(parts)
	now := clock.Now()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.line(kind, parts)
	l.settle = settle
	index := 0
	for i := range l.columns {
		c := &l.columns[i]
		if claim.has(i) {
			c.claimed--
			index = l.waiters.n
			continue
		}
		p := &part{column: c, receipt: parts[i].Charge.Receipt, at: now.Add(parts[i].Wait)}
		index = max(index, c.insert(p))
	}
	t = &Turn{Rank: r, turns: ts, until: until, line: l, granted: make(chan struct{})}
	ts.waiting.Add(1)
	at := l.enter(t, index)
	waiting = l.waiters.n
	if back := ts.tend(l, now); !back.empty() {
		go ts.runAll(context.WithoutCancel(ctx), back)
	}
	return t, waiting, max(at.Sub(now), 0)
}

// Wait waits for the turn, or until ctx ends; the error is ctx's.
func (t *Turn) Wait(ctx context.Context) error {
	select {
	case <-t.granted:
		t.over = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Receipt is that of the i-th part, of a turn that has come.
func (t *Turn) Receipt(i int) store.Receipt { return t.parts[i].receipt }

// Leave leaves the line, unless the turn has been used; what nobody has any use
// for goes back to the store.
func (t *Turn) Leave(ctx context.Context) {
	if t.over {
		return
	}
	t.over = true
	ts := t.turns
	ts.mu.Lock()
	l := ts.keep(t.line)
	vacant := l.vacant()
	if t.at != nil {
		l.waiters.remove(t.at)
		ts.waiting.Add(-1)
	} else { // it came at the same moment: the next may have it
		for i, p := range t.parts {
			p.column = &l.columns[i]
			p.inColumn = p.column.parts.insertAfter(nil, p)
			p.column.bucket.insert(p)
		}
	}
	r := ts.vacated(l, len(l.columns), vacant)
	ts.mu.Unlock()
	ts.run(ctx, r)
}

// vacated sees to it that n parts that have become vacant, in a line in which
// some were or none, go to the next waiters, or back: at once if nobody waits,
// else if newcomers don't come for all that is vacant soon. The caller holds the
// lock.
func (ts *Turns) vacated(l *line, n int, some bool) *round {
	now := clock.Now()
	ts.vacant.Add(int64(n))
	if !some {
		l.linger = now.Add(linger)
	}
	return ts.tend(l, now)
}
