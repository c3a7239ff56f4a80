package lines

import (
	"math"
	"slices"
	"time"
)

// Horizon is how long before the store would let it pass a call asks that holds nothing, and how far ahead it may
// reserve what it asks for.
const Horizon = 10 * time.Millisecond

const (
	// window is how far ahead a line holds turns, if that is more than one. On a slow store it is a round
	// trip and slack.
	window = 10 * time.Millisecond
	slack  = 5 * time.Millisecond
	// Each time that a call of another process is faster, the line's horizon doubles, up to mostHorizon; each grant
	// takes an eighth of a doubling back.
	mostHorizon = time.Second
	doubling    = 8
	// mostAsks is how many calls of a line ask at once while the store grants each immediately.
	mostAsks = 64
	// windowPace is how many times the rate of a window a line asks when one has begun.
	windowPace = 4
	// measured is how many passes say how fast a line advances.
	measured = 8
	// retryLeast is the shortest time after which a line asks a store again that has failed.
	retryLeast = 10 * time.Millisecond
	// lookAgain is the longest time that a line waits before it asks for a call that holds nothing: what the
	// store said may no longer be so.
	lookAgain = time.Second
)

// line is the calls that wait for units of one limit and key, and the turns that are held for them.
type line struct {
	key     Key
	supply  Supply
	classes [Raises + 1]queue
	tenants []*queue // of the waiters with a Tenant, who are in no class; each has some
	n       int64

	turns []*Turn // in the order of their instants
	// asking is how many calls are asking, and askingCost what each of them costs: calls of different costs
	// aren't asked for at once, since the answers come in any order.
	asking     int
	askingCost int64
	askHolds   bool // those that are asking hold turns
	// refunding is how many calls have been served a turn for more than they cost, and haven't left yet. They refund
	// the rest, of which a store returns nothing once a later turn has been granted. So no call asks meanwhile.
	refunding int
	// next is the instant before which no call asks.
	next time.Time
	// firstAsk is where a call may be that asks for a turn and joins this line then. Once the line has waited for it,
	// it is nil: so a call of another key with the same hash delays the line at most once.
	firstAsk *firstAsk
	delayed  bool // the line is among firstAsk.delayed
	// again: there has been more to ask for, since those that are asking were told to, and no other call could ask.
	again bool
	// released: while others ask, a slot has just been released, or been found free. One more call may ask for it.
	released bool
	// scheduled: next is when the store said that the head would pass. Denied then, another process was faster.
	scheduled bool
	lost      int       // lost races, in eighths of a doubling of the horizon
	ahead     int       // how many may ask at once while each is granted immediately
	last      time.Time // the instant of the last turn, or when the head's is expected
	passes    passes

	timer *time.Timer // of Lines.advance
}

// queue is the waiters of a line that have one class, or one tenant.
type queue struct {
	waiters []*Waiter // in the order in which they arrived
	units   int64     // for which they wait

	// These are of a tenant's queue.
	tenant Tenant
	hash   uint64    // of the tenant, among those that hold slots
	passed time.Time // when the last of its waiters has passed that did
	held   int64     // how many slots the tenant held when it was ranked
	ranked bool      // inOrder has still to come to it
}

// since returns since when the tenant has waited for its next slot: since its first waiter has arrived, or a waiter
// before that has passed.
func (q *queue) since() time.Time { return later(q.waiters[0].Arrived, q.passed) }

// queueOf returns the queue of a waiter. If its tenant has none, queueOf makes one.
func (l *line) queueOf(w *Waiter) *queue {
	if w.Tenant == 0 {
		return &l.classes[w.Class]
	}
	for _, q := range l.tenants {
		if q.tenant == w.Tenant {
			return q
		}
	}
	q := &queue{tenant: w.Tenant, hash: w.Tenant.of(l.key)}
	l.tenants = append(l.tenants, q)
	return q
}

// insert puts a waiter where it belongs in its queue. A waiter from another line may
// have arrived before some that wait here.
func (l *line) insert(w *Waiter) {
	q := l.queueOf(w)
	i := len(q.waiters)
	for i > 0 && q.waiters[i-1].Arrived.After(w.Arrived) {
		i--
	}
	q.waiters = slices.Insert(q.waiters, i, w)
	q.units += w.Cost
	w.inLine = true
	l.n++
}

// remove takes a waiter out of the line, if it stands there.
func (l *line) remove(w *Waiter) {
	if !w.inLine {
		return
	}
	q := l.queueOf(w)
	i := slices.Index(q.waiters, w)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	q.units -= w.Cost
	w.inLine = false
	l.n--
	if len(q.waiters) == 0 && q.tenant != 0 {
		i := slices.Index(l.tenants, q)
		l.tenants = slices.Delete(l.tenants, i, i+1)
	}
}

// pass takes a waiter out of the line that has passed.
func (l *line) pass(w *Waiter, now time.Time) {
	if w.inLine {
		l.queueOf(w).passed = now
	}
	l.remove(w)
	l.passes.add(now, w.Cost)
}

