package store

// levels bound what a refund gives back: no more than the bucket has had in use, at its
// lowest, since the charge. Giving back more would let the bucket hold what it could not
// have held, had the charge cost less from the start: for a time in which the bucket was
// full anyway, nothing can be given back.
//
// A low is an instant and the lowest use since then. Both ascend: what was lower
// before is of no interest to later charges, and what was higher has sunk. There are as
// many as there have been lows, so the number is bounded: of more, the two that differ
// least become one, with the earlier instant and the lower use. That can only give back
// less. Four of them give back more than nine tenths of what an unbounded number would
// (TestLevelsGiveBackMost).
//
// The rule doesn't know what is counted: instants and uses are any integers.
type levels struct {
	n    int
	pair [maxLevels]low
}

type low struct {
	at   int64
	used units
}

const maxLevels = 8

// anEternity is an instant before all others.
const anEternity = -exact / 2

// begin makes used the only level, as of at: of what was charged before, only the caller
// knows how much stood then.
func (v *levels) begin(at int64, used units) {
	*v = levels{n: 1, pair: [maxLevels]low{{at, used}}}
}

// charged records a charge at at, which has brought what is in use from before to after.
// Charges of one instant are as one.
func (v *levels) charged(at int64, before, after units) {
	v.sink(before)
	if v.n > 0 && v.pair[v.n-1].at >= at {
		v.pair[v.n-1].used = after
		return
	}
	if v.n == maxLevels && !v.merge(after) {
		return
	}
	v.pair[v.n] = low{at, after}
	v.n++
}

// sink lowers every level to at most used.
func (v *levels) sink(used units) {
	for v.n > 0 && used.less(v.pair[v.n-1].used) {
		v.pair[v.n-1].used = used
		if v.n == 1 || v.pair[v.n-2].used.less(used) {
			return
		}
		v.n--
	}
}

// merge makes room for one more level, next, unless that is the one that differs least
// from the level before it.
func (v *levels) merge(next units) bool {
	drop, least := v.n, next.minus(v.pair[v.n-1].used)
	for i := v.n - 1; i > 0; i-- {
		if gap := v.pair[i].used.minus(v.pair[i-1].used); gap.less(least) {
			drop, least = i, gap
		}
	}
	if drop == v.n {
		return false
	}
	copy(v.pair[drop:], v.pair[drop+1:v.n])
	v.n--
	return true
}

// refund records that back has been given back for a charge at at: what was in use since
// then is less by that, and what was in use before is as it was.
func (v *levels) refund(at int64, back units) {
	was, first := *v, 0
	for first+1 < was.n && was.pair[first+1].at <= at {
		first++
	}
	for i := first; i < was.n; i++ {
		was.pair[i].used = greater(was.pair[i].used.minus(back), units{})
	}
	v.n = 0
	for i, e := range was.pair[:was.n] {
		if i < first {
			e.used = lesser(e.used, was.pair[first].used)
		}
		if v.n == 0 || v.pair[v.n-1].used.less(e.used) {
			v.pair[v.n] = e
			v.n++
		}
	}
}

// since returns the lowest use since a charge at at, as far as it is known: if whole is
// false, since the instant from.
func (v *levels) since(at int64) (used units, from int64, whole bool) {
	used, from = v.pair[0].used, v.pair[0].at
	for _, e := range v.pair[:v.n] {
		if e.at > at {
			break
		}
		used, whole = e.used, true
	}
	return used, from, whole
}
