package store

// Ban. State.A is the instant until which the key is banned, 0 if it isn't;
// State.Log holds an entry for each refusal of the last Period that has not begun
// a ban, in its order. Instants are in microseconds, which any numbers can read:
// a limit that has changed goes on with the refusals it has, and a ban that runs
// ends when it was told to.

// mostStrikes bounds the instants that are kept for a key.
const mostStrikes = 1000

func (l *Limit) rebaseBan(now *Now, s *State) {
	at := now.Steady
	gone := 0
	for gone < len(s.Log) && s.Log[gone].At+l.period <= at {
		gone++
	}
	s.Log = s.Log[gone:]
	if s.A <= at {
		s.A = 0
		if len(s.Log) == 0 {
			*s = State{}
		}
	}
}

func (l *Limit) stepBan(now *Now, c *Charge, s *State, r *Result) {
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

// strike has the bans of a refused decision count it. What a ban refuses itself
// is not counted again, nor what another key's limit refuses: a user is not banned
// because the service is full.
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
				c.Limit.step(now, c, &states[i], &results[i])
				results[i].Begun = begun
				break
			}
		}
	}
}

// CountsFor reports whether a refusal of c counts for ban, a charge on a Ban of
// the same decision: it has the same key, and isn't a Ban's. A slot that is refused
// to somebody who may wait for it (MaxWait) doesn't count: they ask again and again,
// and mean no harm.
func (c *Charge) CountsFor(ban *Charge) bool {
	waits := c.Limit.spec.Algorithm == Concurrency && c.MaxWait > 0
	return !c.bans() && !waits && c.Key == ban.Key
}

func (c *Charge) bans() bool { return c.Limit.spec.Algorithm == Ban }

// strike counts one refusal, and reports whether it has begun a ban.
// An instant before the newest is taken for that one, or what is kept would not be
// in order.
func (l *Limit) strike(now *Now, s *State) (begun bool) {
	at, n := now.Steady, len(s.Log)
	if n > 0 {
		at = max(at, s.Log[n-1].At)
	}
	s.Live = true
	if int64(n)+1 >= l.spec.Units {
		s.A, s.Log = at+l.spec.Ban.Microseconds(), nil
		return true
	}
	s.Log = append(s.Log, Entry{At: at, Units: 1})
	return false
}