// waiting returns the units for which calls wait.
func (l *line) waiting() (units int64) {
	for i := range l.classes {
		units += l.classes[i].units
	}
	for _, q := range l.tenants {
		units += q.units
	}
	return units
}

// inOrder calls f with the waiters in the order in which they are served, until f returns false. Classes and tenants
// are ranked now, and at most once. A line has both only for a while after an Update has made its queue fair, or no
// longer: then the first of either goes first that has waited longer.
func (l *line) inOrder(h *held, f func(*Waiter) bool) {
	var ranks [Raises + 1]int
	for class := range l.classes {
		q := l.classes[class].waiters
		if ranks[class] = -1; len(q) > 0 {
			ranks[class] = h.rank(q[0], l)
		}
	}
	l.rankTenants(h)
	for {
		best := 0
		for class, rank := range ranks {
			if rank > ranks[best] {
				best = class
			}
		}
		next := &l.classes[best]
		switch fair := l.fairest(); {
		case fair != nil && (ranks[best] < 0 || fair.waiters[0].Arrived.Before(next.waiters[0].Arrived)):
			next, fair.ranked = fair, false
		case ranks[best] < 0:
			return
		default:
			ranks[best] = -1
		}
		for _, w := range next.waiters {
			if !f(w) {
				return
			}
		}
	}
}

// asked returns for how many units calls of a queue are asking: as if they held them already, since each of them may
// be granted what it asks for.
func (l *line) asked(q *queue) (units int64) {
	if l.asking == 0 {
		return 0
	}
	for _, w := range q.waiters {
		if w.asking {
			units += w.Cost
		}
	}
	return units
}

// rankTenants looks up how many slots each tenant holds now.
func (l *line) rankTenants(h *held) {
	for _, q := range l.tenants {
		q.held, q.ranked = h.byTenant(q.hash)+l.asked(q), true
	}
}

// fairest returns the queue of the tenant that holds the fewest slots, of those that are ranked, or nil. Of several
// such tenants, it is the one that has waited longest for its next slot. So a tenant with more waiters isn't served
// more often.
func (l *line) fairest() (fairest *queue) {
	for _, q := range l.tenants {
		switch {
		case !q.ranked:
		case fairest == nil || q.held < fairest.held,
			q.held == fairest.held && q.since().Before(fairest.since()):
			fairest = q
		}
	}
	return fairest
}

// first returns the first waiter that suits, or nil.
func (l *line) first(h *held, suits func(*Waiter) bool) (first *Waiter) {
	l.inOrder(h, func(w *Waiter) bool {
		if suits(w) {
			first = w
		}
		return first == nil
	})
	return first
}

// replacedBy returns the waiter that a call replaces which finds the line full, or nil.
func (l *line) replacedBy(h *held, call *Waiter) *Waiter {
	if call.Tenant != 0 {
		return l.greediest(h, call)
	}
	last := l.replaceable(h)
	if last == nil || h.rank(last, nil) >= h.rank(call, nil) {
		return nil
	}
	return last
}

// replaceable returns the waiter of a class that is replaced first: the last of the lowest rank, among those
// for which the line is full.
func (l *line) replaceable(h *held) (last *Waiter) {
	for i := range l.classes {
		if w := l.lastIn(&l.classes[i]); w != nil && (last == nil || h.rank(w, nil) < h.rank(last, nil)) {
			last = w
		}
	}
	return last
}

// lastIn returns the last waiter of a queue for which the line is full, or nil.
func (l *line) lastIn(q *queue) *Waiter {
	for _, w := range slices.Backward(q.waiters) {
		if w.Room <= l.n {
			return w
		}
	}
	return nil
}

// greediest returns the waiter of a tenant that a call of another tenant replaces, or nil: the last of the tenant that
// has the most slots, running and waiting, if it has no fewer without it than the call's tenant has with the call. So
// two tenants never replace each other's calls in turn. Of several such tenants, it is the one whose last waiter came
// last.
func (l *line) greediest(h *held, call *Waiter) (last *Waiter) {
	most, own := int64(0), call.Cost+h.byTenant(call.Tenant.of(l.key))
	for _, q := range l.tenants {
		if q.tenant == call.Tenant {
			own += q.units
			continue
		}
		w, n := l.lastIn(q), q.units+h.byTenant(q.hash)
		if w != nil && (last == nil || n > most || n == most && w.Arrived.After(last.Arrived)) {
			last, most = w, n
		}
	}
	if last == nil || most-last.Cost < own {
		return nil
	}
	return last
}

// hold puts a turn among those that are held.
func (l *line) hold(t *Turn) {
	i := len(l.turns)
	for i > 0 && l.turns[i-1].At.After(t.At) {
		i--
	}
	l.turns = slices.Insert(l.turns, i, t)
}

// serve gives each turn that has come to the first call that it suffices for. If there is none, the turn passes
// unused.
func (l *line) serve(h *held, now time.Time) {
	for len(l.turns) > 0 && !l.turns[0].At.After(now) {
		t := l.turns[0]
		l.turns = slices.Delete(l.turns, 0, 1)
		w := l.first(h, t.suits)
		if w == nil {
			continue
		}
		l.pass(w, now)
		w.turn, t.Behind = t, l.waiting()
		if t.Set == 0 && t.Cost > w.Cost {
			w.refunds = true
			l.refunding++
		}
		w.wake()
	}
}

