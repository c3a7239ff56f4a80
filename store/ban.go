package store

import "slices"

// Ban. State.A is the instant until which the key is banned, or 0; State.B is the whole
// length of that ban. State.Log holds, in order, an entry for each refusal of the last
// Period that hasn't started a ban. A limit whose numbers have changed keeps the
// refusals that counted until now, and a running ban ends when it was announced to.

// mostStrikes bounds the number of instants kept for a key.
const mostStrikes = 1000

func (l *Limit) workOutBan() {
	l.largest = MaxCost
	l.numbers = Numbers{Unit: l.period}
}

func (l *Limit) rebaseBan(now *Now, s *State) {
	at := now.Steady
	// An entry later than the present was written before the clock was set back.
	if last := len(s.Log) - 1; last >= 0 && s.Log[last].At > at {
		s.Log = slices.Clone(s.Log)
		for i := last; i >= 0 && s.Log[i].At > at; i-- {
			s.Log[i].At = at
		}
	}
	if s.A = min(s.A, at+s.B); s.A <= at {
		s.A, s.B = 0, 0
	}
	period := l.period
	if s.Numbers != l.numbers { // what no longer counted then must not count again
		period = min(period, s.Numbers.Unit)
		s.Numbers = l.numbers
	}
	gone := 0
	for gone < len(s.Log) && s.Log[gone].At+period <= at {
		gone++
	}
	s.Log = s.Log[gone:]
	if s.A == 0 && len(s.Log) == 0 {
		*s = State{}
	}
}

func (l *Limit) stepBan(now *Now, c *Charge, s *State, r *Result) {
	l.rebase(now, s)
	at := now.Steady
	// Where the limit has been lowered since, one more refusal is still left.
	*r = Result{OK: true, Remaining: max(1, l.spec.Units-int64(len(s.Log)))}
	if len(s.Log) > 0 {
		r.ResetAfter = micros(s.Log[len(s.Log)-1].At + l.period - at)
	}
	if s.A > at {
		r.Remaining, r.ResetAfter = 0, max(r.ResetAfter, micros(s.A-at))
		if c.Cost > 0 {
			r.OK, r.RetryAfter = false, micros(s.A-at)
		}
	}
}

// strike makes the bans of a refused decision count it. A ban doesn't count its own
// refusals, nor those of a limit with another key: a user isn't banned because the
// service is full.
func strike(now *Now, charges []Charge, states []State, results []Result) {
	for i := range charges {
		if charges[i].bans() && !results[i].OK && !charges[i].DryRun {
			return
		}
	}
	for i := range charges {
		c := &charges[i]
		if !c.bans() || c.Cost == 0 || !results[i].OK {
			continue
		}
		for j := range charges {
			if o := &charges[j]; !results[j].OK && !o.DryRun && o.CountsFor(c) {
				begun := c.Limit.strike(now, &states[i])
				c.Limit.Step(now, c, &states[i], &results[i])
				results[i].Begun = begun
				break
			}
		}
	}
}

// CountsFor reports whether a refusal of c counts for ban, a charge on a Ban in the
// same decision. It does if both have the same key and c isn't a charge on a Ban
// itself. A refused slot doesn't count if the caller may wait for it (MaxWait), because
// a waiting caller asks repeatedly.
func (c *Charge) CountsFor(ban *Charge) bool {
	waits := c.Limit.spec.Algorithm == Concurrency && c.MaxWait > 0
	return !c.bans() && !waits && c.Key == ban.Key
}

func (c *Charge) bans() bool { return c.Limit.spec.Algorithm == Ban }

// strike counts one refusal and reports whether it has started a ban.
func (l *Limit) strike(now *Now, s *State) (begun bool) {
	at := now.Steady
	s.Live, s.Numbers = true, l.numbers
	if int64(len(s.Log))+1 >= l.spec.Units {
		s.B, s.Log = l.spec.Ban.Microseconds(), nil
		s.A = at + s.B
		return true
	}
	s.Log = append(s.Log, Entry{At: at, Units: 1})
	return false
}
