package store

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// Two versions of a limit may be in use at once, while a program is being replaced or
// plans disagree. What one of them lets pass counts for the other, but neither can count
// in the other's numbers: so a bucket keeps a view for each.
//
// Each version goes by its own view. A charge of another version fills it and never
// overdraws it: a version is held to a larger burst and a faster rate, never to another's
// traffic. So no more passes than the larger burst and the faster rate. For take the last
// charge that overdrew, in any span, the view of the version that made the span's last
// charge. Behind it that view counts everything; up to it, the same holds of the version
// that made that one.
//
// A turn reserved, or a debt, is an instant: where a charge overdraws a view, that is full
// as of the instant at which the turn comes. A view that isn't overdrawn counts a turn
// when it is reserved.
//
// A view ends when it is full again, or when its version hasn't charged for as long as it
// takes to fill, at most an hour, and has no turns ahead. The view of the version that
// charged last stays. A version without a view takes over the most that is consumed in
// another; if there is no room for one more view, it is held to all there are, and charges
// all.
//
// Looks write nothing. A version's first charge begins its view, whether it passes or not:
// what its answer says about when a charge passes must stay true, and a version with less
// capacity than is consumed would otherwise be denied for as long as the other's traffic
// takes to flow off, or a key for as long as a server's clock was set back.

// A bucketView is a bucket as one version counts it.
type bucketView struct {
	numbers engine.Numbers
	scale   scale
	// burst is the capacity in tokens. It is negative if the state doesn't say: the version
	// that made the view has at least as much.
	burst int64
	tat   units
	floor units // a tat in the future below which no refund may go (giveBack); 0: none
	turn  units // the latest that has been told while there are lows; 0: none
	last  int64 // when its version last charged, in microseconds
	lows  levels
}

// maxViews is how many versions a bucket tells apart.
const maxViews = 4

// A bucket is a state taken apart.
type bucket struct {
	views [maxViews]bucketView
	n     int
	last  int64 // when the state was written, in microseconds
	mark  int64 // the latest mark that a receipt may have which refunds don't know of
	// moved: the clock has been set back, or a view was overdrawn while its burst wasn't
	// known. That is written even if a charge is denied.
	moved bool
}

// longestView is how long a view is kept at most whose version doesn't charge.
const longestView = int64(time.Hour / time.Microsecond)

// full is the capacity; a burst that isn't known bounds nothing.
func (v *bucketView) full() units {
	if v.burst < 0 {
		return v.scale.within(longest)
	}
	return product(v.burst, v.numbers.Token)
}

func (v *bucketView) at(now int64) units { return v.scale.instant(now) }

// used is the number of units in use at now.
func (v *bucketView) used(now int64) units { return greater(v.tat.minus(v.at(now)), units{}) }

// ahead is the instant, as a length of time from now, until which turns and debts reach.
func (v *bucketView) ahead(now int64) units {
	if v.burst < 0 { // what is ahead is known with the burst
		return units{}
	}
	return greater(v.tat.minus(v.full()).minus(v.scale.exactly(now)), units{})
}

// begin begins the lows, of a view that has none.
func (v *bucketView) begin(now int64) {
	if v.lows.n == 0 {
		v.lows.begin(now, v.used(now))
		v.tell(now)
	}
}

// charged records that a charge has brought what is in use from before to the present use.
func (v *bucketView) charged(now int64, before units) {
	if v.lows.n > 0 {
		v.lows.charged(now, before, v.used(now))
		v.tell(now)
	}
}

// tell notes the latest turn.
func (v *bucketView) tell(now int64) {
	if turn := v.tat.minus(v.full()); v.at(now).less(turn) && (v.turn == units{} || v.turn.less(turn)) {
		v.turn = turn
	}
}

