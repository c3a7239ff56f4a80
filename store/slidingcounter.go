package store

import (
	"math/bits"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// SlidingCounter estimates a sliding window from two fixed ones. It assumes that the
// charges of the previous window were spread evenly, and counts the part of them that
// the sliding window still covers. If windows have length T, prev and cur were charged
// in the previous and in the present window, and e of the present one has elapsed, then
// a charge of c passes if
//
//	prev*(T-e) + (cur+c)*T <= Units*T
//
// This is Cloudflare's rule
// (https://blog.cloudflare.com/counting-things-a-lot-of-different-things/), in
// integers. Windows are aligned to 1970.
//
// State.A is where the present window begins, in microseconds since Epoch. State.B is
// what was charged in it, State.C what was charged in the one before, and State.D what
// has been reserved in the one after.
//
// A charge that waits for an instant of the present window counts in it from now on.
// No later charge passes before it, since there would have been room for it too.
// While something is reserved in the next window, no charge passes in this one: they would
// count in the window before it, and take room from those who were told their turn.
// Nothing is reserved further ahead than the length of a window, because the turn would
// depend on what is charged in between.

func (l *Limit) workOutCounter() {
	l.largest = l.spec.Units
	l.numbers = engine.Numbers{Unit: l.period}
	l.patience = min(l.patience, l.period)
}

// counterStart returns the start of the window of the given length that contains at.
func counterStart(at, length int64) int64 {
	return at - floorMod(at+Epoch*1_000_000, length)
}

// Versions of a SlidingCounter with different periods keep a view each: windows of their own
// length. A version goes by its own view alone, so it lets through no more than by itself.
// Its charges fill the views of others and never overdraw them. A version's first charge,
// whether it passes or not, begins its view with the most that counts in another.
//
// A turn is reserved in its version's view; in others it counts from when it is reserved. A
// refund returns to its version's view only. A view ends when nothing in it counts any more,
// or no charge of its own version, but that of the version that charged last, which comes
// first. Of more than four, the last one ends.
//
// The first view is the State, whose E is the Units that it was charged under. The Log
// begins with the window of its last charge. Of each other view it has period and units,
// A and B, C and D, and the window of the last charge. State.E is 0 and there is no Log if
// there is one view.
type counterView struct {
	length     int64
	units      int64 // of the version when it last charged; 0: not known
	a, b, c, d int64
	last       int64 // where the window of its last charge begins
}

const maxCounterViews = 4

type counterViews struct {
	views [maxCounterViews]counterView
	n     int
	moved bool // the clock has been set back: that is written even if a charge is denied
}

// turn moves a view on to the window that contains at, and reports whether the clock has
// been set back: then what was counted stays in that window.
func (v *counterView) turn(at int64) (moved bool) {
	if start := counterStart(at, v.length); start != v.a {
		for n := min((start-v.a)/v.length, 3); n > 0; n-- {
			v.c, v.b, v.d = v.b, v.d, 0
		}
		moved = start < v.a
		v.a, v.last = start, min(v.last, start+v.length)
	}
	return moved
}

// counts returns how much counts of what a view has.
func (v *counterView) counts(at int64) int64 {
	return v.b + v.d + weighed(v.c, v.a+v.length-at, v.length)
}

// ends returns when nothing in the view counts any more.
func (v *counterView) ends() int64 {
	switch {
	case v.d > 0:
		return v.a + 3*v.length
	case v.b > 0:
		return v.a + 2*v.length
	}
	return v.a + v.length
}

// read reads the first view of a state, brought to at.
func (v *counterView) read(at int64, s *state) (moved bool) {
	v.length, v.a, v.b, v.c, v.d = s.Numbers.Unit, s.A, s.B, s.C, s.D
	if v.last = s.A; len(s.Log) > 0 {
		v.units, v.last = s.E, s.Log[0].At
	} else if v.d > 0 {
		v.last += v.length
	}
	return v.turn(at)
}

// countersOf takes a state apart and brings it to at: views that have ended are gone.
func (l *Limit) countersOf(at int64, s *state) (b counterViews) {
	if !s.Live {
		return b
	}
	b.moved, b.n = b.views[0].read(at, s), 1
	for log := s.Log[min(1, len(s.Log)):]; len(log) > 0 && b.n < maxCounterViews; {
		numbers, present, others, last := pop(&log), pop(&log), pop(&log), pop(&log)
		if numbers.At <= 0 {
			break
		}
		v := &b.views[b.n]
		*v = counterView{numbers.At, numbers.Units, present.At, present.Units, others.At, others.Units, last.At}
		b.moved = v.turn(at) || b.moved
		b.n++
	}
	if b.drop(at); b.n == 1 && !b.views[0].alive(at) {
		b.n = 0
	}
	return b
}

// alive reports whether anything counts in a view, and any charge of its own version.
func (v *counterView) alive(at int64) bool {
	return v.b|v.c|v.d != 0 && at < v.last+2*v.length
}

// drop drops the views that have ended, but for the first.
func (b *counterViews) drop(at int64) {
	n := 1
	for _, v := range b.views[1:b.n] {
		if v.alive(at) {
			b.views[n] = v
			n++
		}
	}
	b.n = n
}

// write puts the views into a state.
func (b *counterViews) write(s *state) {
	*s = state{}
	if b.n == 0 {
		return
	}
	v := &b.views[0]
	*s = state{Live: true, Numbers: engine.Numbers{Unit: v.length}, A: v.a, B: v.b, C: v.c, D: v.d}
	if b.n == 1 {
		return
	}
	s.E, s.Log = v.units, make([]engine.Entry, 1, 4*b.n-3)
	s.Log[0].At = v.last
	for _, w := range b.views[1:b.n] {
		s.Log = append(s.Log, engine.Entry{At: w.length, Units: w.units}, engine.Entry{At: w.a, Units: w.b}, engine.Entry{At: w.c, Units: w.d}, engine.Entry{At: w.last})
	}
}

// find returns where the view of the limit's version is, or -1.
func (b *counterViews) find(l *Limit) int {
	for i := range b.n {
		if b.views[i].length == l.period {
			return i
		}
	}
	return -1
}

// begin begins the view of the limit's version, in front.
func (b *counterViews) begin(l *Limit, at int64) {
	v := counterView{length: l.period, units: l.spec.Units, a: counterStart(at, l.period)}
	v.last = v.a
	for _, w := range b.views[:b.n] {
		v.b = max(v.b, min(w.counts(at), l.spec.Units))
	}
	b.n = min(b.n+1, maxCounterViews)
	b.views[b.n-1] = v
	b.toFront(at, b.n-1)
}

func (b *counterViews) toFront(at int64, own int) {
	v := b.views[own]
	copy(b.views[1:own+1], b.views[:own])
	b.views[0] = v
	b.drop(at)
}

// fill enters a charge of the version whose view is in front into all others.
func (b *counterViews) fill(at, cost int64) {
	for i := 1; i < b.n; i++ {
		if v := &b.views[i]; v.units == 0 {
			v.b += cost
		} else {
			v.b += max(0, min(cost, v.units-v.counts(at)))
		}
	}
}

// plainCounter reports whether the state is that of the limit's version alone.
func (l *Limit) plainCounter(s *state) bool {
	return !s.Live || s.Log == nil && s.Numbers.Unit == l.period
}

// beginCounter is begin for a SlidingCounter.
func (l *Limit) beginCounter(now *Now, s *state) {
	if !s.Live {
		return
	}
	b := l.countersOf(now.Wall, s)
	if b.n == 0 {
		return
	}
	begun := b.find(l) < 0
	if begun {
		b.begin(l, now.Wall)
	}
	if begun || b.moved {
		b.write(s)
	}
}

// lifetimeOfCounters is how long anything in a state counts.
func (l *Limit) lifetimeOfCounters(now *Now, s *state) time.Duration {
	b, left := l.countersOf(now.Wall, s), int64(0)
	for _, v := range b.views[:b.n] {
		if v.b|v.c|v.d != 0 {
			left = max(left, v.ends()-now.Wall)
		}
	}
	return micros(left)
}

// weighed returns how much of a window's count still counts if covered of its length is
// covered. It rounds up, so that nothing passes that the rule denies.
func weighed(count, covered, length int64) int64 {
	hi, lo := bits.Mul64(uint64(count), uint64(min(covered, length)))
	part, left := bits.Div64(hi, lo, uint64(length))
	if left > 0 {
		part++
	}
	return int64(part)
}

func (l *Limit) stepCounter(now *Now, c *Charge, s *state, r *Result) {
	if !l.plainCounter(s) {
		b := l.countersOf(now.Wall, s)
		own, begun := b.find(l), false
		if own < 0 {
			begun = b.n > 0
			b.begin(l, now.Wall)
			own = 0
		}
		if l.answerCounter(now.Wall, c, &b.views[own], r); r.Receipt.Cost > 0 {
			b.toFront(now.Wall, own)
			b.fill(now.Wall, c.Cost)
			b.views[0].units, begun = l.spec.Units, true
		}
		if c.Cost > 0 && (begun || b.moved) {
			b.write(s)
		}
		return
	}
	var v counterView
	moved := false
	if s.Live {
		moved = v.read(now.Wall, s)
	} else {
		v.length, v.a = l.period, counterStart(now.Wall, l.period)
	}
	if l.answerCounter(now.Wall, c, &v, r); r.Receipt.Cost > 0 || c.Cost > 0 && moved {
		if s.Live = v.b|v.c|v.d != 0; !s.Live {
			*s = state{}
			return
		}
		s.Numbers, s.A, s.B, s.C, s.D = l.numbers, v.a, v.b, v.c, v.d
	}
}

// answerCounter answers a charge by a view, and enters it there if it passes.
func (l *Limit) answerCounter(at int64, c *Charge, v *counterView, r *Result) {
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	default:
		window, free := l.freesCounter(v, at, c.Cost)
		wait, within := free-at, min(l.maxWait(c), v.length)
		if wait > within {
			r.OK, r.RetryAfter = false, micros(wait-within)
			break
		}
		r.Delay = micros(wait)
		v.last = v.a + window*v.length
		r.Receipt = Receipt{Instant: v.last, Mark: c.Cost, Cost: c.Cost}
		if window == 0 {
			v.b += c.Cost
		} else {
			v.d += c.Cost
		}
	}
	if v.d == 0 {
		r.Remaining = max(0, l.spec.Units-v.counts(at))
	}
	if v.b|v.c|v.d != 0 {
		r.ResetAfter = micros(v.ends() - at)
	}
}

