package store

// The token bucket and the leaky bucket are one step. State.A is the
// theoretical arrival time (tat): the instant at which the bucket is full
// again, or, seen as a queue, at which it has run dry. A charge moves it by
// its cost; it may run ahead of the present by the capacity at once and by the
// queue or the maximum wait if the charge waits for the difference.
//
// State.B is by how much the tat was ahead of the capacity when it was last
// written: turns reserved and debts. A tat further ahead than capacity + B was
// not written under these numbers (the limit was lowered, the server's clock
// was set back) and is clamped, or a key would be refused for as long as the
// difference.

// workOutBucket: a LeakyBucket is a TokenBucket that passes its Burst and the
// one whose turn it is at once, and queues by default.
func (l *Limit) workOutBucket(bad func(string, ...any)) {
	s := &l.spec
	burst, queue := max(s.Burst, 0), max(s.Queue, 0)
	if s.Algorithm == LeakyBucket {
		burst++
	}
	var ok bool
	if l.scale, l.token, ok = fit(l.period, s.Units, burst+queue, nil); !ok {
		bad("%d per %v with burst %d and queue %d can not be counted exactly: "+
			"write numbers with a common factor, a smaller burst, or a period that is a multiple of 100ms",
			s.Units, s.Period, burst, queue)
		return
	}
	l.capacity, l.queue = burst*l.token, queue*l.token
	l.largest = burst + queue
	if s.Debt {
		l.largest = max(l.affordable(), l.largest)
	}
}

// affordable is the largest cost that can be prepaid: a year's worth, or one.
func (l *Limit) affordable() int64 {
	return min(MaxCost, max(1, l.scale.within(longest)/l.token))
}

// owe adds a debt to the instant until which a limit is taken, up to top. It
// never takes anything back: a queue may be longer than a debt can get.
func (l *Limit) owe(until, debt, top int64) int64 {
	if until >= top {
		return until
	}
	return min(until+min(debt, (top-until)/l.token+1)*l.token, top)
}

func (l *Limit) rebaseBucket(now *Now, s *State) {
	if s.Scale != l.scale {
		s.A = s.Scale.convert(s.A, l.scale)
		s.B = s.Scale.convert(s.B, l.scale)
		s.Scale = l.scale
	}
	if top := l.scale.at(now.Steady) + l.capacity + s.B; s.A > top {
		s.A = top
	}
}

func (l *Limit) stepBucket(now *Now, c *Charge, s *State, r *Result) {
	at := l.scale.at(now.Steady)
	tat := at
	if s.Live && s.A > at {
		tat = s.A
	}
	*r = Result{OK: true}
	if c.Cost > 0 {
		if c.Cost > l.largest {
			r.OK, r.RetryAfter = false, Never
		} else {
			l.chargeBucket(at, &tat, c, s, r)
		}
	}
	if room := at + l.capacity + l.queue - tat; room > 0 {
		r.Remaining = room / l.token
	}
	r.ResetAfter = l.scale.wait(tat - at)
}

// chargeBucket makes the charge if it passes.
func (l *Limit) chargeBucket(at int64, tat *int64, c *Charge, s *State, r *Result) {
	inc := c.Cost * l.token
	// A charge with debt waits only for what stands before it; without, its
	// own cost has to be there as well.
	own := inc
	if l.spec.Debt {
		own = 0
	}
	short := *tat + own - at - l.capacity
	if short > 0 {
		allowed := l.queue
		if c.MaxWait > 0 {
			within := l.scale.within(micros(c.maxWait()))
			if l.queue == 0 || within < allowed {
				allowed = within
			}
		}
		if short > allowed {
			r.OK = false
			r.RetryAfter = l.scale.wait(short - allowed)
			if own-l.capacity > allowed { // not even with nobody before it
				r.RetryAfter = Never
			}
			return
		}
		r.Delay = l.scale.wait(short)
	}
	*tat += inc
	// Field by field: writing the whole State, with the Log it never has, would
	// be most of the cost of a decision.
	s.Live, s.Scale, s.A, s.B = true, l.scale, *tat, max(0, *tat-at-l.capacity)
	r.Receipt.Instant, r.Receipt.Mark, r.Receipt.Cost = at, *tat, c.Cost
}

func (l *Limit) amendBucket(now *Now, c *Charge, s *State) Receipt {
	at := l.scale.at(now.Steady)
	tat := at
	if s.Live && s.A > at {
		tat = s.A
	}
	mark := min(c.Receipt.Mark, tat)
	switch diff := c.Cost - c.Receipt.Cost; {
	case diff > 0:
		// The mark moves by the debt and not to the end of the queue: what time
		// has given back of the charge must not come to stand again.
		owing := l.owe(tat, diff, at+l.capacity+l.scale.within(longest))
		mark = max(mark, at) + owing - tat
		tat = owing
	case diff < 0 && s.Live:
		behind := tat - mark
		if l.spec.Debt && behind > 0 {
			// However much it is, one that comes now would go before those that
			// wait if there were any room: they wait for what is before them only.
			behind = exact
		}
		back := owed(-diff*l.token, mark-at, behind, tat > at+l.capacity)
		tat -= back
		mark -= back
	}
	if s.Live || tat > at {
		*s = State{Live: true, Scale: l.scale, A: tat, B: max(0, tat-at-l.capacity)}
	}
	return Receipt{Instant: c.Receipt.Instant, Mark: mark}
}