// told is how long it is until the last turn comes. A refund may have left less in use than
// shows it.
func (v *bucketView) told(now int64) units {
	ahead := v.ahead(now)
	if v.turn == (units{}) {
		return ahead
	}
	return greater(ahead, v.turn.minus(v.at(now)))
}

// ended reports whether the view of a version beside another has ended.
func (v *bucketView) ended(now int64) bool {
	idle := now >= v.last+min(v.scale.micros(v.full()), longestView)
	return v.tat.less(v.at(now).plus(units{lo: 1})) || idle && !v.told(now).positive()
}

// shift moves everything by so many microseconds into the past.
func (v *bucketView) shift(by int64) {
	back := v.scale.length(by / v.scale.Tick())
	v.tat = v.tat.minus(back)
	for _, at := range []*units{&v.floor, &v.turn} {
		if *at != (units{}) {
			*at = at.minus(back)
		}
	}
	v.last -= by
	for i := range v.lows.n {
		v.lows.pair[i].at -= by
	}
}

// Instants in a Log are exact: units, or whole ticks and the units beyond them.
func (s scale) entry(u units) engine.Entry {
	if !s.Wide {
		return engine.Entry{At: u.int()}
	}
	ticks, beyond := u.over(s.PerTick)
	return engine.Entry{At: ticks.int(), Units: beyond}
}

func (s scale) ofEntry(e engine.Entry) units {
	if !s.Wide {
		return whole(e.At)
	}
	return s.length(e.At).plus(whole(e.Units))
}

// The Log begins with the last write and the latest mark. For each view follow when it
// was last charged and the number of its levels; its floor; its turn; and its levels. The second
// view comes with its numbers, its tat, and its burst before that. What a level of a wide
// scale has beyond its ticks is an Entry of its own.

// A missing number is 0: another program may have written a text at a server's key.
func pop(log *[]engine.Entry) (e engine.Entry) {
	if len(*log) > 0 {
		e, *log = (*log)[0], (*log)[1:]
	}
	return e
}

func (v *bucketView) decode(log *[]engine.Entry) {
	last, floor, turn := pop(log), pop(log), pop(log)
	v.last, v.floor, v.turn = last.At, v.scale.ofEntry(floor), v.scale.ofEntry(turn)
	for int64(v.lows.n) < min(last.Units, maxLevels) {
		e := pop(log)
		used := engine.Entry{At: e.Units}
		if v.scale.Wide {
			used.Units = pop(log).At
		}
		v.lows.pair[v.lows.n] = low{e.At, v.scale.ofEntry(used)}
		v.lows.n++
	}
}

func (v *bucketView) encode(log []engine.Entry) []engine.Entry {
	log = append(log, engine.Entry{At: v.last, Units: int64(v.lows.n)}, v.scale.entry(v.floor), v.scale.entry(v.turn))
	for _, l := range v.lows.pair[:v.lows.n] {
		used := v.scale.entry(l.used)
		if log = append(log, engine.Entry{At: l.at, Units: used.At}); v.scale.Wide {
			log = append(log, engine.Entry{At: used.Units})
		}
	}
	return log
}

