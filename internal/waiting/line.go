package waiting

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// line is the waiters of one kind and, beside them, a column for each limit with what
// they have reserved there. The k-th waiter goes when the k-th reservation of every
// column has come. Reservations beyond the number of waiters are vacant.
type line struct {
	kind    string
	columns []column
	waiters list[*Turn]
	settle  Settle // that of the last to come
	timer   *clock.Timer
	linger  time.Time // until when vacancies are kept for newcomers while others wait
}

// column is the reservations of one limit, key and cost, in the order in which the
// store has made them. Their instants are kept in order too, separately: the k-th
// instant is never before that of the k-th reservation, so a call may learn of its turn
// late, but never early.
type column struct {
	line    *line
	index   int
	charge  store.Charge // what all of them are
	bucket  *bucket
	parts   list[*part]
	claimed int // vacancies kept for calls under way
}

// part is one reservation: what a call's charge has got.
type part struct {
	column   *column
	receipt  store.Receipt
	at       time.Time
	stuck    bool         // the store has given nothing back for it, because something stands behind it
	inColumn *node[*part] // nil once it has been taken out
	inBucket *node[*part]
}

func (ts *Turns) line(kind string, parts []Part) *line {
	if l := ts.lines[kind]; l != nil {
		return l
	}
	l := &line{kind: kind, columns: make([]column, len(parts))}
	for i := range parts {
		charge := parts[i].Charge
		charge.Cost, charge.MaxWait = 0, 0 // what it is settled to
		l.columns[i] = column{line: l, index: i, charge: charge}
	}
	l.timer = clock.AfterFunc(time.Hour, func() { ts.due(l) })
	return ts.keep(l)
}

// keep returns the line of l's kind: l, which may have been forgotten since it was last
// used, or the one that has replaced it.
func (ts *Turns) keep(l *line) *line {
	if now := ts.lines[l.kind]; now != nil {
		return now
	}
	if ts.lines == nil {
		ts.lines = map[string]*line{}
	}
	ts.lines[l.kind] = l
	for i := range l.columns {
		l.columns[i].bucket = ts.bucket(&l.columns[i].charge)
	}
	return l
}

// forget drops an empty line.
func (ts *Turns) forget(l *line) {
	if l.waiters.n > 0 || ts.lines[l.kind] != l {
		return
	}
	for i := range l.columns {
		if c := &l.columns[i]; c.parts.n > 0 || c.claimed > 0 {
			return
		}
	}
	l.timer.Stop()
	delete(ts.lines, l.kind)
	for i := range l.columns {
		ts.forgetBucket(l.columns[i].bucket)
	}
}

// vacancies returns how many of the parts no waiter needs.
func (c *column) vacancies() int { return max(c.parts.n-c.line.waiters.n-c.claimed, 0) }

// insert puts a part where the store has made it, and its instant where that belongs,
// and returns the place of the instant.
func (c *column) insert(p *part) (index int) {
	p.column, index = c, c.parts.n
	e := c.parts.back
	for ; e != nil && c.charge.Limit.Engine(engine.Access{}).Behind(e.value.receipt, p.receipt); e = e.prev {
		index--
	}
	e = c.parts.insertAfter(e, p)
	p.inColumn = e
	c.bucket.insert(p)
	for ; e.next != nil && e.next.value.at.Before(e.value.at); e, index = e.next, index+1 {
		e.value.at, e.next.value.at = e.next.value.at, e.value.at
	}
	for ; e.prev != nil && e.prev.value.at.After(e.value.at); e, index = e.prev, index-1 {
		e.value.at, e.prev.value.at = e.prev.value.at, e.value.at
	}
	return index
}

func (c *column) remove(p *part) {
	c.parts.remove(p.inColumn)
	c.bucket.parts.remove(p.inBucket)
	p.inColumn, p.inBucket = nil, nil
}

// enter puts a waiter into the line at index or, if its class is higher, further in
// front, and returns its instant.
func (l *line) enter(t *Turn, index int) time.Time {
	before := l.waiters.back
	for n := l.waiters.n; n > index; n-- {
		before = before.prev
	}
	index = min(index, l.waiters.n)
	behind := make([]*node[*part], len(l.columns)) // the reservations at index
	for i := range l.columns {
		behind[i] = l.columns[i].parts.at(index)
	}
	for before != nil && before.value.yields(t, latest(behind)) {
		before = before.prev
		for i := range behind {
			behind[i] = behind[i].prev
		}
	}
	t.at = l.waiters.insertAfter(before, t)
	return latest(behind)
}

