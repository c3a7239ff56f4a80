package store

// bucket holds the words of a state in units.
type bucket struct{ tat, ahead, before, hidden, floor units }

// bucketOf reads the words of a state under the numbers it was written with.
func bucketOf(s *State) bucket {
	from := ScaleOf(s.Numbers.Unit)
	b := bucket{from.read(s.A, s.Low), whole(s.B), whole(s.C), whole(s.D), whole(s.E)}
	if from.Wide {
		b.ahead, b.hidden, b.floor = from.length(s.B), from.length(s.D), from.length(s.E)
		b.before = product(s.C, s.Numbers.Token)
		if len(s.Log) > 0 {
			b.hidden = b.hidden.minus(whole(s.Log[0].At))
			b.floor = b.floor.minus(whole(s.Log[0].Units))
		}
	}
	return b
}

// keep writes hidden, and floor if it lies ahead. put must be called after it.
func (l *Limit) keep(s *State, hidden, floor units) {
	if s.Log = nil; !l.scale.Wide {
		s.D, s.E = hidden.int(), floor.int()
		return
	}
	s.D, s.E = hidden.upOver(l.scale.PerTick), floor.upOver(l.scale.PerTick)
	s.Log = added(l.scale.length(s.D).minus(hidden).int(), l.scale.length(s.E).minus(floor).int())
}

func added(hidden, floor int64) []Entry {
	if hidden|floor == 0 {
		return nil
	}
	return []Entry{{hidden, floor}}
}

// put writes a state of which used is still in use at now, under the limit's numbers.
func (l *Limit) put(now *Now, s *State, used units) {
	s.Live, s.Numbers = true, l.numbers
	at, ahead := now.Steady, int64(0)
	if l.scale.Wide {
		s.A, s.Low = l.scale.write(l.scale.instant(at).plus(used))
		ahead = used.minus(l.full).upOver(l.scale.PerTick)
	} else {
		at = l.scale.at(at)
		s.A, s.Low = at+int64(used.lo), 0
		ahead = int64(used.lo) - l.capacity
	}
	l.mark(s, at, ahead)
}

// mark records how far the tat is ahead of the capacity at at. For a wide scale both
// are in ticks.
func (l *Limit) mark(s *State, at, ahead int64) {
	s.B, s.C = max(ahead, 0), 0
	if s.B|s.D != 0 {
		s.C = l.capacity
	}
	if s.E != 0 && s.E <= at {
		if s.E = 0; len(s.Log) > 0 {
			s.Log = added(s.Log[0].At, 0)
		}
	}
}

// used returns how much of a rebased state is still in use at now.
func (l *Limit) used(now *Now, s *State) units {
	if !s.Live {
		return units{}
	}
	return greater(l.scale.read(s.A, s.Low).minus(l.scale.instant(now.Steady)), units{})
}

func (l *Limit) rebaseBucket(now *Now, s *State) {
	if s.Numbers == l.numbers && s.D == 0 && (s.B == 0 || s.C == l.capacity) {
		if l.scale.Wide {
			if most := l.full.plus(l.scale.length(now.Steady + s.B)); !most.less(l.scale.read(s.A, s.Low)) {
				return
			}
		} else if s.A <= l.scale.at(now.Steady)+l.capacity+s.B {
			return
		}
	}
	l.changeBucket(now, s)
}

// changeBucket carries over a state that was written under other numbers. What has been
// consumed stays consumed, counted in tokens. Turns already announced, and debts, stay
// where they are in time. What exceeds the capacity is clamped.
//
// Two versions of a limit may be in use at once, while a program is being replaced or
// plans disagree. If the one with less capacity threw away what it clamps, the other
// would find that much room again each time it looks. So the clamped part is kept
// hidden from the smaller one: it counts again for a limit with more capacity, and time
// takes it back after the rest. It is a length of time at the present rate, so no more than
// a year is kept: a state has room for little more, and would last as long.
func (l *Limit) changeBucket(now *Now, s *State) {
	b, from := bucketOf(s), ScaleOf(s.Numbers.Unit)
	at := l.scale.instant(now.Steady)
	was, is, zero := at, at, units{}
	if s.Numbers != l.numbers {
		was, is = from.exactly(now.Steady), l.scale.exactly(now.Steady)
	}
	used, hidden, before, ahead, floor := b.tat.minus(was), b.hidden, b.before, zero, zero
	if used.less(zero) {
		used, hidden = zero, greater(hidden.plus(used), zero)
	}
	if b.ahead.positive() {
		ahead = lesser(greater(used.minus(before), zero), b.ahead)
		used = lesser(used.minus(ahead), before)
	}
	if b.floor != zero {
		floor = greater(b.floor.minus(was), zero)
	}
	if s.Numbers != l.numbers {
		token, most := s.Numbers.Token, l.full.plus(l.most)
		used = share(used, l.token, token, most)
		hidden = share(hidden, l.token, token, l.most)
		before = share(before, l.token, token, most)
		ahead, floor = lesser(from.convert(ahead, l.scale), l.most), from.convert(floor, l.scale)
	}
	if b.ahead == zero && b.hidden == zero {
		before = l.full // not kept, but nothing was hidden below it
	}
	used, hidden = resize(used, hidden, before, l.full)
	tat := at
	if taken := used.plus(ahead); taken != zero {
		// Between two ticks that may be further ahead than the capacity, by less than a
		// tick. To clamp it would give so much back each time the versions take turns.
		tat = is.plus(taken)
	}
	if floor != zero { // not beyond the tat: once that has passed, the state means nothing
		floor = lesser(is.plus(floor), tat)
	}
	l.keep(s, lesser(hidden, l.most), floor)
	l.put(now, s, tat.minus(at))
}

// resize moves used, at most was, into a larger or smaller capacity: what doesn't fit
// becomes hidden, and what was hidden becomes visible as far as it fits.
func resize(used, hidden, was, is units) (units, units) {
	if was.less(is) {
		back := lesser(hidden, is.minus(was))
		return used.plus(back), hidden.minus(back)
	}
	if is.less(used) {
		return is, hidden.plus(used).minus(is)
	}
	return used, hidden
}