// bucketOf takes a state apart and brings it to now: views that have ended are gone.
func bucketOf(now int64, s *state) (b bucket) {
	if b.last, b.mark = now, now; !s.Live {
		return b
	}
	b.n = 1
	v := &b.views[0]
	v.numbers, v.scale, v.burst, v.last = s.Numbers, scaleOf(s.Numbers.Unit), s.C, now
	v.tat = v.scale.read(s.A, s.Low)
	if len(s.Log) == 0 {
		if s.B > 0 {
			ahead := whole(s.B)
			if v.scale.Wide {
				ahead = v.scale.length(s.B)
			}
			top := v.at(now).plus(v.full()).plus(ahead)
			v.tat, b.moved = lesser(v.tat, top), top.less(v.tat)
		} else {
			v.burst = -min(v.used(now).upOver(s.Numbers.Token), 2*MaxCost) // no burst is larger
		}
		if v.used(now) == (units{}) {
			b.n = 0
		}
		return b
	}
	b.last, b.mark = s.Log[0].At, s.Log[0].Units
	log := s.Log[1:]
	v.decode(&log)
	for len(log) > 0 && b.n < maxViews {
		n, tat, burst := pop(&log), pop(&log), pop(&log)
		if n.At <= 0 || n.Units < 8 {
			break
		}
		w := &b.views[b.n]
		w.numbers, w.scale, w.burst = engine.Numbers{Token: n.At, Unit: n.Units}, scaleOf(n.Units), burst.At
		w.tat = w.scale.ofEntry(tat)
		w.decode(&log)
		b.n++
	}
	if now < b.last { // the clock was set back
		by := b.last - now
		b.last, b.mark, b.moved = now, b.mark-by, true
		for i := range b.n {
			b.views[i].shift(by)
		}
	}
	b.tidy(now)
	return b
}

// tidy drops what says nothing more at now.
func (b *bucket) tidy(now int64) {
	latest := 0
	for i := range b.n {
		if b.views[i].last >= b.views[latest].last {
			latest = i
		}
	}
	b.endAll(now, latest)
	for i := range b.n {
		if v := &b.views[i]; !v.at(now).less(v.floor) {
			v.floor = units{}
		}
	}
	if b.n == 1 && b.mark <= now {
		b.views[0].lows, b.views[0].turn = levels{}, units{}
		if v := &b.views[0]; v.used(now) == (units{}) {
			b.n = 0
		}
	}
}

// endAll drops the views that have ended, except one, and returns where that is then.
func (b *bucket) endAll(now int64, except int) (at int) {
	n := 0
	for i := range b.n {
		switch v := &b.views[i]; {
		case i == except:
			at = n
		case v.ended(now):
			b.mark = max(b.mark, v.scale.micros(v.tat))
			continue
		}
		b.views[n] = b.views[i]
		n++
	}
	clear(b.views[n:b.n])
	b.n = n
	return at
}

// write puts a bucket into a state.
func (b *bucket) write(now int64, s *state) {
	*s = state{}
	if b.n == 0 {
		return
	}
	v := &b.views[0]
	s.Live, s.Numbers = true, v.numbers
	s.A, s.Low = v.scale.write(v.tat)
	if b.n == 1 && b.mark <= now {
		if ahead := v.tat.minus(v.at(now)).minus(v.full()); ahead.positive() {
			s.B, s.C = ahead.int(), v.burst
			if v.scale.Wide {
				s.B = ahead.upOver(v.scale.PerTick)
			}
		}
		return
	}
	s.C = v.burst
	var few [16]engine.Entry
	log := v.encode(append(few[:0], engine.Entry{At: now, Units: b.mark}))
	for i := 1; i < b.n; i++ {
		w := &b.views[i]
		log = append(log, engine.Entry{At: w.numbers.Token, Units: w.numbers.Unit}, w.scale.entry(w.tat), engine.Entry{At: w.burst})
		log = w.encode(log)
	}
	s.Log = slices.Clone(log)
}

// versionOf returns what receipts tell versions apart by.
func versionOf(n engine.Numbers, burst int64) uint16 {
	const odd = 0x9e3779b97f4a7c15
	h := (uint64(n.Token)*odd ^ uint64(n.Unit)) * odd
	h = (h ^ h>>29 ^ uint64(burst)) * odd
	return uint16(h>>48) &^ raised
}

// raised says in a Receipt's Version that settling has raised the cost.
const raised = 1

// find returns the limit's own view, or -1.
func (l *Limit) find(now int64, b *bucket) int {
	for i := range b.n {
		v := &b.views[i]
		if v.numbers != l.numbers {
			continue
		}
		if v.burst == l.burst && v.burst >= 0 {
			return i
		}
		if v.burst < 0 && l.burst >= -v.burst {
			v.burst = l.burst
			if top := v.at(now).plus(l.full); top.less(v.tat) {
				v.tat, b.moved = top, true
				v.lows.sink(units{})
			}
			b.tidy(now) // it may have ended
			return l.find(now, b)
		}
	}
	return -1
}

