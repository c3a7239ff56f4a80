package algorithm

import "slices"

// levels bound what a refund gives back: no more than the bucket has had in use, at its
// lowest, since the charge. Giving back more would let the bucket hold what it could not
// have held, had the charge cost less from the start: for a time in which the bucket was
// full anyway, nothing can be given back.
//
// A level is an instant (At) and the lowest use since then (Units). Both ascend: what was
// lower before is of no interest to later charges, and what was higher has been lowered. Of more than
// maxLevels, the two that differ least become one, with the earlier instant and the lower
// use. That can only give back less (TestLevelsGiveBackMost says how much).
//
// They are a state's Log, of which copies share memory, so every method returns a new list.
type levels []Entry

const maxLevels = 8

// startLevels returns the levels of a bucket that has none and has used in use now. It is dated a
// microsecond back, so that a charge made now counts as later. Of earlier charges, only the receipts
// know how much is still in use.
func startLevels(now, used int64) levels { return levels{{At: now - 1, Units: used}} }

// charge records a charge at an instant, which raised what is in use from before to after. Charges of one instant
// count as one. If a charge waits, before is what is in use beside it when it runs, and so the lowest use since the
// charges of its instant. The first level is dated a microsecond back (startLevels), and may be of such charges.
// There is a level.
func (v levels) charge(at, before, after int64, waits bool) levels {
	latest := v[len(v)-1].At
	v = v.lower(before)
	switch {
	case waits && latest >= at-1:
		return v
	case latest >= at:
		v[len(v)-1].Units = after
		return v
	}
	if v = append(v, Entry{At: at, Units: after}); len(v) > maxLevels {
		v = v.merge()
	}
	return v
}

// lower lowers every level to at most used.
func (v levels) lower(used int64) levels {
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

// merge joins the two levels that differ least.
func (v levels) merge() levels {
	drop := len(v) - 1
	for i := drop - 1; i > 0; i-- {
		if v[i].Units-v[i-1].Units < v[drop].Units-v[drop-1].Units {
			drop = i
		}
	}
	return slices.Delete(v, drop, drop+1)
}

// refund records that back units of a charge at an instant have been given back: the use since
// then is lower by that, and the use before is unchanged.
func (v levels) refund(at, back int64) levels {
	first := 0
	for first+1 < len(v) && v[first+1].At <= at {
		first++
	}
	var after levels
	for i, e := range v {
		if i < first {
			e.Units = min(e.Units, max(v[first].Units-back, 0))
		} else {
			e.Units = max(e.Units-back, 0)
		}
		if n := len(after); n == 0 || after[n-1].Units < e.Units {
			after = append(after, e)
		}
	}
	return after
}

// since returns the lowest use since a charge at an instant. Levels don't reach further back than
// from, one after the first level's instant.
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
