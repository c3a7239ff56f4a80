package store

import (
	"slices"

	"github.com/stint-go/stint/internal/engine"
)

// SlidingWindow and SlidingLog share one step: charges are entered at an instant and
// leave one window later. The log enters them at their own instant; the window enters
// them at the start of their bucket, so that a bucket leaves as a whole.
//
// State.A and State.B are the newest entry's instant and units, State.Log the entries
// before it, and State.C the sum of all. Instants are in microseconds, so a state stays
// readable when the limit changes its numbers. A charge that waits is entered at the
// instant at which it runs and counts from now on, so no later charge overtakes it; everything
// later is entered there or after.
//
// State.E is how far ahead of the present the newest entry was when it was made: 0
// unless its turn was reserved. An entry further ahead than that was made before the
// clock was set back.
//
// # Versions
//
// An entry is kept for as long as it counts for one of the versions that have charged
// the key: the one in State.Numbers or, if there are several, those in State.Rest. Each
// version counts what lies in its own span. A version keeps entries until its own
// charges have stopped counting for it, and is known until no version keeps them any more.
// Then the others go on as if it had never been. A look or a denial makes a version known
// only if it keeps the entries for longer than all others (a period has been raised).
//
// A charge is entered at the latest beginning of the buckets that the known versions
// have it in, so in the same bucket of each. State.D is how much longer the state is
// kept than the ResetAfter of the version that has looked last.

// slide is the span that a SlidingWindow or SlidingLog looks back on. For a log it is
// Token microseconds; for a window it is a number of buckets of Token units each.
type slide struct {
	scale          scale // windows only
	token, buckets int64
}

// slideOf returns the slide for the Numbers of a state.
func slideOf(n engine.Numbers) slide {
	return slide{scale: scaleOf(n.Unit >> 10), token: n.Token, buckets: n.Unit & 1023}
}

func (d slide) numbers() engine.Numbers {
	return engine.Numbers{Token: d.token, Unit: d.scale.Code()<<10 | d.buckets}
}

// leaves returns the instant at which an entry made at at stops counting: exactly one
// window later.
func (d slide) leaves(at int64) int64 {
	if d.buckets == 0 {
		return at + d.token
	}
	return d.bucketStart(d.bucket(at) + d.buckets)
}

// entered returns the instant at which a charge made at at is entered.
func (d slide) entered(at int64) int64 {
	if d.buckets == 0 {
		return at
	}
	return d.bucketStart(d.bucket(at))
}

// tick returns the resolution in microseconds.
func (d slide) tick() int64 {
	if d.buckets == 0 {
		return 1
	}
	return d.scale.Tick()
}

func (l *Limit) rebaseSliding(now *Now, s *state) {
	at := now.Steady
	if s.Rest == nil {
		of := l.slide
		if s.Numbers != l.numbers {
			of = slideOf(s.Numbers)
		}
		of.clamp(at, s)
		of.drop(at, s)
	} else {
		s.rebaseVersions(at)
	}
	if !s.Live || l.alone(s) {
		s.D = 0
		return
	}
	if k := s.keepers(); k.see(l, s.A, at) {
		s.put(&k)
	}
	s.D = l.viewOf(at, s).more
}

// alone reports whether only this version has charged a state that is Live.
func (l *Limit) alone(s *state) bool { return s.Rest == nil && s.Numbers == l.numbers }

func (l *Limit) stepSliding(now *Now, c *Charge, s *state, r *Result) {
	l.rebase(now, s)
	if s.Live && !l.alone(s) {
		l.stepBeside(now, c, s, r)
		return
	}
	n := l.spec.Units
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case s.C+c.Cost <= n:
		r.Receipt = l.enter(now, s, now.Steady, c.Cost)
	default:
		if free := l.frees(s, s.C+c.Cost-n); l.slide.waits(now, l.maxWait(c), free, r) {
			r.Receipt = l.enter(now, s, free, c.Cost)
		}
	}
	r.Remaining = max(0, n-s.C)
	if s.Live {
		r.ResetAfter = micros(l.slide.leaves(s.A) - l.slide.present(now.Steady))
	}
}

// present returns the beginning of the tick that at is in.
func (d slide) present(at int64) int64 { return at - floorMod(at, d.tick()) }

// waits answers a charge for which there is room at free, which is a whole tick.
func (d slide) waits(now *Now, within, free int64, r *Result) bool {
	within -= within % d.tick()
	wait := free - d.present(now.Steady)
	if wait > within {
		r.OK, r.RetryAfter = false, micros(wait-within)
		return false
	}
	r.Delay = micros(wait)
	return true
}