// show returns the views that a charge of the limit goes by, from the first up to but not
// including the last: its own, or if there is no room for that, all. If it has none yet, its
// view is made. changed reports that a charge that is denied writes the bucket too.
func (l *Limit) show(now int64, b *bucket) (first, last int, changed bool) {
	if i := l.find(now, b); i >= 0 {
		return i, i + 1, b.moved
	}
	if b.n == maxViews {
		return 0, maxViews, b.moved
	}
	own := b.n
	v := &b.views[own]
	*v = bucketView{numbers: l.numbers, scale: l.scale, burst: l.burst, tat: l.scale.instant(now), last: now}
	if b.n++; b.n == 1 {
		return 0, 1, false
	}
	clamped := false
	for i := range own {
		tat, over := l.takeOver(now, v, &b.views[i])
		if v.tat.less(tat) {
			v.tat, clamped = tat, over
		}
	}
	// To charges made before it, it gives back nothing.
	if v.lows.begin(anEternity, units{}); !clamped {
		v.charged(now, units{})
	}
	own = b.endAll(now, own)
	return own, own + 1, true
}

// takeOver returns the tat of a new view by what is consumed in another, and whether that is
// more than it has room for.
func (l *Limit) takeOver(now int64, v, other *bucketView) (tat units, clamped bool) {
	other.begin(now)
	// Turns and debts stay where they are in time.
	ahead := other.ahead(now)
	used := greater(other.tat.minus(other.scale.exactly(now)), units{}).minus(ahead)
	tat = l.scale.exactly(now).plus(share(used, l.token, other.numbers.Token, l.full.plus(l.most)))
	tat = tat.plus(lesser(other.scale.convert(ahead, l.scale), l.most))
	if top := v.top(now, other); top.less(tat) {
		return top, true
	}
	return tat, false
}

// top is the latest tat to which a charge of another version, whose view is other, may
// fill this one.
func (v *bucketView) top(now int64, other *bucketView) units {
	from := v.at(now)
	if ahead := other.ahead(now); ahead.positive() {
		from = v.scale.exactly(now).plus(lesser(other.scale.convert(ahead, v.scale), v.scale.within(longest)))
	}
	return from.plus(v.full())
}

// enter makes a charge of the version whose views are those from first up to last. It goes
// when there are needs tokens; a debt, whose needs are negative, is owed at once. Of what is
// in use now, no more is when a charge that waits goes than there is room for beside it.
func (b *bucket) enter(now, cost, needs int64, first, last int) {
	for i := first; i < last; i++ {
		v := &b.views[i]
		used := v.used(now)
		v.tat = v.at(now).plus(used).plus(product(cost, v.numbers.Token))
		if needs >= 0 {
			used = lesser(used, greater(v.full().minus(product(needs, v.numbers.Token)), units{}))
		}
		v.charged(now, used)
	}
	b.last = now
	if last-first > 1 {
		return
	}
	own := &b.views[first]
	own.last = now
	for i := range b.n {
		if i == first {
			continue
		}
		v := &b.views[i]
		used := v.used(now)
		was := v.at(now).plus(used)
		filled, top := was.plus(product(cost, v.numbers.Token)), v.top(now, own)
		if top.less(filled) {
			v.tat = greater(was, top)
			v.lows.sink(units{})
			v.tell(now)
			continue
		}
		v.tat = filled
		v.charged(now, used)
	}
}

