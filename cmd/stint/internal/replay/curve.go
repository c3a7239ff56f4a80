package replay

import (
	"math/bits"
	"slices"
	"sort"
)

// curve is the burst that a key needs at each rate, worked out from its arrivals as they come.
//
// A token bucket of rate r and burst b lets requests i to j pass only if W(i,j) - r·(t_j - t_i) is
// at most b, where W(i,j) is what they cost together: it holds b at most when request i comes. And
// if that is so for all i <= j, it lets all pass: for the first that it denies, it would not be so
// from the request on that last found the bucket full. So the least burst at a rate is the maximum of
// those numbers: as a function of r, the upper envelope of one line for each pair of requests, which
// is convex.
//
// There are too many pairs to look at. With S_j for what requests up to j cost, a pair is
// (S_j - r·t_j) + (r·t_i - S_i-1), one term for each request, and the pairs of a list of
// requests are those within its first half, those within its second, and those from the first to
// the second. For the last, the maximum of the sum is the sum of the maxima. So three
// envelopes say all there is to know of a list of requests: that of its pairs, that of its ends
// (S_j - r·t_j) and that of its beginnings (r·t_i - S_i-1). Two lists that follow each other make
// those of both together. Envelopes have few lines: those on the hull of points with integer
// coordinates, which are few (TestCurveIsSmall). So a key keeps neither its
// arrivals nor a sample of them, and the result is exact.
type curve struct {
	requests  int64
	sum       int64
	recent    []cumulative // arrivals that are in no stretch yet
	stretches []stretch    // each of more blocks than the next: those of the digits 1 of a binary number
}

// cumulative is an arrival, in microseconds, and what it cost together with those before it.
type cumulative struct{ at, cost, sum int64 }

// blockSize is how many arrivals become a stretch.
const blockSize = 32

// envelope is the maximum of the lines y - r·x for r >= 0, by points (x, y). Both coordinates
// grow, ever more slowly: of the points given, those on the upper left of their convex hull.
type envelope []point

type point struct{ x, y int64 }

// stretch has the envelopes of some arrivals that follow each other.
type stretch struct {
	blocks              int
	pairs, ends, begins envelope
}

// add adds an arrival, not before the last.
func (c *curve) add(at, cost int64) {
	c.sum += cost
	c.recent = append(c.recent, cumulative{at, cost, c.sum})
	if len(c.recent) < blockSize {
		return
	}
	p := newStretch(c.recent)
	p.blocks = 1
	c.recent = c.recent[:0]
	for n := len(c.stretches); n > 0 && c.stretches[n-1].blocks == p.blocks; n-- {
		p = concat(&c.stretches[n-1], &p)
		c.stretches[n-1] = stretch{}
		c.stretches = c.stretches[:n-1]
	}
	c.stretches = append(c.stretches, p)
}

// envelope returns the envelope of all pairs.
func (c *curve) envelope() envelope {
	var all stretch
	if len(c.recent) > 0 {
		all = newStretch(c.recent)
	}
	for _, p := range slices.Backward(c.stretches) {
		if len(all.pairs) == 0 {
			all = p
			continue
		}
		all = concat(&p, &all)
	}
	return slices.Clone(all.pairs)
}

// newStretch returns the stretch of some arrivals.
func newStretch(all []cumulative) stretch {
	if len(all) == 1 {
		s := all[0]
		return stretch{pairs: envelope{{0, s.cost}}, ends: envelope{{s.at, s.sum}}, begins: envelope{{-s.at, s.cost - s.sum}}}
	}
	a, b := newStretch(all[:len(all)/2]), newStretch(all[len(all)/2:])
	return concat(&a, &b)
}

// concat returns the stretch of two that follow each other.
func concat(a, b *stretch) stretch {
	return stretch{
		blocks: a.blocks + b.blocks,
		pairs:  union(union(a.pairs, b.pairs), sum(b.ends, a.begins)),
		ends:   union(a.ends, b.ends),
		begins: union(b.begins, a.begins),
	}
}

// union returns the maximum of two envelopes.
func union(a, b envelope) envelope {
	hull := make(envelope, 0, len(a)+len(b))
	for len(a)+len(b) > 0 {
		var p point
		if len(b) == 0 || len(a) > 0 && (a[0].x < b[0].x || a[0].x == b[0].x && a[0].y >= b[0].y) {
			p, a = a[0], a[1:]
		} else {
			p, b = b[0], b[1:]
		}
		if len(hull) > 0 && p.y <= hull[len(hull)-1].y { // no higher, and not before: never the maximum
			continue
		}
		for n := len(hull); n > 1 && !steeper(hull[n-2], hull[n-1], hull[n-1], p); n-- {
			hull = hull[:n-1]
		}
		hull = append(hull, p)
	}
	return hull
}

// sum returns the sum of two envelopes: from the sum of their first points on, the edges of both,
// the steepest first.
func sum(a, b envelope) envelope {
	out := make(envelope, 1, len(a)+len(b)-1)
	out[0] = point{a[0].x + b[0].x, a[0].y + b[0].y}
	for i, j := 0, 0; i+1 < len(a) || j+1 < len(b); {
		if j+1 == len(b) || i+1 < len(a) && steeper(a[i], a[i+1], b[j], b[j+1]) {
			i++
		} else {
			j++
		}
		out = append(out, point{a[i].x + b[j].x, a[i].y + b[j].y})
	}
	return out
}

// steeper reports whether the edge from a to b is steeper than that from c to d, in which no
// coordinate falls.
func steeper(a, b, c, d point) bool {
	hi, lo := bits.Mul64(uint64(b.y-a.y), uint64(d.x-c.x))
	hi2, lo2 := bits.Mul64(uint64(d.y-c.y), uint64(b.x-a.x))
	return hi > hi2 || hi == hi2 && lo > lo2
}

// burst returns the least whole burst with which everything passes at a rate.
func (e envelope) burst(r Rate) int64 {
	period := uint64(r.Seconds) * 1e6
	// The maximum is at the first point from which the hull rises less steeply than the rate.
	i := sort.Search(len(e)-1, func(i int) bool {
		hi, lo := bits.Mul64(uint64(e[i+1].y-e[i].y), period)
		hi2, lo2 := bits.Mul64(uint64(e[i+1].x-e[i].x), uint64(r.Units))
		return hi < hi2 || hi == hi2 && lo <= lo2
	})
	hi, lo := bits.Mul64(uint64(e[i].x), uint64(r.Units))
	if hi >= period {
		return max(e[0].y, 1) // more tokens than there are numbers: at such a rate only what comes at once counts
	}
	filled, _ := bits.Div64(hi, lo, period) // rounded down, so that the burst is rounded up
	return e[i].y - int64(filled)
}
