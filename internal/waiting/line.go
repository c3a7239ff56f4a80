package waiting

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// lineKey says whose turns a line has: what a limit says, and a key. After an Update that changes
// the limit's numbers, newcomers stand in a line of their own, and whoever waited keeps its turn in
// the old one: the store orders the two, as it orders the lines of two processes. Only the turns of
// buckets without debt can be divided, so other limits have a line for each cost.
type lineKey struct {
	spec        store.Spec
	window, key string
	cost        int64
}

func keyOfLine(c *store.Charge) lineKey {
	k := lineKey{spec: c.Limit.Spec(), key: c.Key, cost: c.Cost}
	k.window, k.spec.Window = k.spec.Window.String(), store.Window{} // two of one text may differ in a pointer
	if a := k.spec.Algorithm; !k.spec.Debt && (a == store.TokenBucket || a == store.LeakyBucket) {
		k.cost = 0
	}
	return k
}

// line is those who wait for turns of one limit and key, and the turns.
type line struct {
	turns    *Turns
	key      lineKey
	charge   store.Charge // what a turn is given back by
	demands  []*demand    // not met yet, in the order in which they came
	reserved []turn       // in the order in which the store has made them
	wanted   int64        // units, by the demands
	held     int64        // units, by the turns
	settle   Settle       // that of the last to come
	timer    *time.Timer
	settling bool // turns are on their way back to the store
	again    bool // there are more of them
}

// turn is units reserved at an instant: as many as its receipt's cost. Those of a turn that is
// divided come one after the other, and the last of them at that instant.
type turn struct {
	at      time.Time
	receipt store.Receipt
}

// demand is what a call needs of one limit.
type demand struct {
	line  *line
	visit *Visit
	units int64
	place int64           // in the line, when it came
	got   []store.Receipt // once it is met
}

// line returns the line of a charge.
func (ts *Turns) line(c *store.Charge) *line {
	key := keyOfLine(c)
	if l := ts.all[key]; l != nil {
		return l
	}
	l := &line{turns: ts, key: key, charge: store.Charge{Key: c.Key, Limit: c.Limit}}
	l.timer = time.AfterFunc(time.Hour, l.due)
	return ts.keep(l)
}

// keep returns the line of l's key: l, which may have been dropped since it was last used, or the
// one that has replaced it.
func (ts *Turns) keep(l *line) *line {
	if now := ts.all[l.key]; now != nil {
		return now
	}
	if ts.all == nil {
		ts.all = map[lineKey]*line{}
	}
	ts.all[l.key] = l
	ts.n.Add(1)
	return l
}

// add has a call demand units for its i-th charge.
func (l *line) add(v *Visit, i int, units int64) {
	v.demands[i] = &demand{line: l, visit: v, units: units, place: int64(len(l.demands)) + 1}
	l.demands = append(l.demands, v.demands[i])
	l.wanted += units
}

// insert puts a turn where the store has made it: answers may arrive in another order.
func (l *line) insert(t turn) {
	i := len(l.reserved)
	for i > 0 && inside.Behind(l.charge.Limit, l.reserved[i-1].receipt, t.receipt) {
		i--
	}
	l.reserved = slices.Insert(l.reserved, i, t)
	l.held += t.receipt.Cost
}

// putBack puts turns that have come before all others.
func (l *line) putBack(got []store.Receipt, now time.Time) {
	for _, r := range slices.Backward(got) {
		l.reserved = slices.Insert(l.reserved, 0, turn{now, r})
		l.held += r.Cost
	}
}

// leave takes a demand out of its line, with what it has got.
func (d *demand) leave(now time.Time) {
	if d.got != nil {
		d.line = d.line.turns.keep(d.line)
		d.line.putBack(d.got, now)
		return
	}
	i := slices.Index(d.line.demands, d)
	d.line.demands = slices.Delete(d.line.demands, i, i+1)
	d.line.wanted -= d.units
}

// at returns when the first so many units have come, and whether there are as many.
func (l *line) at(units int64) (at time.Time, ok bool) {
	for i := range l.reserved {
		t := &l.reserved[i]
		units -= t.receipt.Cost
		comes := t.at
		if units < 0 {
			comes = l.before(t.at, -units)
		}
		if comes.After(at) {
			at = comes
		}
		if units <= 0 {
			return at, true
		}
	}
	return at, false
}

// before returns when all but the last units of a turn come.
func (l *line) before(at time.Time, units int64) time.Time {
	return at.Add(-time.Duration(units) * (l.key.spec.Period / time.Duration(l.key.spec.Units)))
}

// until returns how long it takes until a demand is met.
func (l *line) until(d *demand, now time.Time) time.Duration {
	units := int64(0)
	for _, before := range l.demands {
		if units += before.units; before == d {
			break
		}
	}
	at, _ := l.at(units)
	return max(at.Sub(now), 0)
}

