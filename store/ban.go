package store

import (
	"slices"
	"sort"

	"github.com/stint-go/stint/internal/engine"
)

// Ban. State.B is the whole length of the ban under which the key is, or 0, and State.A the
// instant until which it is banned. State.Log holds, in order, an entry for each denial that hasn't
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
	l.numbers = engine.Numbers{Token: l.period}
	l.slide = slide{token: l.period}
}

func (l *Limit) rebaseBan(now *Now, s *state) {
	at := now.Steady
	// An entry later than the present was written before the clock was set back.
	if last := len(s.Log) - 1; last >= 0 && s.Log[last].At > at {
		s.Log = slices.Clone(s.Log)
		for i := last; i >= 0 && s.Log[i].At > at; i-- {
			s.Log[i].At = at
		}
	}
	if s.A = min(s.A, at+s.B); s.banned(at) == 0 {
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
	if s.B == 0 && len(s.Log) == 0 {
		*s = state{}
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
func (s *state) strikers() (k keepers) {
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

// banned returns for how many microseconds the key is still banned.
func (s *state) banned(at int64) int64 {
	if s.B == 0 {
		return 0 // and A says nothing: instants may be before the origin
	}
	return max(s.A-at, 0)
}

// struck returns how many denials count, and ResetAfter in microseconds.
func (l *Limit) struck(now *Now, s *state) (n, reset int64) {
	at := now.Steady
	if len(s.Log) > 0 && l.alone(s) {
		n = int64(len(s.Log))
		return n, max(s.Log[n-1].At+l.period-at, s.banned(at))
	}
	if len(s.Log) > 0 {
		k := s.strikers()
		i := sort.Search(len(s.Log), func(i int) bool { return l.ends(&k, s.Log[i].At) > at })
		if n = int64(len(s.Log) - i); n > 0 {
			reset = l.ends(&k, s.Log[len(s.Log)-1].At) - at
		}
	}
	return n, max(reset, s.banned(at))
}

func (l *Limit) stepBan(now *Now, c *Charge, s *state, r *Result) {
	l.rebase(now, s)
	at := now.Steady
	n, reset := l.struck(now, s)
	// Where the limit has been lowered since, one more denial is still left.
	*r = Result{OK: true, Remaining: max(1, l.spec.Units-n), ResetAfter: micros(reset)}
	if left := s.banned(at); left > 0 {
		r.Remaining = 0
		if c.Cost > 0 {
			r.OK, r.RetryAfter = false, micros(left)
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
			if o := &charges[j]; !results[j].OK && !o.DryRun && o.countsFor(c) {
				begun := c.Limit.strike(now, &states[i].is)
				c.Limit.step(now, c, &states[i].is, &results[i])
				results[i].Begun = begun
				break
			}
		}
	}
}

// countsFor reports whether a denial of c counts for ban, a charge on a Ban in the
// same decision. It does if both have the same key and c isn't a charge on a Ban
// itself. A denied slot doesn't count if the caller may wait for it (MaxWait), because
// a waiting caller asks repeatedly.
func (c *Charge) countsFor(ban *Charge) bool {
	waits := c.Limit.spec.Algorithm == Concurrency && c.MaxWait > 0
	return !c.bans() && !waits && c.Key == ban.Key
}

func (c *Charge) bans() bool { return c.Limit.spec.Algorithm == Ban }

// strike counts one denial and reports whether it has started a ban.
func (l *Limit) strike(now *Now, s *state) (begun bool) {
	at := now.Steady
	if n, _ := l.struck(now, s); n+1 >= l.spec.Units {
		*s = state{Live: true, Numbers: l.numbers, A: at + l.spec.Ban.Microseconds(), B: l.spec.Ban.Microseconds()}
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
	s.Log = append(s.Log, engine.Entry{At: at, Units: 1})
	if len(s.Log) > mostStrikes { // no version counts more
		s.Log = s.Log[1:]
	}
	return false
}