// freesCounter returns the first instant at which cost, at most the limit, passes if
// no other charge comes, and the number of that instant's window counted from the present
// one.
func (l *Limit) freesCounter(v *counterView, at, cost int64) (window, free int64) {
	counts, length := [...]int64{v.c, v.b, v.d, 0}, v.length
	for ; window < 3; window++ {
		prev, room := counts[window], l.spec.Units-cost-counts[window+1]
		if room < 0 || window == 0 && v.d > 0 {
			continue
		}
		gone := int64(0) // elapsed part of the window at which prev's share leaves enough room
		if prev > room {
			hi, lo := bits.Mul64(uint64(room), uint64(length))
			covered, _ := bits.Div64(hi, lo, uint64(prev))
			gone = length - int64(covered)
		}
		if gone < length {
			return window, max(at, v.a+window*length+gone)
		}
	}
	return window, v.a + window*length
}

// The receipt says which window a charge is in, and its Mark how much of the charge
// that window holds. The new cost counts there as if it had from the start. If that
// window no longer counts, a debt counts in the present one.
func (l *Limit) amendCounter(now *Now, c *Charge, s *state) Receipt {
	receipt, diff := c.Receipt, c.Cost-c.Receipt.Cost
	receipt.Cost = c.Cost
	b := l.countersOf(now.Wall, s)
	own := b.find(l)
	if own < 0 {
		if diff <= 0 {
			return receipt
		}
		b.begin(l, now.Wall)
		own = 0
	}
	v := &b.views[own]
	count := v.counted(receipt.Instant - v.a)
	if diff <= 0 {
		if count == nil {
			return receipt
		}
		refund := min(-diff, receipt.Mark, *count)
		receipt.Mark -= refund
		if *count -= refund; refund > 0 {
			b.write(s)
		}
		return receipt
	}
	if count == nil || c.Receipt.Cost == 0 {
		count, receipt.Instant, receipt.Mark = &v.b, v.a, 0
	}
	debt := min(diff, max(0, MaxCost-*count))
	*count += debt
	receipt.Mark += debt
	receipt.Cost -= diff - debt
	v.units, v.last = l.spec.Units, max(v.last, receipt.Instant)
	b.toFront(now.Wall, own)
	b.fill(now.Wall, debt)
	b.write(s)
	return receipt
}

// counted returns the count of the window that begins after the present one by after,
// or nil if none is kept.
func (v *counterView) counted(after int64) *int64 {
	switch after {
	case -v.length:
		return &v.c
	case 0:
		return &v.b
	case v.length:
		return &v.d
	}
	return nil
}