// ask tells calls to ask that should, and returns when to look again, or the zero Time if something else happens
// before.
func (l *line) ask(h *held, now time.Time, trip time.Duration) (next time.Time) {
	switch slots := l.supply.ofSlots(); {
	case l.refunding > 0, slots && (l.n == 0 || l.asking > 0 && !l.released):
		return time.Time{}
	case slots && l.next.After(now): // no call asks, so it needn't be known who is first
		return l.next
	}
	for {
		covered, w := len(l.turns), (*Waiter)(nil)
		l.inOrder(h, func(x *Waiter) bool {
			switch {
			case x.asking:
			case covered > 0: // a turn is held for it
				covered--
			default:
				w = x
			}
			return w == nil
		})
		switch {
		case w == nil, len(l.turns)+l.asking > 0 && !l.asksBeside(w, now, trip):
			return time.Time{}
		case l.next.After(now):
			return l.next
		case w.Holds && l.awaitsFirst():
			return time.Time{}
		}
		if w.Cost > l.askingCost {
			l.ahead = 0 // the store has granted smaller costs immediately
		}
		w.asking, w.Horizon, l.released = true, l.horizon(w), false
		l.asking, l.askingCost, l.askHolds = l.asking+1, w.Cost, w.Holds
		w.wake()
	}
}

// awaitsFirst reports whether a call is asking that stands in no line yet. Its turn would be another one than that
// for which the line asks.
func (l *line) awaitsFirst() bool {
	f := l.firstAsk
	if f == nil || l.delayed {
		return l.delayed
	}
	f.n.Add(1) // before the look: EndFirst looks at it after it has freed the place
	if !f.taken.Load() {
		f.n.Add(-1)
		return false
	}
	l.delayed = true
	f.delayed = append(f.delayed, l)
	return true
}

// asksBeside reports whether a call asks while others ask and turns are held.
func (l *line) asksBeside(w *Waiter, now time.Time, trip time.Duration) bool {
	if l.supply.ofSlots() {
		return l.released && !w.AtOnce && l.askingCost == w.Cost
	}
	if !w.Holds || l.asking > 0 && (!l.askHolds || l.askingCost != w.Cost) {
		return false
	}
	if len(l.turns)+l.asking < l.ahead {
		return true
	}
	if l.supply.AtOnce {
		return false
	}
	comes := now
	if l.last.After(now) {
		comes = l.last
	}
	comes = comes.Add(l.supply.Every * time.Duration(int64(l.asking+1)*w.Cost))
	return !comes.After(now.Add(max(window, trip+slack)))
}

// horizon returns how far ahead a call may reserve that holds nothing.
func (l *line) horizon(w *Waiter) time.Duration {
	switch {
	case w.AtOnce:
		return 0
	case w.TakesSlots || l.supply.ofSlots():
		return Horizon
	}
	return l.widened()
}

// lead returns how long before its units come a call asks that holds nothing: as far ahead as it may reserve them, and
// as long as it would wait for them if it were alone.
func (l *line) lead(w *Waiter) time.Duration { return l.horizon(w) + w.Alone }

// widened returns Horizon, doubled for the races that the line has lost.
func (l *line) widened() time.Duration {
	h := Horizon << (l.lost / doubling)
	return min(h+h*time.Duration(l.lost%doubling)/doubling, mostHorizon)
}

// lose records that a call of another process was faster, win that the store has granted a call.
func (l *line) lose() {
	if l.widened() < mostHorizon {
		l.lost += doubling
	}
}

func (l *line) win() { l.lost = max(l.lost-1, 0) }

// estimate returns when a call that comes now would get its turn: as long after the last turn as the calls
// before it take, at the pace of the line or of the rate, whichever is slower.
func (l *line) estimate(now time.Time, class uint8, cost int64) time.Time {
	units := cost
	if l.supply.Prepaid {
		units = 0
	}
	for i := range l.classes[class:] {
		units += l.classes[int(class)+i].units
	}
	held := int64(0)
	for _, t := range l.turns {
		held += t.Cost
	}
	units = max(units-held, 0)
	if w := l.supply.Window; w > 0 {
		base := now
		if l.last.After(now) {
			base = l.last
		}
		windows := (held + units - 1) / l.supply.Units
		return add(base, w, windows)
	}
	every := max(l.supply.Every, l.passes.pace())
	base := now.Add(-every)
	if l.last.After(base) {
		base = l.last
	}
	return add(base, every, units)
}

// add returns t + n × d, or an instant that no call waits for.
func add(t time.Time, d time.Duration, n int64) time.Time {
	if d > 0 && n > int64(math.MaxInt64/4/d) {
		return t.Add(math.MaxInt64 / 4)
	}
	return t.Add(d * time.Duration(n))
}

// over reports whether the line has neither waiters nor turns, and none is being asked for or refunded.
func (l *line) over() bool { return l.n == 0 && len(l.turns) == 0 && l.asking == 0 && l.refunding == 0 }
