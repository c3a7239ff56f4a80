package store

import (
	"slices"
	"sort"
)

// Ban. State.A is the instant until which the key is banned, or 0; State.B is the whole
// length of that ban. State.Log holds, in order, an entry for each denial that hasn't
// started a ban. A running ban ends when it was announced to, whatever its version.
//
// Denials are kept as the entries of a SlidingLog are: for as long as they count for one
// of the versions that have counted one (see sliding.go), and each version counts those
// of its own period. A ban makes all of them be forgotten, whichever version starts it.
// State.D is how much longer the state is kept than the ResetAfter of the version that
// has looked last.

// mostStrikes bounds the number of instants kept for a key.
const mostStrikes = 1000

func (l *Limit) workOutBan() {
	l.largest = MaxCost
	l.numbers = Numbers{Token: l.period}
	l.slide = slide{token: l.period}
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
	if n := len(s.Log); n > 0 && l.alone(s) {
		gone := 0
		for gone < n && s.Log[gone].At+l.period <= at {
			gone++
		}
		s.Log = s.Log[gone:]
	} else if n > 0 {
		k := s.strikers()
		k.forget(at)
		gone := 0
		for k.n > 0 && k.gone(s.Log[gone].At) <= at {
			gone++
		}
		if s.Log = s.Log[gone:]; k.n > 0 {
			k.see(l, s.Log[len(s.Log)-1].At, at)
			s.put(&k)
		} else {
			s.Log = nil
		}
	}
	if s.A == 0 && len(s.Log) == 0 {
		*s = State{}
		return
	}
	if s.D = 0; len(s.Log) == 0 { // no version keeps a denial
		s.Numbers, s.Rest = l.numbers, nil
	} else if !l.alone(s) {
		_, reset := l.struck(now, s)
		k := s.strikers()
		s.D = max(k.forgotten()-at-reset, 0)
	}
}

// strikers are the versions that keep the denials.
func (s *State) strikers() (k keepers) {
	last := s.Log[len(s.Log)-1].At
	if s.Rest == nil {
		k.add(s.Numbers, last)
		return k
	}
	for _, v := range s.Rest.Versions {
		k.add(v.Numbers, min(v.At, last)) // the clock may have been set back
	}
	return k
}

// struck returns how many denials count, and ResetAfter in microseconds.
func (l *Limit) struck(now *Now, s *State) (n, reset int64) {
	at := now.Steady
	if len(s.Log) > 0 && l.alone(s) {
		n = int64(len(s.Log))
		return n, max(s.Log[n-1].At+l.period-at, s.A-at)
	}
	if len(s.Log) > 0 {
		k := s.strikers()
		i := sort.Search(len(s.Log), func(i int) bool { return l.ends(&k, s.Log[i].At) > at })
		if n = int64(len(s.Log) - i); n > 0 {
			reset = l.ends(&k, s.Log[len(s.Log)-1].At) - at
		}
	}
	return n, max(reset, s.A-at, 0)
}

func (l *Limit) stepBan(now *Now, c *Charge, s *State, r *Result) {
	l.rebase(now, s)
	at := now.Steady
	n, reset := l.struck(now, s)
	// Where the limit has been lowered since, one more denial is still left.
	*r = Result{OK: true, Remaining: max(1, l.spec.Units-n), ResetAfter: micros(reset)}
	if s.A > at {
		r.Remaining = 0
		if c.Cost > 0 {
			r.OK, r.RetryAfter = false, micros(s.A-at)
		}
	}
}

// strike makes the bans of a denied decision count it. A ban doesn't count its own
// denials, nor those of a limit with another key: a user isn't banned because the
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

// CountsFor reports whether a denial of c counts for ban, a charge on a Ban in the
// same decision. It does if both have the same key and c isn't a charge on a Ban
// itself. A denied slot doesn't count if the caller may wait for it (MaxWait), because
// a waiting caller asks repeatedly.
func (c *Charge) CountsFor(ban *Charge) bool {
	waits := c.Limit.spec.Algorithm == Concurrency && c.MaxWait > 0
	return !c.bans() && !waits && c.Key == ban.Key
}

func (c *Charge) bans() bool { return c.Limit.spec.Algorithm == Ban }

// strike counts one denial and reports whether it has started a ban.
func (l *Limit) strike(now *Now, s *State) (begun bool) {
	at := now.Steady
	if n, _ := l.struck(now, s); n+1 >= l.spec.Units {
		*s = State{Live: true, Numbers: l.numbers, A: at + l.spec.Ban.Microseconds(), B: l.spec.Ban.Microseconds()}
		return true
	}
	if len(s.Log) == 0 {
		s.Live, s.Numbers, s.Rest = true, l.numbers, nil
	} else if !l.alone(s) {
		k := s.strikers()
		own := k.index(l.numbers)
		if own < 0 {
			own = k.n
			k.add(l.numbers, at)
		}
		k.list[own].At = at
		if k.n > mostVersions {
			k.unite(at)
		}
		s.put(&k)
	}
	s.Log = append(s.Log, Entry{At: at, Units: 1})
	if len(s.Log) > mostStrikes { // no version counts more
		s.Log = s.Log[1:]
	}
	return false
}