// clamp moves what was entered before the clock was set back into one entry, now or at
// the turn that was reserved. Otherwise a key would be denied for as long as the
// difference.
func (d slide) clamp(at int64, s *state) {
	if s.A > at+s.E {
		s.gather(d.entered(at + s.E))
	}
}

// gather makes one entry at at of those from there on.
func (s *state) gather(at int64) {
	s.A = at
	n := len(s.Log)
	for n > 0 && s.Log[n-1].At >= s.A {
		n--
		s.B += s.Log[n].Units
	}
	s.Log = s.Log[:n:n]
}

// drop removes what no longer counts.
func (d slide) drop(at int64, s *state) {
	if d.leaves(s.A) <= at {
		*s = state{}
		return
	}
	gone := 0
	for gone < len(s.Log) && d.leaves(s.Log[gone].At) <= at {
		s.C -= s.Log[gone].Units
		gone++
	}
	s.Log = s.Log[gone:]
}

// enter adds a charge that runs at at. It is entered there, or at the newest entry's
// instant if that is later.
func (l *Limit) enter(now *Now, s *state, at, units int64) Receipt {
	switch entered := l.slide.entered(at); {
	case !s.Live:
		s.Live, s.Numbers, s.A = true, l.numbers, entered
	case !l.alone(s):
		l.join(now, s, at)
	case entered > s.A:
		s.open(entered)
	}
	s.B += units
	s.C += units
	s.E = max(s.A-now.Steady, 0)
	return Receipt{Instant: s.A, Mark: units, Cost: units}
}

// open begins a new entry.
func (s *state) open(at int64) {
	s.Log = append(s.Log, engine.Entry{At: s.A, Units: s.B})
	s.A, s.B = at, 0
}

// frees returns the instant at which the oldest entries, with units in total, have
// left.
func (l *Limit) frees(s *state, units int64) int64 {
	for _, e := range s.Log {
		if units -= e.Units; units <= 0 {
			return l.slide.leaves(e.At)
		}
	}
	return l.slide.leaves(s.A)
}

// The receipt says where a charge is entered. Its Mark is how much may be taken out of
// that entry.
func (l *Limit) amendSliding(now *Now, c *Charge, s *state) Receipt {
	receipt := c.Receipt
	diff := c.Cost - c.Receipt.Cost
	receipt.Cost = c.Cost
	if diff > 0 {
		used := s.C
		if s.Live && !l.alone(s) {
			used = l.viewOf(now.Steady, s).used
		}
		debt := Receipt{Cost: min(diff, max(0, MaxCost-used))}
		receipt.Cost -= diff - debt.Cost
		if debt.Cost == 0 {
			return receipt
		}
		debt = l.enter(now, s, now.Steady, debt.Cost)
		if c.Receipt.Cost == 0 || l.slide.leaves(receipt.Instant) <= now.Steady {
			receipt.Instant, receipt.Mark = debt.Instant, 0
		}
		// While the charge itself counts, a refund takes the debt out of the charge's
		// entry too, even at the expense of others in it: what they lose there stands
		// in the debt's entry, which leaves later.
		receipt.Mark += debt.Cost
		return receipt
	}
	// Once the charge counts no more for its own version, others may have entered theirs at
	// its instant: the state had gone meanwhile, and their buckets are longer.
	if refund := min(-diff, receipt.Mark); refund > 0 && s.Live && l.slide.leaves(receipt.Instant) > now.Steady {
		s.withdraw(now, receipt.Instant, refund)
		receipt.Mark -= refund
	}
	return receipt
}

// withdraw takes units out of the entry at at, if it still counts.
func (s *state) withdraw(now *Now, at, units int64) {
	if at == s.A {
		units = min(units, s.B)
		s.B -= units
	} else {
		i, found := slices.BinarySearchFunc(s.Log, at, compareEntry)
		if !found {
			return
		}
		units = min(units, s.Log[i].Units)
		s.Log[i].Units -= units
	}
	s.C -= units
	for s.B == 0 { // the newest entry must hold something, since it dates the state
		last := len(s.Log) - 1
		if last < 0 {
			*s = state{}
			return
		}
		s.A, s.B = s.Log[last].At, s.Log[last].Units
		s.E = max(s.A-now.Steady, 0)
		s.Log = s.Log[:last]
	}
	s.shorten()
}