// tend meets the demands whose turns have come, and sets the timer. It drops a line that has
// nothing left.
func (l *line) tend(now time.Time) {
	var next time.Time
	for next.IsZero() && len(l.demands) > 0 {
		at, ok := l.at(l.demands[0].units)
		if !ok { // the answer with the turns isn't here yet
			break
		}
		if at.After(now) {
			next = at
		} else {
			l.meet()
		}
	}
	if len(l.demands) == 0 && len(l.reserved) > 0 && !l.settling {
		next = l.reserved[0].at
	}
	if !next.IsZero() {
		l.timer.Reset(next.Sub(now))
		return
	}
	l.timer.Stop()
	if len(l.demands)+len(l.reserved) == 0 && !l.settling && l.turns.all[l.key] == l {
		delete(l.turns.all, l.key)
		l.turns.n.Add(-1)
	}
}

// meet gives the first demand the first turns. One that has more is divided.
func (l *line) meet() {
	d := l.demands[0]
	l.demands = slices.Delete(l.demands, 0, 1)
	l.wanted -= d.units
	l.held -= d.units
	for need := d.units; need > 0; {
		t := &l.reserved[0]
		got := t.receipt
		if got.Cost <= need {
			l.reserved = slices.Delete(l.reserved, 0, 1)
		} else {
			got = inside.Without(l.charge.Limit, got, got.Cost-need)
			t.receipt.Cost -= need
		}
		d.got = append(d.got, got)
		need -= got.Cost
	}
	if d.visit.missing--; d.visit.missing == 0 {
		close(d.visit.met)
	}
}

// due is called by the timer.
func (l *line) due() {
	l.turns.mu.Lock()
	defer l.turns.mu.Unlock()
	now := time.Now()
	if !l.settling {
		l.expire(now)
	}
	l.tend(now)
}

// expire drops the turns that have come and that nobody needs: they pass unused.
func (l *line) expire(now time.Time) {
	for len(l.demands) == 0 && len(l.reserved) > 0 && !l.reserved[0].at.After(now) {
		l.held -= l.reserved[0].receipt.Cost
		l.reserved = slices.Delete(l.reserved, 0, 1)
	}
}

// round is turns on their way back to the store, the last of each line first.
type round struct {
	lines  []*line // of the turns
	turns  []turn
	settle Settle
}

// most is how many turns of a line go back in one call of the store.
const most = 500

// leftOver moves to r what no demand needs. Only one settlement of a line is under way at a time,
// so that turns reach the store in their order.
func (l *line) leftOver(r *round) {
	if l.settling {
		l.again = true
		return
	}
	l.again = false
	for n := 0; l.held > l.wanted && n < most; n++ {
		last := &l.reserved[len(l.reserved)-1]
		back := *last
		if over := l.held - l.wanted; back.receipt.Cost <= over {
			l.reserved = l.reserved[:len(l.reserved)-1]
		} else {
			back.receipt.Cost = over
			last.at, last.receipt = l.before(last.at, over), inside.Without(l.charge.Limit, last.receipt, over)
		}
		l.held -= back.receipt.Cost
		l.settling, l.again = true, l.held > l.wanted
		r.lines, r.turns = append(r.lines, l), append(r.turns, back)
		r.settle = l.settle
	}
}

// run gives the turns back. What is left over meanwhile goes back in the background, since the
// caller has somewhere to go. A panic is the caller's.
func (r *round) run(ctx context.Context) {
	if len(r.turns) == 0 {
		return
	}
	charges := make([]store.Charge, len(r.turns))
	for i, t := range r.turns {
		charges[i] = r.lines[i].charge
		charges[i].Receipt = t.receipt
	}
	var results []store.Result
	defer func() { r.finish(results).start() }()
	results = r.settle(ctx, charges)
}

// start runs a round in the background.
func (r *round) start() {
	if len(r.turns) > 0 {
		go background.Do("giving back turns", func() { r.run(context.Background()) })
	}
}

// finish keeps the turns that the store hasn't taken back, because others stand behind them: of
// this process, whose answer is on its way, or of another one. Without results the outcome is
// unknown. Then all turns are written off: none is used twice.
func (r *round) finish(results []store.Result) (next *round) {
	next = new(round)
	ts := r.lines[0].turns
	ts.mu.Lock()
	defer ts.mu.Unlock()
	now := time.Now()
	for i := range results {
		l, t := r.lines[i], r.turns[i]
		left := inside.Standing(l.charge.Limit, t.receipt, results[i].Receipt)
		whole := l.key.cost == 0 || left.Cost == l.key.cost
		if left.Cost > 0 && whole && (t.at.After(now) || len(l.demands) > 0) {
			l.insert(turn{t.at, left})
		}
	}
	for i, l := range r.lines {
		if i > 0 && l == r.lines[i-1] {
			continue
		}
		l.settling = false
		if l.again {
			l.leftOver(next)
		}
		l.tend(now)
	}
	return next
}
