// Package waiting implements the lines of waiters in one process: who is next, and
// which reservations go back to the store when a waiter leaves. There are lines for turns ([Turns]) and
// for slots ([Slots]); in both, waiters have a [Rank].
//
// A turn is an instant that a rate has reserved in its future. Requests of one kind
// (the same limits, keys and costs) are interchangeable, so what one has reserved
// doesn't belong to it. A [Turns] keeps the waiters of a kind and their reservations as
// two sequences side by side, and the first waiter gets the first reservation. A waiter
// that leaves only leaves the sequence of waiters. The reservations that no waiter
// needs any more, the vacancies, are always the last ones made, and the store takes
// those back whole, because nothing stands behind them.
//
// A vacancy goes to the next newcomer of its kind, or back to the store. settle.go says
// what must be true for the latter.
package waiting

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/store"
)

// Turns holds the lines of waiters for turns. The zero value is ready to use. It
// is safe for concurrent use.
type Turns struct {
	vacant  atomic.Int64 // vacancies, in lines and on their way back
	waiting atomic.Int64
	mu      sync.Mutex
	lines   map[string]*line
	buckets map[bucketKey]*bucket
}

// Settle settles charges in the store, even if ctx has ended. It returns the results,
// or nil if it has failed or its outcome isn't known.
type Settle func(ctx context.Context, charges []store.Charge) []store.Result

// Part is the charge of one limit in a call that waits.
type Part struct {
	Charge store.Charge // with the receipt, if the charge has been made
	Wait   time.Duration
	Most   time.Duration // how long it may wait, in Claim
	Index  int           // the caller's
}

// Vacant reports whether there is a turn that a waiter has left and none has taken. It is one
// atomic load; if it is false, no call has to look at lines.
func (ts *Turns) Vacant() bool { return ts.vacant.Load() > 0 }

// Waiting reports whether a call waits for a turn. It is one atomic load.
func (ts *Turns) Waiting() bool { return ts.waiting.Load() > 0 }

// Queued returns how many wait in the line of a kind.
func (ts *Turns) Queued(parts []Part) int {
	kind := kindOf(parts)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if l := ts.lines[kind]; l != nil {
		return len(l.waiters)
	}
	return 0
}

// Lines returns the number of lines.
func (ts *Turns) Lines() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.lines)
}

// kindOf returns what makes charges interchangeable: what their limits say, for whom
// and at what cost. Two limits that say the same are the same here, as they are to a
// store.
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

// Turn is one call's wait for a turn.
type Turn struct {
	Rank
	turns   *Turns
	until   time.Time // the latest that it may become; zero for any
	line    *line
	parts   []*part       // what it has got, once the turn has come
	granted chan struct{} // closed when the turn has come
	over    bool          // used or left; accessed by the waiter only
}

// Join enters a line with what a call has reserved or claimed. The waiter stands where
// its instant belongs, since calls decided at nearly the same time may arrive here in
// another order. Then it overtakes those that rank behind it, as far as they may wait
// for the next one's turn. Join also returns how many wait now, and how long the new
// waiter has to.
func (ts *Turns) Join(ctx context.Context, parts []Part, claim *Claim, r Rank, until time.Time, settle Settle) (t *Turn, waiting int, d time.Duration) {
	kind := kindOf(parts)
	now := time.Now()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.line(kind, parts)
	l.settle = settle
	index := 0
	for i := range l.columns {
		c := &l.columns[i]
		if claim.has(i) {
			c.claimed--
			index = len(l.waiters)
			continue
		}
		p := &part{column: c, receipt: parts[i].Charge.Receipt, at: now.Add(parts[i].Wait)}
		index = max(index, c.insert(p))
	}
	t = &Turn{Rank: r, turns: ts, until: until, line: l, granted: make(chan struct{})}
	ts.waiting.Add(1)
	at := l.enter(t, index)
	waiting = len(l.waiters)
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

// Receipt returns the receipt of the i-th part of a turn that has come.
func (t *Turn) Receipt(i int) store.Receipt { return t.parts[i].receipt }

// Leave leaves the line, unless the turn has been used. Reservations that
// no waiter can use go back to the store.
func (t *Turn) Leave(ctx context.Context) {
	if t.over {
		return
	}
	t.over = true
	ts := t.turns
	ts.mu.Lock()
	l := ts.keep(t.line)
	vacant := l.vacant()
	if t.parts == nil {
		l.waiters = without(l.waiters, t)
		ts.waiting.Add(-1)
	} else { // the turn came at the same moment: the next waiter may have it
		for i, p := range t.parts {
			p.column = &l.columns[i]
			p.column.parts = slices.Insert(p.column.parts, 0, p)
			p.column.bucket.insert(p)
		}
	}
	r := ts.vacate(l, len(l.columns), vacant)
	ts.mu.Unlock()
	ts.run(ctx, r)
}

// vacate handles n parts that have become vacant in a line; some says whether the line
// had vacancies before. They go to the next waiters, or back: at once if there are none,
// otherwise if newcomers don't take all of them soon. The caller holds the lock.
func (ts *Turns) vacate(l *line, n int, some bool) *round {
	now := time.Now()
	ts.vacant.Add(int64(n))
	if !some {
		l.linger = now.Add(linger)
	}
	return ts.tend(l, now)
}
