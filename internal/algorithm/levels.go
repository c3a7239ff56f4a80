package algorithm

import "slices"

// levels bound what a refund gives back: no more than the bucket has had in use, at its
// lowest, since the charge. Giving back more would let the bucket hold what it could not
// have held, had the charge cost less from the start: for a time in which the bucket was
// full anyway, nothing can be given back.
//
// A level is an instant (At) and the lowest use since then (Units). Both ascend, because a lower use caps the levels
// before it. Levels of one use become one, with the earlier instant. Only the last level stays although it has the use
// of the one before it: its instant is that of the last charge. Of more than maxLevels, two become one that differ
// least, with the earlier instant and the lower use. That can only give back less (TestLevelsGiveBackMost says how
// much).
//
// They are a state's Log, of which copies share memory, so every method returns a new list.
type levels []Entry

const maxLevels = 8

// startLevels returns the levels of a bucket without levels, of which used is in use now. The level is dated a
// microsecond back, so that a charge made now counts as later. Of earlier charges, only the receipts
// know how much is still in use.
func startLevels(now, used int64) levels { return levels{{At: now - 1, Units: used}} }

// charge records a charge at an instant, which raised what is in use from before to after. There is a level already.
// Charges of one instant have one level. If a charge waits, before is what is in use beside it when it runs, and so the
// lowest use since the other charges of its instant. These may have the first level, too, which is dated a microsecond
// back (startLevels).
func (v levels) charge(at, before, after int64, waits bool) levels {
	v = v.lower(before)
	last := len(v) - 1
	switch latest := v[last].At; {
	case waits && latest >= at-1:
		return v
	case latest >= at:
		v[last].Units = after
		return v
	}
	if v = append(v.withoutMark(), Entry{At: at, Units: after}); len(v) > maxLevels {
		v = v.merge()
	}
	return v
}

// withoutMark drops the last level if it only marks the instant of the last charge.
func (v levels) withoutMark() levels {
	if n := len(v); n > 1 && v[n-1].Units == v[n-2].Units {
		return v[:n-1]
	}
	return v
}

// lower lowers every level to at most used.
func (v levels) lower(used int64) levels {
	lowered := make(levels, 0, len(v)+1)
	for _, e := range v {
		lowered = lowered.with(Entry{At: e.At, Units: min(e.Units, used)})
	}
	return lowered.marked(v)
}

// with appends a level, unless the one before it has its use.
func (v levels) with(e Entry) levels {
	if n := len(v); n > 0 && v[n-1].Units == e.Units {
		return v
	}
	return append(v, e)
}

// marked appends the instant of the last level of old, if v lacks it.
func (v levels) marked(old levels) levels {
	last, latest := v[len(v)-1], old[len(old)-1].At
	if last.At < latest {
		v = append(v, Entry{At: latest, Units: last.Units})
	}
	return v
}

// merge joins two levels that differ least. The last level stays.
func (v levels) merge() levels {
	drop := len(v) - 2
	for i := drop - 1; i > 0; i-- {
		if v[i].Units-v[i-1].Units < v[drop].Units-v[drop-1].Units {
			drop = i
		}
	}
	return slices.Delete(v, drop, drop+1)
}

// refund records that back units of a charge at an instant have been given back: the use since then is lower by that,
// and so is the lowest use since any earlier instant.
func (v levels) refund(at, back int64) levels {
	first := 0
	for first+1 < len(v) && v[first+1].At <= at {
		first++
	}
	after := make(levels, 0, len(v)+1)
	for i, e := range v {
		if i < first {
			e.Units = min(e.Units, max(v[first].Units-back, 0))
		} else {
			e.Units = max(e.Units-back, 0)
		}
		after = after.with(e)
	}
	return after.marked(v)
}

// since returns the lowest use since a charge at an instant, as far back as the levels reach: since from, which is
// the charge's instant or, if that is earlier, a microsecond after the first level's.
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
