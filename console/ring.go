package console

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// span is how far back the page looks, in seconds.
const span = 300

// ring counts two things for each of the last seconds. It isn't safe for concurrent
// use.
type ring struct {
	slots [span + 1]struct {
		second uint32
		n      [2]int32
	}
}

// add adds to the counts of a second. It ignores seconds that are no longer in the ring.
func (r *ring) add(second uint32, n [2]int32) {
	s := &r.slots[second%uint32(len(r.slots))]
	if s.second > second {
		return
	}
	if s.second < second {
		s.second, s.n = second, [2]int32{}
	}
	s.n[0] += n[0]
	s.n[1] += n[1]
}

// addTo adds the counts of each of the span seconds before now to sums, and the counts since then
// to late.
func (r *ring) addTo(sums *[2][span]float64, late *[2]float64, now uint32) {
	for i := range r.slots {
		s := &r.slots[i]
		switch ago := int64(now) - int64(s.second); {
		case s.second == 0 || ago > span:
		case ago < 1:
			late[0] += float64(s.n[0])
			late[1] += float64(s.n[1])
		default:
			sums[0][span-ago] += float64(s.n[0])
			sums[1][span-ago] += float64(s.n[1])
		}
	}
}

// usage is how many units a key has left of its limit. A capacity of 0 means no key.
type usage struct{ left, capacity int64 }

// used returns how much of the limit the key has used, from 0 to 1.
func (r usage) used() float64 {
	if r.capacity <= 0 {
		return 0
	}
	return min(1, max(0, 1-float64(r.left)/float64(r.capacity)))
}

// nearer reports whether r is nearer to its limit than another.
func (r usage) nearer(than usage) bool {
	return r.capacity > 0 && (than.capacity <= 0 || r.used() > than.used())
}

// nearest is the key that was nearest to its limit in each of the last seconds. It isn't safe for
// concurrent use.
type nearest struct {
	slots [span + 1]struct {
		second uint32
		usage
	}
}

func (l *nearest) add(second uint32, left, of int64) {
	s := &l.slots[second%uint32(len(l.slots))]
	if r := (usage{left, max(of, 1)}); s.second < second || s.second == second && r.nearer(s.usage) {
		s.second, s.usage = second, r
	}
}

// addTo adds the keys that were nearer in the span seconds before now.
func (l *nearest) addTo(values *[span]usage, now uint32) {
	for i := range l.slots {
		s := &l.slots[i]
		if ago := int64(now) - int64(s.second); s.second != 0 && ago >= 1 && ago <= span && s.nearer(values[span-ago]) {
			values[span-ago] = s.usage
		}
	}
}

// levels returns the levels at the end of each second of a number that is level now, from its changes
// in each second, and those since.
func levels(level float64, changes *[span]float64, late float64) (values [span]float64) {
	level -= late
	for i := span - 1; i >= 0; i-- {
		values[i] = max(0, level)
		level -= changes[i]
	}
	return values
}

// gauge is a number that is set now and then, and what it was at the end of each of the
// last seconds. It is safe for concurrent use.
type gauge struct {
	level  atomic.Int64
	ring   [span + 1]atomic.Uint64 // second and level
	before [span + 1]atomic.Uint64 // the same second, and the level before it
}

func (g *gauge) set(level int64, second uint32) {
	level = max(0, min(level, 1<<32-1))
	was, i := g.level.Swap(level), second%uint32(len(g.ring))
	if uint32(g.ring[i].Load()>>32) != second {
		g.before[i].Store(uint64(second)<<32 | uint64(was))
	}
	g.ring[i].Store(uint64(second)<<32 | uint64(level))
}

// values returns the level in each of the span seconds before now. A second in which
// nothing was set has the level of the second before it.
func (g *gauge) values(now uint32) (line [span]float64) {
	var set [span]bool
	first, earliest := float64(g.level.Load()), int64(-1) // the level at the beginning of line
	for i := range g.ring {
		packed := g.ring[i].Load()
		second, level := uint32(packed>>32), uint32(packed)
		ago := int64(now) - int64(second)
		if second == 0 || ago > span {
			continue
		}
		if ago >= 1 {
			line[span-ago], set[span-ago] = float64(level), true
		}
		if earliest < 0 || int64(second) < earliest {
			earliest, first = int64(second), float64(uint32(g.before[i].Load()))
		}
	}
	for i := range line {
		if !set[i] {
			line[i] = first
		}
		first = line[i]
	}
	return line
}

// durations counts durations in buckets an eighth of an octave wide, of the last half
// of the span at least and all of it at most. It isn't safe for concurrent use.
type durations struct {
	halves [2]struct {
		period  uint32
		buckets [64 * 8]uint32
	}
}

// add counts durations of one second, by their buckets.
func (d *durations) add(second uint32, buckets []uint16) {
	period := second / (span / 2)
	h := &d.halves[period%2]
	if h.period > period {
		return // too old
	}
	if h.period < period {
		h.period = period
		clear(h.buckets[:])
	}
	for _, b := range buckets {
		h.buckets[b]++
	}
}

// addTo adds the counts that are recent enough to sums.
func (d *durations) addTo(sums *[64 * 8]uint64, second uint32) {
	for i := range d.halves {
		if h := &d.halves[i]; h.period+1 >= second/(span/2) {
			for k, n := range h.buckets {
				sums[k] += uint64(n)
			}
		}
	}
}

func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	octave := bits.Len64(n)
	if octave < 4 {
		return int(n)
	}
	return octave*8 + int(n>>(octave-4))&7
}

// bucketCeiling returns the longest duration of a bucket.
func bucketCeiling(bucket int) time.Duration {
	octave := bucket / 8
	if octave < 4 {
		return time.Duration(bucket)
	}
	return time.Duration(uint64(8+bucket%8+1)<<(octave-4) - 1)
}

// quantile returns the duration that a share q of the counted durations don't exceed. It
// is at most an eighth too long, and 0 if nothing was counted.
func quantile(sums *[64 * 8]uint64, q float64) time.Duration {
	var all uint64
	for _, n := range sums {
		all += n
	}
	if all == 0 {
		return 0
	}
	rank, seen := uint64(q*float64(all-1)), uint64(0)
	for i, n := range sums {
		if seen += n; seen > rank {
			return bucketCeiling(i)
		}
	}
	return 0
}
