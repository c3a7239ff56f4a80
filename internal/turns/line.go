package turns

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// lineKey identifies a line: the numbers of a limit, and a key. After an Update that changes the
// numbers, new calls wait in a line of their own, and the calls that were waiting keep their turns in
// the old one: the store orders the two, as it orders the lines of two processes. Only the turns of
// buckets without debt can be divided, so other limits have a line for each cost.
type lineKey struct {
	spec        store.Spec
	window, key string
	cost        int64 // 0 if turns can be divided
}

func keyOf(c *store.Charge) lineKey {
	k := lineKey{spec: c.Limit.Spec(), key: c.Key, cost: c.Cost}
	k.window, k.spec.Window = k.spec.Window.String(), store.Window{} // two of one text may differ in a pointer
	if a := k.spec.Algorithm; !k.spec.Debt && (a == store.TokenBucket || a == store.LeakyBucket) {
		k.cost = 0
	}
	return k
}

// line is the calls that wait for turns of one limit and key, and the turns.
type line struct {
	key           lineKey
	charge        store.Charge // that gives a turn back
	waiting       []*position  // in the order in which they joined
	waitingUnits  int64        // of waiting
	reserved      []turn       // in the order in which the store has reserved them
	reservedUnits int64        // of reserved
	settle        Settle       // of the last call that joined
	timer         *time.Timer  // of Lines.advance
	// refunding: turns are on their way back to the store. moreSurplus: others must follow.
	refunding, moreSurplus bool
}

// turn is units reserved at an instant: the Cost of its receipt. If it is divided, its units come
// one after the other, the last of them at that instant.
type turn struct {
	at      time.Time
	receipt store.Receipt
}

// position is a waiter's place in the line of one of its charges.
type position struct {
	line   *line
	waiter *Waiter
	units  int64           // that it waits for
	number int64           // in the line, when it joined: 1 is the head
	turns  []store.Receipt // that it was served; nil while it waits
}

// Waiter is a call in the lines of its charges. A nil Waiter is in none.
type Waiter struct {
	positions []*position   // one for each charge; nil for a charge that needn't wait
	unserved  int           // how many positions haven't been served
	served    chan struct{} // closed when all have
}

func newWaiter(charges []store.Charge) *Waiter {
	w := &Waiter{positions: make([]*position, len(charges)), served: make(chan struct{})}
	for i := range charges {
		if reserves(&charges[i]) {
			w.unserved++
		}
	}
	if w.unserved == 0 {
		close(w.served)
	}
	return w
}

// join puts a waiter at the end of the line, for the units of its charge i.
func (l *line) join(w *Waiter, i int, units int64) {
	w.positions[i] = &position{line: l, waiter: w, units: units, number: int64(len(l.waiting)) + 1}
	l.waiting = append(l.waiting, w.positions[i])
	l.waitingUnits += units
}

// leave takes a position that waits out of its line.
func (l *line) leave(p *position) {
	i := slices.Index(l.waiting, p)
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.waitingUnits -= p.units
}

// insert puts a turn where the store has reserved it: the store's answers may arrive in another order.
func (l *line) insert(t turn) {
	i := len(l.reserved)
	for i > 0 && inside.Behind(l.charge.Limit, l.reserved[i-1].receipt, t.receipt) {
		i--
	}
	l.reserved = slices.Insert(l.reserved, i, t)
	l.reservedUnits += t.receipt.Cost
}

// prepend puts turns that were served, and aren't used, before all others.
func (l *line) prepend(unused []store.Receipt, now time.Time) {
	for _, r := range slices.Backward(unused) {
		l.reserved = slices.Insert(l.reserved, 0, turn{now, r})
		l.reservedUnits += r.Cost
	}
}

// surplus returns how many units are reserved that no position waits for. They are the last ones.
func (l *line) surplus() int64 { return l.reservedUnits - l.waitingUnits }

// due returns when the first so many units are due, and whether as many are reserved.
func (l *line) due(units int64) (due time.Time, ok bool) {
	for i := range l.reserved {
		t := &l.reserved[i]
		units -= t.receipt.Cost
		at := t.at
		if units < 0 {
			at = l.earlier(t.at, -units)
		}
		if at.After(due) {
			due = at
		}
		if units <= 0 {
			return due, true
		}
	}
	return due, false
}

// earlier returns when a turn at an instant is due without its last units.
func (l *line) earlier(at time.Time, units int64) time.Time {
	return at.Add(-time.Duration(units) * (l.key.spec.Period / time.Duration(l.key.spec.Units)))
}

// delay returns how long it takes until a position is served.
func (l *line) delay(p *position, now time.Time) time.Duration {
	units := int64(0)
	for _, before := range l.waiting {
		if units += before.units; before == p {
			break
		}
	}
	due, _ := l.due(units)
	return max(due.Sub(now), 0)
}

// serve serves the positions whose turns have come. It returns when to look again: when the head's
// turn comes or, with no call waiting, when the first turn is due and passes unused; zero for never.
func (l *line) serve(now time.Time) (next time.Time) {
	for len(l.waiting) > 0 {
		due, ok := l.due(l.waiting[0].units)
		if !ok { // the store's answer with the turns isn't here yet
			return time.Time{}
		}
		if due.After(now) {
			return due
		}
		l.serveHead()
	}
	if len(l.reserved) > 0 && !l.refunding {
		return l.reserved[0].at
	}
	return time.Time{}
}

// serveHead gives the first position the first turns. A turn of more units is divided.
func (l *line) serveHead() {
	p := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.waitingUnits -= p.units
	l.reservedUnits -= p.units
	for missing := p.units; missing > 0; {
		t := &l.reserved[0]
		receipt := t.receipt
		if receipt.Cost <= missing {
			l.reserved = slices.Delete(l.reserved, 0, 1)
		} else {
			receipt = inside.Without(l.charge.Limit, receipt, receipt.Cost-missing)
			t.receipt.Cost -= missing
		}
		p.turns = append(p.turns, receipt)
		missing -= receipt.Cost
	}
	if p.waiter.unserved--; p.waiter.unserved == 0 {
		close(p.waiter.served)
	}
}

// expire drops the turns that have come while no call waits: they pass unused.
func (l *line) expire(now time.Time) {
	for len(l.waiting) == 0 && len(l.reserved) > 0 && !l.reserved[0].at.After(now) {
		l.reservedUnits -= l.reserved[0].receipt.Cost
		l.reserved = slices.Delete(l.reserved, 0, 1)
	}
}

// over reports whether the line has neither waiters nor turns.
func (l *line) over() bool { return len(l.waiting)+len(l.reserved) == 0 && !l.refunding }
