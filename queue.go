package stint

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// turns holds the waits whose end is known: a rate has reserved a turn in the
// future. Charges of one kind (the same limits, keys and costs) are
// interchangeable, so they stand in a line, and when one leaves everybody
// behind it moves up a turn. What the store is given back is then the last
// turn, behind which nothing is reserved: the next to come may have it, and no
// two ever run in one place.
type turns struct {
	mu    sync.Mutex
	lines map[turnKind][]*turn
}

// turnKind is what makes charges interchangeable, of limits that are enforced:
// nobody waits for the others. Calls with more limits than fit stand in no line:
// when they leave, the store takes back what it can.
type turnKind struct {
	limits [turnLimits]*store.Limit
	keys   [turnLimits]string
	costs  [turnLimits]int64
}

const turnLimits = 4

// turn is one call's reservation: the instant, and in c.results the receipts.
type turn struct {
	rank
	at    time.Time
	until time.Time // the latest that it may become; zero for any
	c     *call
	moved chan struct{} // has an element when at has changed
}

func (c *call) turnKind() (k turnKind, ok bool) {
	n := 0
	for i := range c.charges {
		if c.charges[i].DryRun {
			continue
		}
		if n == turnLimits {
			return turnKind{}, false
		}
		k.limits[n], k.keys[n], k.costs[n] = c.entries[i].limit, c.charges[i].Key, c.charges[i].Cost
		n++
	}
	return k, true
}

// sleep waits for a granted call's turn, or gives all of it back.
func (c *call) sleep(ctx context.Context, d time.Duration) error {
	start := time.Now()
	defer func() {
		waited := time.Since(start)
		c.waited += waited
		for i := range c.results { // they were of the decision's instant
			c.results[i].ResetAfter = max(0, c.results[i].ResetAfter-waited)
		}
	}()
	ts := &c.lim.family.turns
	kind, ok := c.turnKind()
	t := &turn{rank: c.rank(ctx, start), at: start.Add(d), until: c.latest(start), c: c}
	waiting, i := int64(1), c.slowest() // in line, results may be exchanged
	if ok {
		t.moved = make(chan struct{}, 1)
		waiting, d = ts.join(kind, t)
		defer ts.giveUp(kind, t) // what it hasn't used: an observer may panic
	}
	c.note(i, waiting)
	c.begin(i, d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if ok {
				if d := ts.use(kind, t); d > 0 {
					timer.Reset(d)
					continue
				}
			}
			return nil
		case <-t.moved:
			timer.Reset(ts.until(t))
		case <-ctx.Done():
			if ok {
				ts.giveUp(kind, t)
			}
			c.giveBack(ctx)
			return &canceledError{ctx.Err()}
		}
	}
}

// latest is the latest turn that the call may wait for: what the store was told
// of each limit. A queue without a WithMaxWait bounds the wait by its length.
func (c *call) latest(start time.Time) (t time.Time) {
	for i := range c.charges {
		if ch := &c.charges[i]; ch.MaxWait > 0 && !ch.DryRun {
			if u := start.Add(ch.MaxWait); t.IsZero() || u.Before(t) {
				t = u
			}
		}
	}
	return t
}

// slowest is the charge whose limit makes the call wait for the longest.
func (c *call) slowest() int {
	slowest := -1
	for i := range c.results {
		if !c.charges[i].DryRun && (slowest < 0 || c.results[i].Delay > c.results[slowest].Delay) {
			slowest = i
		}
	}
	return slowest
}

// noteTurns keeps for the decision of a refused call how many wait for the turn
// that it doesn't get.
func (c *call) noteTurns() {
	if !c.waits && !c.patient {
		return
	}
	for i, e := range c.entries {
		if c.results[i].OK || e.dryRun || e.slots || e.maxWait == 0 && !e.queues && !c.patient {
			continue
		}
		if kind, ok := c.turnKind(); ok {
			if n := c.lim.family.turns.queued(kind); n > 0 {
				c.note(i, n)
			}
		}
		return
	}
}

func (ts *turns) queued(kind turnKind) int64 {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return int64(len(ts.lines[kind]))
}

// join enters a turn where its instant belongs: calls decided at nearly the
// same time may come here in another order. Then it overtakes those that rank
// behind it, as far as they may wait for the turn of the next. It returns how
// many wait now, and for how long t has to.
func (ts *turns) join(kind turnKind, t *turn) (waiting int64, d time.Duration) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	line := ts.lines[kind]
	i := len(line)
	for i > 0 && line[i-1].at.After(t.at) {
		i--
	}
	if ts.lines == nil {
		ts.lines = map[turnKind][]*turn{}
	}
	line = slices.Insert(line, i, t)
	ts.lines[kind] = line
	for ; i > 0 && line[i-1].yields(t); i-- {
		o := line[i-1]
		t.swap(o)
		o.move()
		line[i-1], line[i] = t, o
	}
	return int64(len(line)), time.Until(t.at)
}

// yields reports whether t, next before o, lets it go first.
func (t *turn) yields(o *turn) bool {
	return o.class > t.class && o.before(t.rank) && (t.until.IsZero() || !o.at.After(t.until))
}

// move tells who waits for t that its instant is another.
func (t *turn) move() {
	select {
	case t.moved <- struct{}{}:
	default: // it hasn't looked since the last move
	}
}

// use takes a turn that has come out of its line. It may have been moved back
// at the last moment: then it is to be waited for, for as long as use says.
func (ts *turns) use(kind turnKind, t *turn) time.Duration {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if d := time.Until(t.at); d > 0 {
		return d
	}
	ts.remove(kind, slices.Index(ts.lines[kind], t))
	return 0
}

// giveUp takes a turn that will not be used out of its line, if it still stands
// there. Those behind it move up, and t is left with the last one.
func (ts *turns) giveUp(kind turnKind, t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	line := ts.lines[kind]
	i := slices.Index(line, t)
	if i < 0 {
		return
	}
	for _, next := range line[i+1:] {
		t.swap(next)
		next.move()
	}
	ts.remove(kind, i)
}

func (ts *turns) remove(kind turnKind, i int) {
	if line := slices.Delete(ts.lines[kind], i, i+1); len(line) == 0 {
		delete(ts.lines, kind)
	} else {
		ts.lines[kind] = line
	}
}

// swap exchanges two reservations: those of the limits that make their kind, which
// are the same, in one order, with others between them.
func (t *turn) swap(o *turn) {
	t.at, o.at = o.at, t.at
	j := 0
	for i := range t.c.results {
		if t.c.charges[i].DryRun {
			continue
		}
		for o.c.charges[j].DryRun {
			j++
		}
		t.c.results[i], o.c.results[j] = o.c.results[j], t.c.results[i]
		j++
	}
}

func (ts *turns) until(t *turn) time.Duration {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return time.Until(t.at)
}
