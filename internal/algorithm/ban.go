package algorithm

import (
	"slices"
	"time"
)

// A Ban's State.Log holds, in order, an entry for each denial that hasn't started a ban, and Numbers.Token
// is the period in which they count.
const (
	// BannedUntil is the instant until which the key is banned.
	BannedUntil = 0
	// BanLength is the whole length of the ban under which the key is, or 0.
	BanLength = 1
)

// A limit with other Units goes on with the count. One with another period starts a new one:
// the denials of the other don't count for it, and are forgotten when it counts one itself. A
// running ban ends when it was announced to, whatever the numbers.

// maxDenials bounds the number of instants kept for a key.
const maxDenials = 1000

func (l *Limit) workOutBan() {
	l.largest = MaxCost
	l.numbers = Numbers{Token: l.period}
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
	if s.W[BannedUntil] = min(s.W[BannedUntil], at+s.W[BanLength]); s.banned(at) == 0 {
		s.W[BannedUntil], s.W[BanLength] = 0, 0
	}
	gone := 0
	for gone < len(s.Log) && s.Log[gone].At+s.Numbers.Token <= at {
		gone++
	}
	if s.Log = s.Log[gone:]; s.W[BanLength] == 0 && len(s.Log) == 0 {
		*s = State{}
	}
}

// banned returns for how many microseconds the key is still banned.
func (s *State) banned(at int64) int64 {
	if s.W[BanLength] == 0 {
		return 0 // and A says nothing: instants may be before the origin
	}
	return max(s.W[BannedUntil]-at, 0)
}

// denials returns the denials that count for the limit.
func (l *Limit) denials(s *State) []Entry {
	if s.Numbers != l.numbers {
		return nil
	}
	return s.Log
}

func (l *Limit) stepBan(now *Now, c Charge, s *State, r *Result) {
	if s.Live {
		l.rebaseBan(now, s)
	}
	at, strikes := now.Steady, l.denials(s)
	n := int64(len(strikes))
	// Where the limit has been lowered since, one more denial is still left.
	*r = Result{OK: true, Remaining: max(1, l.spec.Units-n)}
	if n > 0 {
		r.ResetAfter = micros(strikes[n-1].At + l.period - at)
	}
	if r.Remaining < l.spec.Units {
		r.MoreAfter = micros(strikes[n-(l.spec.Units-r.Remaining)].At + l.period - at)
	}
	if left := micros(s.banned(at)); left > 0 {
		r.Remaining, r.ResetAfter, r.MoreAfter = 0, max(r.ResetAfter, left), left
		if c.Cost > 0 {
			r.OK, r.RetryAfter = false, left
		}
	}
}

// lifetimeBan returns how long a state is kept, which may have another period's denials.
func (s *State) lifetimeBan(now *Now, r *Result) time.Duration {
	if n := len(s.Log); n > 0 {
		return max(r.ResetAfter, micros(s.Log[n-1].At+s.Numbers.Token-now.Steady))
	}
	return r.ResetAfter
}

// DenialCounts reports whether a Ban of the same key counts a denial by the limit: it counts those by rates
// and quotas. A denied slot never counts: a client that obeys its RetryAfter of a second would be banned.
func (l *Limit) DenialCounts() bool {
	return l.spec.Algorithm != Ban && l.spec.Algorithm != Concurrency
}

// CountDenial counts one denial and reports whether it has started a ban.
func (l *Limit) CountDenial(now *Now, s *State) (begun bool) {
	at, strikes := now.Steady, l.denials(s)
	if int64(len(strikes))+1 >= l.spec.Units {
		length := l.spec.Ban.Microseconds()
		*s = State{Live: true, Numbers: l.numbers, W: Words{BannedUntil: at + length, BanLength: length}}
		return true
	}
	s.Live, s.Numbers, s.Log = true, l.numbers, append(strikes, Entry{At: at, Units: 1})
	return false
}

// amendBan counts a denial if the cost is raised, unless the key is banned. The receipt's Mark is 1
// if that has started a ban.
func (l *Limit) amendBan(now *Now, c *Settlement, s *State) Receipt {
	r := Receipt{Cost: c.Cost}
	if c.Cost > c.Receipt.Cost && s.banned(now.Steady) == 0 && l.CountDenial(now, s) {
		r.Mark = 1
	}
	return r
}

// BanFor bans a key by hand, unless a ban that runs ends later: store.BanFor. The denials that count stay.
func (l *Limit) BanFor(now *Now, length int64, s *State, r *Result) {
	l.Accept(s)
	l.Rebase(now, s)
	begun := s.banned(now.Steady) < length
	if begun {
		if s.Live = true; len(s.Log) == 0 {
			s.Numbers = l.numbers
		}
		s.W[BannedUntil], s.W[BanLength] = now.Steady+length, length
	}
	l.Step(now, Charge{Cost: 1}, s, r)
	r.Begun = begun
}

// validBan reports whether a Ban can have written the state.
func (s *State) validBan() bool {
	n := s.Numbers
	return 0 < n.Token && n.Token < remote && n.Unit == 0 && n.Burst == 0 && s.hasOnly(BannedUntil, BanLength) &&
		absBelow(s.W[BannedUntil], remote) && 0 <= s.W[BanLength] && s.W[BanLength] <= longest.Microseconds() &&
		len(s.Log) <= maxDenials && s.ascends(0, remote)
}
