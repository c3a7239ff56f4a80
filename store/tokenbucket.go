package store

import "fmt"

// The token bucket and the leaky bucket are one step. State.A is the
// theoretical arrival time (tat): the instant at which the bucket is full
// again, or, seen as a queue, at which it has run dry. A charge moves it by
// its cost; it may run ahead of the present by the capacity at once and by the
// queue or the maximum wait if the charge waits for the difference. That is all
// there is to most states; the other words are 0 then.
//
// State.B is by how much the tat was ahead of the capacity when it was last
// written: turns reserved and debts. A tat further ahead than capacity + B was
// not written under these numbers (the limit was lowered, the server's clock
// was set back) and is clamped, or a key would be refused for as long as the
// difference. State.D is what has been clamped off (see changeBucket), State.C
// the capacity that B and D go with, and State.E, until it comes, a tat below which
// no refund may go (see refundBucket).

// workOutBucket: a LeakyBucket is a TokenBucket that passes its Burst and the
// one whose turn it is at once, and queues by default.
func (l *Limit) workOutBucket(bad wrong) {
	s := &l.spec
	burst, queue := max(s.Burst, 0), max(s.Queue, 0)
	if s.Algorithm == LeakyBucket {
		burst++
	}
	l.room = burst + queue
	room := l.room
	if s.Debt {
		room *= 2 // all of it, and a charge as large upon it
	}
	var ok bool
	if l.scale, l.token, ok = fit(l.period, s.Units, room, nil); !ok {
		bad("Units", fmt.Sprintf("%d per %v with burst %d and queue %d can not be counted exactly", s.Units, s.Period, burst, queue),
			"write numbers with a common factor, a smaller burst, or a period that is a multiple of 100ms")
		return
	}
	l.capacity, l.queue = burst*l.token, queue*l.token
	l.numbers = Numbers{Token: l.token, Unit: l.scale.Code()}
	l.largest = l.room
	if s.Debt {
		l.largest = max(l.affordable(), l.largest)
	}
}

// affordable is the largest cost that can be prepaid: a year's worth, or one.
func (l *Limit) affordable() int64 {
	return min(MaxCost, max(1, l.scale.within(longest)/l.token))
}

// owed returns how many tokens of a debt are added to the instant until which a
// limit is taken: the one that reaches top is the last. They are whole ones, so
// that refunding them leaves no trace. A queue may be longer than a debt can get.
func (l *Limit) owed(debt, until, top int64) int64 {
	if until >= top {
		return 0
	}
	return min(debt, ceilDiv(top-until, l.token))
}

// worth is the units of so many tokens, or most if they are more: of what is
// given back no more is looked at than there is, and the product of the largest
// cost and the longest token is far beyond 2^53.
func (l *Limit) worth(tokens, most int64) int64 {
	if tokens > most/l.token {
		return most
	}
	return tokens * l.token
}

func (l *Limit) rebaseBucket(now *Now, s *State) {
	as := s.Numbers == l.numbers && s.D == 0 && (s.B == 0 || s.C == l.capacity)
	if as && s.A <= l.scale.at(now.Steady)+l.capacity+s.B {
		return
	}
	l.changeBucket(now, s)
}

// changeBucket carries over a state that was written under other numbers. What
// has been consumed stays consumed, counted in tokens; turns that have been
// told, and debts, stay where they are in time; and what is more than the
// capacity is clamped off.
//
// Two versions of a limit may be in use at a time, while a program is being
// replaced or plans disagree. If the one with less capacity threw away what it
// clamps off, the other would find as much room again at each of its looks. So
// that is kept, out of the smaller one's sight: it counts again for a limit with
// more capacity, and time takes it back after the rest.
func (l *Limit) changeBucket(now *Now, s *State) {
	from, at := ScaleOf(s.Numbers.Unit), l.scale.at(now.Steady)
	was, is := at, at
	if s.Numbers != l.numbers {
		was, is = from.exactly(now.Steady), l.scale.exactly(now.Steady)
	}
	used, ahead, hidden, before, floor := s.A-was, int64(0), s.D, s.C, int64(0)
	if used < 0 {
		used, hidden = 0, max(0, hidden+used)
	}
	if s.B > 0 {
		ahead = min(max(used-before, 0), s.B)
		used = min(used-ahead, before)
	}
	if s.E != 0 {
		floor = max(s.E-was, 0)
	}
	most := l.scale.within(longest)
	if s.Numbers != l.numbers {
		token := s.Numbers.Token
		used = share(used, l.token, token, l.capacity+most)
		hidden = share(hidden, l.token, token, most)
		before = share(before, l.token, token, l.capacity+most)
		ahead, floor = min(from.convert(ahead, l.scale), most), from.convert(floor, l.scale)
	}
	if s.B|s.D == 0 {
		before = l.capacity // it has not been kept, but nothing was hidden below it
	}
	used, hidden = resize(used, hidden, before, l.capacity)
	tat := is + used + ahead
	switch {
	case used+ahead == 0:
		tat = at // between two ticks nothing is used yet
	case ahead == 0:
		tat = min(tat, at+l.capacity)
	}
	s.Numbers, s.A, s.D, s.E = l.numbers, tat, min(hidden, most), 0
	if floor > 0 {
		s.E = is + floor
	}
	l.mark(s, at, tat-at-l.capacity)
}

// mark notes how far the tat is ahead of the capacity at at.
func (l *Limit) mark(s *State, at, ahead int64) {
	s.B, s.C = max(ahead, 0), 0
	if s.B|s.D != 0 {
		s.C = l.capacity
	}
	if s.E <= at {
		s.E = 0
	}
}