// stepViews is stepBucket in units of 128 bits, for any state. Wide scales need it; for
// states without a Log of all others a test holds the two to the same answers.
func (l *Limit) stepViews(now *Now, c *Charge, s *state, r *Result) {
	b := bucketOf(now.Steady, s)
	first, last, changed := l.show(now.Steady, &b)
	*r = Result{OK: true}
	for i := first; i < last; i++ {
		l.ask(now.Steady, c, &b.views[i], r)
	}
	if r.RetryAfter == Never && c.Cost <= l.largest && last-first > 1 { // until a view ends
		for i := range b.n {
			r.RetryAfter = min(r.RetryAfter, b.views[i].left(now.Steady))
		}
	}
	if c.Cost > 0 && r.OK {
		needs := c.Cost
		if l.spec.Debt {
			needs = 0
		}
		b.enter(now.Steady, c.Cost, needs, first, last)
		mark := b.views[first].tat
		if last-first > 1 { // as if it had been alone
			mark = l.scale.instant(now.Steady).plus(product(c.Cost, l.token))
			b.mark = max(b.mark, l.scale.micros(mark))
		}
		r.Receipt = Receipt{Instant: now.Steady, Cost: c.Cost, Version: l.version}
		r.Receipt.Mark, r.Receipt.Low = l.scale.write(mark)
		b.write(now.Steady, s)
	} else if r.Delay = 0; changed && c.Cost > 0 {
		b.write(now.Steady, s)
	}
	r.Remaining = l.room
	for i := first; i < last; i++ {
		v := &b.views[i]
		queue, used := product(l.room-l.burst, v.numbers.Token), v.used(now.Steady)
		left, _ := v.full().plus(queue).minus(used).over(v.numbers.Token)
		r.Remaining = max(min(r.Remaining, left.int()), 0)
		r.ResetAfter = max(r.ResetAfter, v.scale.wait(used))
	}
}

// left is how long the view lasts if it isn't charged.
func (v *bucketView) left(now int64) time.Duration {
	idle := micros(max(v.last+min(v.scale.micros(v.full()), longestView)-now, 0))
	return max(min(v.scale.wait(v.used(now)), max(idle, v.scale.wait(v.told(now)))), micros(1))
}

// ask answers a charge of the limit by one view, in addition to what another has
// answered.
func (l *Limit) ask(now int64, c *Charge, v *bucketView, r *Result) {
	full, own := v.full(), product(c.Cost, v.numbers.Token)
	if l.spec.Debt {
		own = units{}
	}
	queue := product(l.room-l.burst, v.numbers.Token)
	short, allowed := v.used(now).plus(own).minus(full), queue
	if c.MaxWait > 0 {
		within := v.scale.length(l.maxWait(c) / v.scale.Tick())
		if queue == (units{}) || within.less(allowed) {
			allowed = within
		}
	}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest, allowed.less(short) && allowed.less(own.minus(full)):
		r.OK, r.RetryAfter = false, Never
	case allowed.less(short):
		r.OK, r.RetryAfter = false, max(r.RetryAfter, v.scale.wait(short.minus(allowed)))
	default:
		r.Delay = max(r.Delay, v.scale.wait(short))
	}
}

// beginView is begin for a TokenBucket or LeakyBucket.
func (l *Limit) beginView(now *Now, s *state) {
	if !s.Live || l.plainBucket(l.scale.At(now.Steady), s) {
		return
	}
	b := bucketOf(now.Steady, s)
	if _, _, changed := l.show(now.Steady, &b); changed {
		b.write(now.Steady, s)
	}
}

// lifetimeOfBucket is how long the state says more than that it is full.
func lifetimeOfBucket(now int64, s *state) time.Duration {
	b := bucketOf(now, s)
	left := micros(max(b.mark-now, 0))
	for i := range b.n {
		left = max(left, b.views[i].scale.wait(b.views[i].used(now)))
	}
	return left
}