// yields reports whether t lets o go first and then has to wait until at.
func (t *Turn) yields(o *Turn, at time.Time) bool {
	return o.Class > t.Class && o.Before(t.Rank) && (t.until.IsZero() || !at.After(t.until))
}

// latest returns when all of the parts have come.
func latest(parts []*node[*part]) (at time.Time) {
	for _, e := range parts {
		if e.value.at.After(at) {
			at = e.value.at
		}
	}
	return at
}

// first returns when the first waiter's turn comes.
func (l *line) first() (at time.Time) {
	for i := range l.columns {
		if a := l.columns[i].parts.front.value.at; a.After(at) {
			at = a
		}
	}
	return at
}

// grant lets those go whose turn has come.
func (l *line) grant(ts *Turns, now time.Time) {
	for l.waiters.n > 0 && !l.first().After(now) {
		t := l.waiters.front.value
		l.waiters.remove(l.waiters.front)
		ts.waiting.Add(-1)
		t.at, t.parts = nil, make([]*part, len(l.columns))
		for i := range l.columns {
			c := &l.columns[i]
			t.parts[i] = c.parts.front.value
			c.remove(t.parts[i])
		}
		close(t.granted)
	}
}

// moveSpent moves to r the vacancies whose turn has passed, or never was one. What can be
// returned in order is; for the rest the store gives back what it can, whatever stands
// behind.
func (l *line) moveSpent(now time.Time, r *round) {
	for i := range l.columns {
		c := &l.columns[i]
		if c.spent(now) == nil {
			continue
		}
		r.collect(c.bucket, now, true)
		for p := c.spent(now); p != nil && c.bucket.settled == nil; p = c.spent(now) {
			r.take(p)
		}
	}
}

// spent returns a vacant part whose instant has come, or nil.
func (c *column) spent(now time.Time) *part {
	n := c.vacancies()
	if n == 0 {
		return nil
	}
	if p := c.parts.back.value; !p.at.After(now) {
		return p
	}
	if p := c.parts.front.value; n == c.parts.n && !p.at.After(now) {
		return p
	}
	return nil
}

// vacant reports whether there is a vacancy.
func (l *line) vacant() bool {
	for i := range l.columns {
		if l.columns[i].vacancies() > 0 {
			return true
		}
	}
	return false
}

// ripe reports whether vacancies may go back.
func (l *line) ripe(now time.Time) bool { return l.waiters.n == 0 || !l.linger.After(now) }

// tend does what is due in a line, begins to give back what should go back, and sets
// the timer. It drops a line that has nothing left.
func (ts *Turns) tend(l *line, now time.Time) *round {
	r := &round{settle: l.settle}
	l.grant(ts, now)
	l.moveSpent(now, r)
	if l.ripe(now) {
		for i := range l.columns {
			r.collect(l.columns[i].bucket, now, false)
		}
	}
	l.arm(ts, now)
	return r
}

// arm sets the timer to when something is due.
func (l *line) arm(ts *Turns, now time.Time) {
	var next time.Time
	if l.waiters.n > 0 {
		next = l.first()
	}
	sooner := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for i := range l.columns {
		c := &l.columns[i]
		if c.vacancies() == 0 {
			continue
		}
		sooner(l.linger)
		sooner(c.bucket.retry)
		if c.spent(now) != nil { // when the settlement under way has ended
			sooner(now.Add(linger))
		}
		if c.vacancies() == c.parts.n {
			sooner(c.parts.front.value.at)
		}
	}
	if next.IsZero() {
		l.timer.Stop()
		ts.forget(l)
		return
	}
	l.timer.Reset(next.Sub(now))
}

// due is called by the line's timer.
func (ts *Turns) due(l *line) {
	ts.mu.Lock()
	r := ts.tend(l, clock.Now())
	ts.mu.Unlock()
	ts.runAll(context.Background(), r)
}
