package algorithm

import (
	"math"
	"math/bits"
	"time"
)

// Epoch is 2026-01-01 00:00:00 UTC, in seconds since 1970. Instants are counted from Epoch
// instead of 1970, so that they stay below 2^53 for 56 more years.
const Epoch = 1767225600

// Scale is the unit in which a rate counts instants. A tick is 10^Exponent microseconds
// and is cut into PerTick units, chosen so that a token and a tick are both whole
// numbers of units. So every instant at which a token arrives is exact: 3 per second is
// 3 units a microsecond and 1,000,000 units a token, and nothing is ever rounded.
// Lengths of time and instants in its units are below 2^53, since the Lua twins count in doubles.
type Scale struct {
	Exponent uint8
	PerTick  int64
}

// Code returns the scale as one number: the inverse of ScaleOf.
func (s Scale) Code() int64 { return s.PerTick*8 + int64(s.Exponent) }

// ScaleOf returns the scale that has the given Code.
func ScaleOf(code int64) Scale { return Scale{Exponent: uint8(code & 7), PerTick: code >> 3} }

// Ticks are the lengths of ticks in microseconds, by exponent.
var Ticks = [8]int64{1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000}

// Tick returns the length of a tick in microseconds.
func (s Scale) Tick() int64 { return Ticks[s.Exponent&7] }

// At returns the instant us, in microseconds, in units, rounded down to a tick.
func (s Scale) At(us int64) int64 {
	if s.Exponent == 0 {
		return us * s.PerTick
	}
	return floorDiv(us, s.Tick()) * s.PerTick
}

const (
	// exact is the first integer that a double can't distinguish from its neighbour.
	exact = 1 << 53
	// horizon is how far from a store's origin instants stay exact, in microseconds: 20
	// years. Beyond it, only limits that use the whole range lose exactness.
	horizon = 20 * 365.25 * 24 * 3600 * 1e6
	// longest is the furthest into the future that a turn is reserved or a debt reaches.
	longest = 365 * 24 * time.Hour
	// far is how far a limit looks ahead, in microseconds: 200 years, which still fits a
	// time.Duration.
	far = 200 * 365 * 24 * 3600 * 1_000_000
	// remote is further from the origin than any instant that a step writes, in microseconds: a
	// limit takes at most a century, from a present within the horizon.
	remote = far/2 + 2*horizon
	// coarsest is the exponent of the coarsest tick in which a rate is exact: a
	// millisecond. A rate that is rounded may have a tick ten times as long.
	coarsest = 3
)

// wait returns the time until n units have gone by, rounded up to a tick: at that
// instant, and not a tick earlier, they are there.
func (s Scale) wait(n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	if s.PerTick != 1 {
		n = ceilDiv(n, s.PerTick)
	}
	return time.Duration(n*s.Tick()) * time.Microsecond
}

// within returns the number of units that go by in so many microseconds, rounded down to a
// tick.
func (s Scale) within(us int64) int64 { return us / s.Tick() * s.PerTick }

// micros returns an instant or a length of time in microseconds, rounded up to a tick.
func (s Scale) micros(n int64) int64 { return -floorDiv(-n, s.PerTick) * s.Tick() }

// ofMicros returns so many microseconds in units, rounded up to a tick.
func (s Scale) ofMicros(us int64) int64 { return -floorDiv(-us, s.Tick()) * s.PerTick }

// exactScale returns the finest scale in which n per period is exact, and the units of one token
// in it, if it has room. accept, if not nil, is one more condition.
func exactScale(period, n, room int64, accept func(Scale) bool) (s Scale, token int64, ok bool) {
	for e := uint8(0); e <= coarsest && period%Ticks[e] == 0; e++ {
		ticks := period / Ticks[e]
		g := gcd(ticks, n)
		s = Scale{Exponent: e, PerTick: n / g}
		if token = ticks / g; hasRoom(s, token, room) && (accept == nil || accept(s)) {
			return s, token, true
		}
	}
	return Scale{}, 0, false
}

// hasRoom reports whether instants up to the horizon, with room tokens on top, and a thousand times
// a token are below 2^53.
func hasRoom(s Scale, token, room int64) bool {
	return float64(horizon)/float64(s.Tick())*float64(s.PerTick)+float64(token)*float64(room) < exact && token < exact/1000
}

// scaleBelow is exactScale for a rate that no scale holds exactly. It returns the nearest lower rate
// of the finest scale in which one is lower by less than one part in 10,000.
func scaleBelow(period, n, room int64, accept func(Scale) bool) (s Scale, token int64, ok bool) {
	const mostLost = 1e-4
	for e := uint8(0); e <= coarsest+1; e++ {
		s, token, lost := nearestBelow(e, period, n, room, accept)
		if lost >= mostLost {
			continue
		}
		g := gcd(s.PerTick, token)
		if reduced := (Scale{Exponent: e, PerTick: s.PerTick / g}); accept == nil || accept(reduced) {
			s, token = reduced, token/g
		}
		return s, token, true
	}
	return Scale{}, 0, false
}

// nearestBelow returns the scale with this exponent that loses the smallest part of n per
// period by rounding down, and that part: 1 if no scale has room.
func nearestBelow(exponent uint8, period, n, room int64, accept func(Scale) bool) (s Scale, token int64, lost float64) {
	lost = 1
	ticks := n * Ticks[exponent] // a token is period/ticks ticks
	mostPerTick := int64(exact / horizon * float64(Ticks[exponent]))
	for perTick := int64(1); perTick <= mostPerTick; perTick++ {
		units := ceilDiv(perTick*period, ticks)
		part := float64(units*ticks-perTick*period) / (float64(units) * float64(ticks))
		c := Scale{Exponent: exponent, PerTick: perTick}
		if part < lost && hasRoom(c, units, room) && (accept == nil || accept(c)) {
			s, token, lost = c, units, part
		}
	}
	return s, token, lost
}

// mulDiv returns n * part / whole, rounded up. part is at most whole.
func mulDiv(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	q, rest := bits.Div64(hi, lo, uint64(whole))
	if rest > 0 {
		q++
	}
	return int64(q)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// floorDiv and floorMod round towards minus infinity: instants before the
// origin (a test's clock in the year 2000) are negative.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func floorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// possible reports whether a limit may have the scale.
func (s Scale) possible() bool { return 0 < s.PerTick && s.PerTick < exact && s.Exponent <= coarsest+1 }

// covers reports whether n units are less than so many microseconds. Instants earlier than the
// horizon, of a test's clock, may be beyond what is exact.
func (s Scale) covers(n, us float64) bool {
	return math.Abs(n) < 2*exact && math.Abs(n)/float64(s.PerTick)*float64(s.Tick()) < us
}

// divisor divides by the same number many times. A multiplication and a correction take
// a third of the time of a division, which would be a tenth of a decision's.
type divisor struct{ by, inverse uint64 }

func divisorOf(by int64) divisor { return divisor{uint64(by), math.MaxUint64 / uint64(by)} }

// divide returns n divided by the divisor, rounded down, for n >= 0. The inverse is too
// small by less than one part in 2^64/by, so the quotient is at most one too small
// before the correction.
func (d divisor) divide(n int64) int64 {
	quotient, _ := bits.Mul64(uint64(n), d.inverse)
	if uint64(n)-quotient*d.by >= d.by {
		quotient++
	}
	return int64(quotient)
}