func (l *Limit) amendBucket(now *Now, c *Charge, s *state) Receipt {
	at, b := now.Steady, bucketOf(now.Steady, s)
	r := Receipt{Instant: c.Receipt.Instant, Mark: c.Receipt.Mark, Low: c.Receipt.Low, Cost: c.Cost, Version: c.Receipt.Version}
	changed := false
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff > 0:
		debt := l.owe(at, diff, c.Receipt, &b, &r)
		r.Cost, changed = c.Receipt.Cost+debt, debt > 0
	case diff < 0:
		changed = l.refund(at, -diff, c, &b, &r)
	}
	if changed {
		b.write(at, s)
	}
	return r
}

// owe makes a charge cost more, and returns by how many tokens.
func (l *Limit) owe(now, tokens int64, was Receipt, b *bucket, r *Receipt) int64 {
	first, last, _ := l.show(now, b)
	for i := first; i < last; i++ {
		v := &b.views[i]
		tokens = owed(tokens, v.at(now).plus(v.used(now)), v.at(now).plus(v.full()).plus(v.scale.within(longest)), v.numbers.Token)
	}
	if tokens == 0 {
		return 0
	}
	v := &b.views[first]
	tat := v.at(now).plus(v.used(now))
	made, own := l.made(was)
	mark := lesser(made, tat)
	kept := own && last-first == 1 && v.floor != (units{}) && v.floor == mark && mark == tat // see giveBack
	stands := mark
	if last-first == 1 && v.lows.n > 0 {
		stands = lesser(mark, v.at(now).plus(v.standing(now, made, was.Instant)))
	}
	b.enter(now, tokens, -1, first, last)
	// The mark moves by the debt, not to the end of the queue: what time has given back
	// of the charge must not become reserved again. So it is as a charge made now, of the
	// debt and what stands of its cost until now.
	debt := product(tokens, l.token)
	if kept {
		v.floor = greater(mark, l.scale.instant(now)).plus(debt)
	}
	mark = greater(stands, l.scale.instant(now)).plus(debt)
	if last-first > 1 {
		b.mark = max(b.mark, l.scale.micros(mark))
	}
	if r.Version = l.version; was.Cost <= l.burst || was.Version&raised != 0 {
		r.Version |= raised
	}
	// Other views know the debt as of now, and what the charge cost before as of then.
	if b.n == 1 {
		r.Instant = now
	}
	r.Mark, r.Low = l.scale.write(mark)
	return tokens
}

// made returns the mark of a receipt, and whether this version has made the charge. The
// mark of another version says nothing here.
func (l *Limit) made(r Receipt) (mark units, own bool) {
	if !l.madeBy(r) {
		return l.scale.length(anEternity), false
	}
	return l.scale.read(r.Mark, r.Low), true
}

// madeBy reports whether this version has made the charge.
func (l *Limit) madeBy(r Receipt) bool { return r.Version&^raised == l.version }

// refund gives back tokens of a charge to each view, and reports whether that has changed
// any.
func (l *Limit) refund(now, tokens int64, c *Charge, b *bucket, r *Receipt) (changed bool) {
	own := l.find(now, b)
	made, _ := l.made(c.Receipt)
	var most int64
	for i := range b.n {
		v := &b.views[i]
		used := v.used(now)
		v.tat = v.at(now).plus(used)
		var back, stands units
		floor := v.floor
		if v.lows.sink(used); i == own {
			stands = v.standing(now, made, c.Receipt.Instant)
			back = l.giveBack(now, made, stands, c, v)
		} else if low, _, known := v.lows.since(c.Receipt.Instant); known && !v.at(c.Receipt.Instant).less(v.turn) {
			back = greater(lesser(lesser(product(tokens, v.numbers.Token), low), v.tat.minus(greater(v.floor, v.at(now)))), units{})
		}
		if i == own && back.positive() {
			mark := made.minus(back)
			if !back.less(stands) { // nothing of the charge stands any more: see Standing
				mark = lesser(mark, made.minus(product(tokens, l.token)))
			}
			r.Mark, r.Low = l.scale.write(mark)
		}
		if b.n == 1 && i == own && v.floor == floor && made == v.tat && v.lows.n == 0 && b.mark <= now && c.Receipt.Version&raised == 0 {
			// It was the last charge: no receipt knows of it, and none is spoilt.
			v.tat, changed = v.tat.minus(back), back.positive()
			continue
		}
		if back.positive() || v.floor != floor {
			changed = true
			b.mark = max(b.mark, v.scale.micros(v.tat))
		}
		if !back.positive() {
			continue
		}
		v.begin(now)
		v.lows.refund(c.Receipt.Instant, back)
		v.tat = v.tat.minus(back)
		most = max(most, back.upOver(v.numbers.Token))
	}
	if own < 0 && most > 0 {
		r.Mark, r.Low = l.scale.write(l.scale.read(c.Receipt.Mark, c.Receipt.Low).minus(product(most, l.token)))
	}
	return changed
}