// resize moves what is used, at most was, into a capacity that is larger or
// smaller, and what does not fit or has not fitted before out of sight or back.
func resize(used, hidden, was, is int64) (int64, int64) {
	if is > was {
		back := min(hidden, is-was)
		return used + back, hidden - back
	}
	if used > is {
		return is, hidden + used - is
	}
	return used, hidden
}

func (l *Limit) stepBucket(now *Now, c *Charge, s *State, r *Result) {
	at := l.scale.at(now.Steady)
	tat := at
	if s.Live {
		if s.Numbers != l.numbers || s.A > at+l.capacity || s.B|s.D != 0 {
			l.rebaseBucket(now, s)
		}
		tat = max(tat, s.A)
	}
	*r = Result{OK: true}
	// A charge with debt waits only for what stands before it; without, its own cost
	// has to be there as well.
	inc := c.Cost * l.token
	own := inc
	if l.spec.Debt {
		own = 0
	}
	short, allowed := tat+own-at-l.capacity, l.queue
	if short > 0 && c.MaxWait > 0 {
		within := l.scale.within(micros(l.maxWait(c)))
		if l.queue == 0 || within < allowed {
			allowed = within
		}
	}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest, short > allowed && own-l.capacity > allowed: // not even with nobody before it
		r.OK, r.RetryAfter = false, Never
	case short > allowed:
		r.OK, r.RetryAfter = false, l.scale.wait(short-allowed)
	default:
		if short > 0 {
			r.Delay = l.scale.wait(short)
		}
		tat += inc
		// Field by field: writing the whole State, with the Log it never has, would
		// be most of the cost of a decision.
		s.Live, s.Numbers, s.A = true, l.numbers, tat
		if ahead := tat - at - l.capacity; ahead > 0 || s.B|s.C|s.E != 0 {
			l.mark(s, at, ahead)
		}
		r.Receipt.Instant, r.Receipt.Mark, r.Receipt.Cost = at, tat, c.Cost
		if own > l.capacity { // see refundBucket
			r.Receipt.Instant = tat - l.capacity
		}
	}
	if room := at + l.capacity + l.queue - tat; room > 0 {
		r.Remaining = room / l.token
	}
	r.ResetAfter = l.scale.wait(tat - at)
}

func (l *Limit) amendBucket(now *Now, c *Charge, s *State) Receipt {
	at := l.scale.at(now.Steady)
	tat := at
	if s.Live && s.A > at {
		tat = s.A
	}
	mark, cost := min(c.Receipt.Mark, tat), c.Cost
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff > 0:
		// The mark moves by the debt and not to the end of the queue: what time
		// has given back of the charge must not come to stand again.
		debt := l.owed(diff, tat, at+l.capacity+l.scale.within(longest))
		own := s.E != 0 && mark == s.E && mark == tat // see refundBucket
		mark = max(mark, at) + debt*l.token
		tat += debt * l.token
		if own {
			s.E = mark
		}
		cost -= diff - debt
	case diff < 0:
		back := l.refundBucket(at, tat, mark, c, s)
		tat -= back
		if mark -= back; back > 0 && mark <= at { // nothing of it stands any more: see Standing
			mark = min(mark, c.Receipt.Mark-l.worth(-diff, exact))
		}
	}
	if s.Live || tat > at {
		s.Live, s.Numbers, s.A = true, l.numbers, tat
		l.mark(s, at, tat-at-l.capacity)
	}
	return Receipt{Instant: c.Receipt.Instant, Mark: mark, Cost: cost}
}

// refundBucket is how much of a refund is given back, and notes in State.E what
// must not be. Whoever has been told a turn keeps it alone: if that is at t, the tat
// has to be t plus what that one and all after it cost, or a newcomer goes beside
// them. Without refunds the turn of a charge that waits is its own tat less the
// capacity, and so it is. A refund takes the tat back and leaves the turns where
// they are; what they need is E, also when the tat no longer tells that anybody waits.
func (l *Limit) refundBucket(at, tat, mark int64, c *Charge, s *State) int64 {
	behind, waiting := tat-mark, tat > at+l.capacity
	if l.spec.Debt && behind > 0 {
		// However much it is, one that comes now would go before those that
		// wait if there were any room: they wait for what is before them only.
		behind = exact
	}
	back := refunded(l.worth(c.Receipt.Cost-c.Cost, max(mark-at, 0)), mark-at, behind, l.capacity, waiting)
	if l.queue > 0 && !l.spec.Debt && l.worth(c.Receipt.Cost, exact) > l.capacity {
		// More than passes at once goes when the last of it may: what is left of
		// it goes then, and not when it would have by itself. Then is what the
		// receipt of such a charge says; of another one, which owes so much by
		// now, it is when it was made.
		turn := c.Receipt.Instant
		switch {
		case behind > 0 && turn > at:
			back = 0
		case c.Cost > 0:
			back = max(min(back, mark-turn-l.worth(c.Cost, l.capacity)), 0)
		}
	}
	own := s.E != 0 && mark == s.E && behind == 0
	switch {
	case own: // nobody else's turn comes after it
		s.E = mark - back
	case s.E != 0:
		back = max(min(back, tat-s.E), 0)
	}
	floor := mark - back // it may be waiting itself
	if c.Cost == 0 {
		floor = at
	}
	if behind > 0 && back > 0 {
		floor = max(floor, tat-l.capacity+behind)
	}
	if waiting && floor > at && (s.E == 0 || s.E < floor) {
		s.E = floor
	}
	return back
}
