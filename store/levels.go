package store

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// levels bound what a refund gives back: no more than the bucket has had in use, at its
// lowest, since the charge. Giving back more would let the bucket hold what it could not
// have held, had the charge cost less from the start: for a time in which the bucket was
// full anyway, nothing can be given back.
//
// A level is an instant (At) and the lowest use since then (Units). Both ascend: what was
// lower before is of no interest to later charges, and what was higher has sunk. Of more than
// maxLevels, the two that differ least become one, with the earlier instant and the lower
// use. That can only give back less (TestLevelsGiveBackMost says how much).
//
// They are a state's Log, of which copies share memory, so every method returns a new list.
type levels []engine.Entry

const maxLevels = 8

// begin returns the levels of a bucket that has none and has used in use now. The level is a
// microsecond before, because a charge made now is later. Of earlier charges, only the receipts
// know how much stands now.
func begin(now, used int64) levels { return levels{{At: now - 1, Units: used}} }

// charged records a charge at at, which has brought what is in use from before to after.
// Charges of one instant are as one.
func (v levels) charged(at, before, after int64) levels {
	v = v.sunk(before)
	if n := len(v); n > 0 && v[n-1].At >= at {
		v[n-1].Units = after
		return v
	}
	if v = append(v, engine.Entry{At: at, Units: after}); len(v) > maxLevels {
		v = v.merged()
	}
	return v
}

// sunk lowers every level to at most used.
func (v levels) sunk(used int64) levels {
	v = slices.Clone(v)
	for n := len(v); n > 0 && v[n-1].Units > used; n-- {
		v[n-1].Units = used
		if n == 1 || v[n-2].Units < used {
			break
		}
		v = v[:n-1]
	}
	return v
}

// merged makes one of the two levels that differ least.
func (v levels) merged() levels {
	drop := len(v) - 1
	for i := drop - 1; i > 0; i-- {
		if v[i].Units-v[i-1].Units < v[drop].Units-v[drop-1].Units {
			drop = i
		}
	}
	return slices.Delete(v, drop, drop+1)
}

// refunded records that back has been given back for a charge at at: what was in use since
// then is less by that, and what was in use before is as it was.
func (v levels) refunded(at, back int64) levels {
	first := 0
	for first+1 < len(v) && v[first+1].At <= at {
		first++
	}
	var is levels
	for i, e := range v {
		if i < first {
			e.Units = min(e.Units, max(v[first].Units-back, 0))
		} else {
			e.Units = max(e.Units-back, 0)
		}
		if n := len(is); n == 0 || is[n-1].Units < e.Units {
			is = append(is, e)
		}
	}
	return is
}

// since returns the lowest use since a charge at at, as far as it is known: since the
// instant from, which is one after the first level's.
func (v levels) since(at int64) (used, from int64) {
	used, from = v[0].Units, max(v[0].At+1, at)
	for _, e := range v {
		if e.At > at {
			break
		}
		used = e.Units
	}
	return used, from
}

// remember keeps E and the Log until an instant, at least.
func (s *state) remember(until int64) {
	if s.D == 0 {
		s.D, s.E = until, anEternity
	}
	s.D = max(s.D, until)
}

// anEternity is an instant before all others.
const anEternity = -exact / 2

// barred reports whether a charge was made before the numbers last changed.
func (s *state) barred(r *Receipt) bool { return s.D != 0 && r.Instant < s.E }

// kept is how long the state of a bucket says more than that it is full.
func (s *state) kept(now *Now, r *Result) time.Duration {
	if s.D == 0 {
		return r.ResetAfter
	}
	return max(r.ResetAfter, micros(s.D-now.Steady))
}

// validLevels reports whether D, E and the Log are as a bucket writes them.
func (s *state) validLevels() bool {
	for i, e := range s.Log {
		if i > 0 && e.Units <= s.Log[i-1].Units || e.Units >= exact {
			return false
		}
	}
	return -remote < s.D && s.D < remote && -exact < s.E && s.E < remote && (s.D != 0 || s.E == 0 && len(s.Log) == 0) &&
		len(s.Log) <= maxLevels && s.ascends(0, remote)
}
