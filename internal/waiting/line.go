package waiting

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// line is the waiters of one kind and, beside them, a column for each limit with what
// they have reserved there. The k-th waiter goes when the k-th reservation of every
// column has come. Reservations beyond the number of waiters are vacant.
type line struct {
	kind    string
	columns []column
	waiters []*Turn
	settle  Settle // that of the last to come
	timer   *time.Timer
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
	parts   []*part
	claimed int // vacancies kept for calls under way
}

// part is one reservation: what a call's charge has got.
type part struct {
	column  *column
	receipt store.Receipt
	at      time.Time
	stuck   bool // the store has given nothing back for it, because something stands behind it
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
	l.timer = time.AfterFunc(time.Hour, func() { ts.due(l) })
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
	if len(l.waiters) > 0 || ts.lines[l.kind] != l {
		return
	}
	for i := range l.columns {
		if c := &l.columns[i]; len(c.parts) > 0 || c.claimed > 0 {
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
func (c *column) vacancies() int { return max(len(c.parts)-len(c.line.waiters)-c.claimed, 0) }

// insert puts a part where the store has made it, and its instant where that belongs,
// and returns the place of the instant.
func (c *column) insert(p *part) (index int) {
	p.column, index = c, len(c.parts)
	for index > 0 && c.charge.Limit.Engine(engine.Access{}).Behind(c.parts[index-1].receipt, p.receipt) {
		index--
	}
	c.parts = slices.Insert(c.parts, index, p)
	c.bucket.insert(p)
	for ; index+1 < len(c.parts) && c.parts[index+1].at.Before(c.parts[index].at); index++ {
		c.parts[index].at, c.parts[index+1].at = c.parts[index+1].at, c.parts[index].at
	}
	for ; index > 0 && c.parts[index-1].at.After(c.parts[index].at); index-- {
		c.parts[index].at, c.parts[index-1].at = c.parts[index-1].at, c.parts[index].at
	}
	return index
}

// remove takes a part out of its column and its bucket.
func (c *column) remove(p *part) {
	c.parts = without(c.parts, p)
	c.bucket.parts = without(c.bucket.parts, p)
}

// without removes one of the elements: mostly the first, whose turn has come, or the last,
// which goes back.
func without[T comparable](all []T, one T) []T {
	i := len(all) - 1
	if all[i] != one {
		i = slices.Index(all, one)
	}
	return slices.Delete(all, i, i+1)
}

// enter puts a waiter into the line at index or, if its class is higher, further in
// front, and returns its instant.
func (l *line) enter(t *Turn, index int) time.Time {
	index = min(index, len(l.waiters))
	for index > 0 && l.waiters[index-1].yields(t, l.at(index)) {
		index--
	}
	l.waiters = slices.Insert(l.waiters, index, t)
	return l.at(index)
}

// yields reports whether t lets o go first and then has to wait until at.
func (t *Turn) yields(o *Turn, at time.Time) bool {
	return o.Class > t.Class && o.Before(t.Rank) && (t.until.IsZero() || !at.After(t.until))
}

// at returns when the turn of the waiter at index comes.
func (l *line) at(index int) (at time.Time) {
	for i := range l.columns {
		if a := l.columns[i].parts[index].at; a.After(at) {
			at = a
		}
	}
	return at
}

// grant lets those go whose turn has come.
func (l *line) grant(ts *Turns, now time.Time) {
	for len(l.waiters) > 0 && !l.at(0).After(now) {
		t := l.waiters[0]
		l.waiters = slices.Delete(l.waiters, 0, 1)
		ts.waiting.Add(-1)
		t.parts = make([]*part, len(l.columns))
		for i := range l.columns {
			c := &l.columns[i]
			t.parts[i] = c.parts[0]
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
		for p := c.spent(now); p != nil && c.bucket.settling == nil; p = c.spent(now) {
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
	if p := c.parts[len(c.parts)-1]; !p.at.After(now) {
		return p
	}
	if p := c.parts[0]; n == len(c.parts) && !p.at.After(now) {
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
func (l *line) ripe(now time.Time) bool { return len(l.waiters) == 0 || !l.linger.After(now) }

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
	if len(l.waiters) > 0 {
		next = l.at(0)
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
		if c.vacancies() == len(c.parts) {
			sooner(c.parts[0].at)
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
	r := ts.tend(l, time.Now())
	ts.mu.Unlock()
	ts.runAll(context.Background(), r)
}
