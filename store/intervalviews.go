package store

import (
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// Versions of an IntervalBucket keep a view each: what its own intervals have brought,
// less what any version has charged. A version goes by its own view alone. A charge of
// another version fills it and never overdraws it: a version is held to a larger burst
// and a faster rate, never to another's traffic.
//
// Versions of one period share the start of the interval, so that no more passes than the
// larger burst and the faster rate. Versions of different periods let no more pass than
// both by themselves: the tokens of one arrive when the other's don't.
//
// A view ends when its version hasn't charged for as long as it takes to fill: by then its
// own charges are given back, and what others have charged it takes over when it returns.
// The view of the version that charged last comes first and stays. There are at most four.
// A version that finds no room is denied until one has ended.
//
// Looks write nothing. A version's first charge begins its view, whether it passes or not:
// its interval begins with it.
//
// A view of a calendar that isn't the limit's own is brought to the present only by
// versions of that calendar; no other version has its windows. Until then it is filled as it
// stands.
//
// No refund gives back more than the view has had in use, at its lowest, since the charge
// (levels.go). Within an interval nothing is given back by time, so the charges of one
// count as one, as of its start.
type intervalView struct {
	numbers  engine.Numbers
	capacity int64
	start    int64
	used     int64
	floor    int64 // no refund of others takes used below it
	until    int64 // when the view ends if its version doesn't charge
	stand    int64 // the most that charges from before the latest refund may stand for
	began    int64 // when the view began; 0 if it was the only one
	lows     levels
}

const maxIntervalViews = 4

// mostAhead is more than any view has in use.
const mostAhead = 2 * MaxCost

type intervalViews struct {
	views [maxIntervalViews]intervalView
	n     int
	moved bool // the clock has been set back: that is written even if a charge is denied
}

// tokensOf returns what k intervals bring, at most used.
func tokensOf(k, units, used int64) int64 {
	if k >= ceilDiv(used, units) {
		return used
	}
	return k * units
}

// longestInterval is at least as long as any interval with this Numbers.Unit.
func longestInterval(unit int64) int64 {
	const hour = 3600 * 1_000_000
	if length := intervalLength(unit); length > 0 {
		return length
	}
	switch windowKind(-unit & 7) {
	case hourlyWindow:
		return 2 * hour
	case dailyWindow:
		return 50 * hour
	case weeklyWindow:
		return 9 * 24 * hour
	default:
		return 33 * 24 * hour
	}
}

// instantOf is the present as a view counts it.
func (v *intervalView) instantOf(now *Now) int64 {
	if v.numbers.Unit < 0 {
		return now.Wall
	}
	return now.Steady
}

// counts is for how many tokens the view says something: also where it is full, of charges
// from before a refund its levels must be known for as long as their receipts say that they
// stand.
func (v *intervalView) counts() int64 { return max(v.used, v.stand) }

// dated is the instant of charges made in the present interval.
func (v *intervalView) dated() int64 {
	if v.began == 0 {
		return v.start
	}
	return max(v.start, v.began)
}

// begin begins the lows, of a view that has none: as of before the present interval, or
// charges to come in it would take the place of what is in use now.
func (v *intervalView) begin() { v.lows.begin(v.dated()-1, whole(v.used)) }

// filled returns when the view says nothing more if it is not charged, or later.
func (v *intervalView) filled() int64 {
	length := longestInterval(v.numbers.Unit)
	return v.start + min(ceilDiv(v.counts(), v.numbers.Token)+1, exact/2/length)*length
}

// shares reports whether both views have the same intervals.
func (v *intervalView) shares(w *intervalView) bool { return v.numbers.Unit == w.numbers.Unit }

// ahead returns what other's intervals bring it until the last turn in v.
func (v *intervalView) ahead(other *intervalView) int64 {
	k := ceilDiv(max(v.used-v.capacity, 0), v.numbers.Token)
	if k == 0 {
		return 0
	}
	if !v.shares(other) {
		if v.numbers.Unit < 0 || other.numbers.Unit < 0 {
			return 0
		}
		turn := v.start + min(k, exact/2/v.numbers.Unit)*v.numbers.Unit
		k = max(turn-other.start, 0) / other.numbers.Unit
	}
	return tokensOf(k, other.numbers.Token, mostAhead)
}

// fill enters a charge of the version whose view is by.
func (v *intervalView) fill(by *intervalView, cost int64) {
	ahead := by.ahead(v)
	if filled := max(v.used, ahead) + cost; filled <= v.capacity+ahead {
		v.lows.charged(v.dated(), whole(v.used), whole(filled))
		v.used = filled
		return
	}
	v.used = max(v.used, v.capacity+ahead)
	v.lows.sink(units{})
	v.floor, v.stand = v.used, max(v.stand, v.used)
}

// intervalsOf takes a state apart and brings it to the present, as far as l knows how.
func (l *Limit) intervalsOf(now *Now, s *state) (b intervalViews) {
	if !s.Live {
		return b
	}
	v := &b.views[0]
	v.numbers, v.start, v.used, v.capacity, v.floor = s.Numbers, s.A, s.B, s.C, s.E
	b.n = 1
	if log := s.Log; len(log) > 0 {
		v.decode(&log)
		for len(log) > 0 && b.n < maxIntervalViews {
			w := &b.views[b.n]
			numbers, state, bounds := pop(&log), pop(&log), pop(&log)
			if numbers.At <= 0 || numbers.Units == 0 {
				break
			}
			w.numbers, w.start, w.used = engine.Numbers{Token: numbers.At, Unit: numbers.Units}, state.At, state.Units
			w.capacity, w.floor = bounds.At, bounds.Units
			w.decode(&log)
			b.n++
		}
	}
	for i := range b.n {
		v := &b.views[i]
		if b.moved = l.advance(now, v) || b.moved; s.Log == nil {
			v.until = v.filled()
		}
	}
	b.drop(now)
	if b.n > 0 && !b.anyUsed() {
		l.restart(now, &b)
	}
	if !b.inUse(now) {
		b.n = 0
	} else if b.n == 1 && b.views[0].stand == 0 {
		b.views[0].lows = levels{}
	}
	return b
}

// drop drops the views that have ended, but for the first.
func (b *intervalViews) drop(now *Now) {
	n := 0
	for i := range b.n {
		if v := &b.views[i]; i == 0 || v.left(now) > 0 {
			b.views[n] = *v
			n++
		}
	}
	clear(b.views[n:b.n])
	b.n = n
}

// inUse reports whether any view says more than that it is full, or would by now.
func (b *intervalViews) inUse(now *Now) bool {
	for i := range b.n {
		if v := &b.views[i]; v.counts() > 0 && v.left(now) > 0 {
			return true
		}
	}
	return false
}

func (b *intervalViews) anyUsed() bool {
	for i := range b.n {
		if b.views[i].used > 0 {
			return true
		}
	}
	return false
}

// restart begins the intervals of views that are all full with the next charge, as for a
// key never seen.
func (l *Limit) restart(now *Now, b *intervalViews) {
	for i := range b.n {
		switch v := &b.views[i]; {
		case v.numbers.Unit == l.numbers.Unit:
			v.start = l.opened(l.instant(now))
		case v.numbers.Unit > 0:
			v.start = now.Steady
		}
	}
}

// toFront makes the view at own the one that charged last.
func (b *intervalViews) toFront(now *Now, own int) {
	v := b.views[own]
	copy(b.views[1:own+1], b.views[:own])
	b.views[0] = v
	b.drop(now)
}

// advance brings a view to the present, and reports whether the clock has been set back.
func (l *Limit) advance(now *Now, v *intervalView) (moved bool) {
	at, own := v.instantOf(now), v.numbers.Unit == l.numbers.Unit
	if moved = v.start > at && own; moved {
		v.start = l.opened(at)
		v.until = min(v.until, v.filled())
		if v.began = 0; v.lows.n > 0 {
			v.lows.begin(anEternity, units{})
		}
	}
	var k int64
	if own {
		k = l.passed(v.start, at)
	} else if length := intervalLength(v.numbers.Unit); length > 0 {
		k = max(at-v.start, 0) / length
	}
	if k == 0 {
		return moved
	}
	tokens := tokensOf(k, v.numbers.Token, v.counts())
	v.used, v.floor, v.stand = max(v.used-tokens, 0), max(v.floor-tokens, 0), max(v.stand-tokens, 0)
	if own {
		v.start = l.moved(v.start, k, at)
	} else {
		v.start += k * intervalLength(v.numbers.Unit)
	}
	return moved
}

func (v *intervalView) decode(log *[]engine.Entry) {
	ends, lows := pop(log), pop(log)
	v.until, v.stand, v.began = ends.At, ends.Units, lows.Units
	for int64(v.lows.n) < min(lows.At, maxLevels) {
		e := pop(log)
		v.lows.pair[v.lows.n] = low{e.At, whole(e.Units)}
		v.lows.n++
	}
}

func (v *intervalView) encode(log []engine.Entry) []engine.Entry {
	log = append(log, engine.Entry{At: v.until, Units: v.stand}, engine.Entry{At: int64(v.lows.n), Units: v.began})
	for _, low := range v.lows.pair[:v.lows.n] {
		log = append(log, engine.Entry{At: low.at, Units: low.used.int()})
	}
	return log
}

// write puts the views into a state.
func (b *intervalViews) write(now *Now, s *state) {
	*s = state{}
	if !b.inUse(now) {
		return
	}
	v := &b.views[0]
	*s = state{Live: true, Numbers: v.numbers, A: v.start, B: v.used, C: v.capacity, E: v.floor}
	if b.n == 1 && v.stand == 0 {
		return
	}
	log := v.encode(make([]engine.Entry, 0, 16))
	for i := 1; i < b.n; i++ {
		w := &b.views[i]
		log = append(log, engine.Entry{At: w.numbers.Token, Units: w.numbers.Unit}, engine.Entry{At: w.start, Units: w.used}, engine.Entry{At: w.capacity, Units: w.floor})
		log = w.encode(log)
	}
	s.Log = log
}

// left is how long a view lasts at most if its version doesn't charge.
func (v *intervalView) left(now *Now) int64 { return v.until - v.instantOf(now) }

// plainInterval reports whether the state is that of the limit's version alone, without
// levels.
func (l *Limit) plainInterval(s *state) bool {
	return !s.Live || s.Log == nil && s.Numbers == l.numbers && s.C == l.capacity
}

// lifetimeOfIntervals is how long a state says more than that it is full.
func (l *Limit) lifetimeOfIntervals(now *Now, s *state) time.Duration {
	b, left := l.intervalsOf(now, s), int64(0)
	for i := range b.n {
		if v := &b.views[i]; !v.of(l) {
			left = max(left, v.left(now))
		} else if v.counts() > 0 {
			left = max(left, l.boundary(v.start, l.steps(v.counts()))-v.instantOf(now))
		}
	}
	return micros(left)
}

// of reports whether the view is the limit's own.
func (v *intervalView) of(l *Limit) bool { return v.numbers == l.numbers && v.capacity == l.capacity }

// view returns where the limit's own view is, or -1.
func (b *intervalViews) view(l *Limit) int {
	for i := range b.n {
		if b.views[i].of(l) {
			return i
		}
	}
	return -1
}

// beginIn makes the limit's view and returns where it is: in front, or -1 if there is no
// room.
func (l *Limit) beginIn(now *Now, b *intervalViews) int {
	if b.n == maxIntervalViews {
		return -1
	}
	v := &b.views[b.n]
	*v = intervalView{numbers: l.numbers, capacity: l.capacity, start: l.opened(l.instant(now))}
	clamped := false
	for i := range b.n {
		w := &b.views[i]
		if w.shares(v) {
			v.start = w.start
		}
		if w.lows.n == 0 {
			w.begin()
		}
	}
	for i := range b.n {
		w := &b.views[i]
		if most := l.capacity + w.ahead(v); w.used > most && most >= v.used {
			v.used, clamped = most, true
		} else if w.used <= most && w.used > v.used {
			v.used, clamped = w.used, false
		}
	}
	v.until = v.filled()
	if b.n++; b.n == 1 {
		return 0
	}
	// To charges made before it, it gives back nothing. They may be of an interval that it
	// shares.
	v.began = l.instant(now)
	if v.lows.begin(anEternity, units{}); clamped {
		v.floor = v.used
	} else {
		v.lows.charged(v.dated(), units{}, whole(v.used))
	}
	b.toFront(now, b.n-1)
	return 0
}

// beginInterval is begin for an IntervalBucket.
func (l *Limit) beginInterval(now *Now, s *state) {
	if !s.Live {
		return
	}
	b := l.intervalsOf(now, s)
	if begun := b.n > 0 && b.view(l) < 0 && l.beginIn(now, &b) >= 0; begun || b.moved {
		b.write(now, s)
	}
}

// stepIntervals is stepInterval on a state that has several versions or levels.
func (l *Limit) stepIntervals(now *Now, c *Charge, s *state, r *Result) {
	b, at := l.intervalsOf(now, s), l.instant(now)
	own, begun := b.view(l), false
	if own < 0 {
		was := b.n
		own = l.beginIn(now, &b)
		begun = own >= 0 && was > 0
	}
	if own < 0 {
		left := b.views[0].left(now)
		for i := range b.n {
			left = min(left, b.views[i].left(now))
		}
		*r = Result{OK: c.Cost == 0, ResetAfter: micros(left)}
		if c.Cost > l.largest {
			r.RetryAfter = Never
		} else if c.Cost > 0 {
			r.RetryAfter = micros(left)
		}
	} else {
		v := &b.views[own]
		used := l.answerInterval(at, v.start, v.used, c, r)
		if r.OK && c.Cost > 0 {
			r.Receipt.Instant = v.dated()
			before := v.used
			if used > v.capacity { // when it goes, no more is in use than there is room for beside it
				before = min(before, v.capacity-c.Cost)
			}
			b.enter(now, own, c.Cost, before, used)
			begun = true
		}
	}
	if c.Cost > 0 && (begun || b.moved) {
		b.write(now, s)
	}
}

// enter makes a charge in the view at own and in all others. It brings what is in use in its
// own from before, or from what is left of that when its turn comes, to used.
func (b *intervalViews) enter(now *Now, own int, cost, before, used int64) {
	v := &b.views[own]
	if v.lows.n > 0 {
		v.lows.charged(v.dated(), whole(before), whole(used))
	}
	v.used = used
	v.until = v.filled()
	b.toFront(now, own)
	for i := 1; i < b.n; i++ {
		b.views[i].fill(&b.views[0], cost)
	}
}

// stands returns what is in use for a charge with this mark when its interval is the one
// from start.
func (l *Limit) stands(r Receipt, start int64) int64 {
	return r.Mark - tokensOf(l.between(r.Instant, start), l.spec.Units, r.Mark)
}

// between is how many intervals end in (at, start], given that start is where one does.
func (l *Limit) between(at, start int64) int64 {
	if l.calendar() {
		return l.passed(at, start)
	}
	return ceilDiv(max(start-at, 0), l.period)
}

// oweInterval raises the cost of a charge by diff.
func (l *Limit) oweInterval(now *Now, b *intervalViews, c *Charge, diff int64) Receipt {
	own := b.view(l)
	if own < 0 {
		own = l.beginIn(now, b)
	}
	if own < 0 { // there is no room
		return Receipt{Instant: c.Receipt.Instant, Cost: c.Receipt.Cost}
	}
	v := &b.views[own]
	mark := min(l.stands(c.Receipt, v.start), v.used)
	debt := max(0, min(diff, l.capacity+MaxCost-v.used))
	if v.floor > 0 && mark == v.floor && mark == v.used {
		v.floor += debt
	}
	at := v.dated()
	if v.lows.n > 0 { // it is as a charge made now
		low, from, all := v.lows.since(c.Receipt.Instant)
		if mark = min(mark, low.int()); !all {
			mark = min(mark, l.stands(c.Receipt, from+1))
		}
	}
	receipt := Receipt{Instant: at, Mark: mark + debt, Cost: c.Cost - diff + debt}
	if b.n > 1 { // other views know the debt as of now, and what it cost before as of then
		receipt.Instant = c.Receipt.Instant
		receipt.Mark += tokensOf(l.between(receipt.Instant, v.start), l.spec.Units, mostAhead)
	}
	b.enter(now, own, debt, v.used, v.used+debt)
	return receipt
}

// giveBackInterval lowers the cost of a charge by refund.
func (l *Limit) giveBackInterval(b *intervalViews, c *Charge, refund int64) Receipt {
	receipt := c.Receipt
	receipt.Cost = c.Cost
	for i := range b.n {
		v := &b.views[i]
		if v.of(l) {
			receipt = l.giveBackOwn(v, c, refund)
			continue
		}
		if v.lows.n == 0 || v.used > v.capacity || v.numbers.Unit < 0 != (l.numbers.Unit < 0) {
			continue // nothing is known of the charge here
		}
		used, _, all := v.lows.since(c.Receipt.Instant)
		if back := min(refund, used.int(), v.used-v.floor); all && back > 0 {
			v.stand = max(v.stand, v.used)
			v.lows.refund(c.Receipt.Instant, whole(back))
			v.used -= back
		}
	}
	return receipt
}

// giveBackOwn gives back in the view of the version that made the charge.
func (l *Limit) giveBackOwn(v *intervalView, c *Charge, refund int64) Receipt {
	mark := min(l.stands(c.Receipt, v.start), v.used)
	if refund > 0 {
		waiting, behind := v.used > l.capacity, v.used-mark
		back := refunded(whole(refund), whole(mark), whole(behind), whole(l.capacity), waiting).int()
		if waiting && behind > 0 {
			// Those behind take what comes until their turns. If more were given back,
			// it would find the bucket full then, and take their part along.
			back = max(min(back, mark-l.steps(v.used-l.capacity)*l.spec.Units), 0)
		}
		if v.lows.n > 0 {
			used, from, all := v.lows.since(c.Receipt.Instant)
			if back = min(back, used.int()); !all { // no refund was made until then
				back = min(back, l.stands(c.Receipt, from+1))
			}
		}
		own := mark == v.floor && behind == 0
		if own {
			v.floor -= back
		} else {
			back = max(min(back, v.used-v.floor), 0)
		}
		if waiting && c.Cost > 0 {
			v.floor = max(v.floor, mark-back)
		}
		if waiting && behind > 0 && back > 0 {
			v.floor = max(v.floor, v.used-l.capacity+behind)
		}
		if back > 0 && (v.lows.n > 0 || behind > 0) {
			if v.lows.n == 0 {
				v.begin()
			}
			v.stand = max(v.stand, v.used)
			v.lows.refund(c.Receipt.Instant, whole(back))
		}
		v.used -= back
		mark -= back
	}
	// It is still a charge of then: what was in use at its lowest since goes on to bound it.
	gone := c.Receipt.Mark - l.stands(c.Receipt, v.start)
	return Receipt{Instant: c.Receipt.Instant, Mark: mark + gone, Cost: c.Cost}
}