// standing returns how much of a charge of the view's own version, and of those that came
// with it, has been in use at its lowest since it was made.
func (v *bucketView) standing(now int64, made units, instant int64) units {
	if v.lows.n == 0 { // no refunds were made, so its mark says it
		return lesser(greater(made.minus(v.at(now)), units{}), v.used(now))
	}
	low, from, known := v.lows.since(instant)
	if known {
		from = instant
	}
	// A turn was told behind this charge as it stood when the turn comes.
	stood := greater(v.at(from), lesser(v.turn, v.at(now)))
	if v.turn == (units{}) {
		stood = v.at(from)
	}
	return lesser(low, greater(made.minus(stood), units{}))
}

// giveBack returns how much of a refund is given back to the view of the charge's own
// version, and records in the floor what must not be.
//
// Whoever has been told a turn keeps that turn alone. If the turn is at t, the tat has
// to be t plus the cost of that charge and of all after it, or a newcomer would run
// beside them. Without refunds this holds by itself: the turn of a charge that waits is
// its own tat less the capacity. A refund moves the tat back and leaves the turns where
// they are. The floor protects them, also when the tat no longer shows that anybody
// waits.
func (l *Limit) giveBack(now int64, made, stands units, c *Charge, v *bucketView) units {
	zero, at, tat := units{}, v.at(now), v.tat
	mark := lesser(made, tat)
	behind, waiting := tat.minus(mark), at.plus(l.full).less(tat)
	if l.spec.Debt && behind.positive() {
		// With debt, charges wait only for what is before them. If there were any room,
		// however small, a charge that comes now would go before those that wait.
		behind = l.endless()
	}
	back := refunded(l.worth(c.Receipt.Cost-c.Cost, stands), stands, behind, l.full, waiting)
	if l.queue > 0 && !l.spec.Debt && c.Receipt.Cost > l.burst && c.Receipt.Version&raised == 0 {
		// A charge larger than what passes at once goes when the last part of it may;
		// what a refund leaves of it also goes then, not earlier as a smaller charge
		// would. What has become so large only by debt isn't such a charge.
		turn := made.minus(l.full)
		switch {
		case behind.positive() && at.less(turn):
			back = zero
		case c.Cost > 0:
			back = greater(lesser(back, mark.minus(turn).minus(l.worth(c.Cost, l.full))), zero)
		}
	}
	switch own := v.floor == mark && behind == zero; {
	case v.floor == zero:
	case own: // no other turn comes after it
		v.floor = mark.minus(back)
	default:
		back = greater(lesser(back, tat.minus(v.floor)), zero)
	}
	floor := mark.minus(back) // the charge itself may be waiting
	if c.Cost == 0 {
		floor = at
	}
	if behind.positive() && back.positive() {
		floor = greater(floor, tat.minus(l.full).plus(behind))
	}
	if waiting && at.less(floor) && (v.floor == zero || v.floor.less(floor)) {
		v.floor = floor
	}
	return back
}
