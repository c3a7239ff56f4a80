package store

import (
	"math/bits"
	"time"
)

// Scale is the unit in which a rate's instants are counted: a tick is
// 10^Exponent microseconds and is cut into PerTick units. It is chosen so that
// a token and a tick are both whole numbers of units, which makes every
// instant at which a token arrives exact: 3 per second is 3 units a
// microsecond and 1,000,000 units a token, and nothing is ever rounded.
type Scale struct {
	Exponent uint8
	PerTick  int64
}

const (
	// exact is the first integer a double can't tell from its neighbour. The
	// Lua twins count in doubles.
	exact = 1 << 53
	// horizon is how far from a store's origin instants stay exact, in
	// microseconds: 20 years. Further out only limits that use the whole room
	// lose their exactness, and the stores here are restarted more often.
	horizon = 20 * 365.25 * 24 * 3600 * 1e6
	// finest to coarsest tick, 1 µs to 100 ms.
	coarsest = 5
)

var ticks = [coarsest + 1]int64{1, 10, 100, 1000, 10_000, 100_000}

// tick is the length of a tick in microseconds.
func (s Scale) tick() int64 { return ticks[s.Exponent] }

// at is the instant us, in units.
func (s Scale) at(us int64) int64 {
	if s.Exponent == 0 {
		return us * s.PerTick
	}
	return floorDiv(us, s.tick()) * s.PerTick
}

// exactly is the instant us in units, to the unit and not to the tick.
func (s Scale) exactly(us int64) int64 {
	t := s.tick()
	return floorDiv(us, t)*s.PerTick + floorMod(us, t)*s.PerTick/t
}

// Code is the scale as one number.
func (s Scale) Code() int64 { return s.PerTick*8 + int64(s.Exponent) }

// ScaleOf is the scale with a Code.
func ScaleOf(code int64) Scale { return Scale{Exponent: uint8(code & 7), PerTick: code >> 3} }

// At is the instant us, in microseconds, in the units of a rate's state with
// these numbers: a state whose word A (and D on top of it) isn't later is as if
// never seen.
func (n Numbers) At(us int64) int64 { return ScaleOf(n.Unit).at(us) }

// wait is the time until units have gone by, rounded up to a tick: at that
// instant, and not a tick earlier, the units are there.
func (s Scale) wait(units int64) time.Duration {
	if units <= 0 {
		return 0
	}
	n := units
	if s.PerTick != 1 {
		n = (units + s.PerTick - 1) / s.PerTick
	}
	return time.Duration(n*s.tick()) * time.Microsecond
}

// within is the number of units that go by in d, rounded down to a tick.
func (s Scale) within(d time.Duration) int64 {
	return int64(d/time.Microsecond) / s.tick() * s.PerTick
}

// convert carries a length of time from one scale to another, rounded up: a
// limit that changes its numbers must not gain by it.
func (s Scale) convert(units int64, to Scale) int64 {
	if s == to || units <= 0 || s.PerTick <= 0 {
		return max(units, 0)
	}
	// In microseconds first, whose fractions both scales are.
	us := units/s.PerTick*s.tick() + ceilDiv(units%s.PerTick*s.tick(), s.PerTick)
	return us/to.tick()*to.PerTick + ceilDiv(us%to.tick()*to.PerTick, to.tick())
}

// share is ceil(n * to / from) for n of 0 or more, or most if it is more than
// that.
func share(n, to, from, most int64) int64 {
	if n == 0 || to == from || from <= 0 {
		return min(n, most)
	}
	whole, rest := n/from, n%from
	if whole > most/to {
		return most
	}
	hi, lo := bits.Mul64(uint64(rest), uint64(to))
	part, left := bits.Div64(hi, lo, uint64(from))
	if left > 0 {
		part++
	}
	return min(whole*to+int64(part), most)
}

// fit finds the finest scale in which n per period is exact, and the units of
// one token in it. All of the scale's instants up to the horizon, plus room
// tokens on top, stay below 2^53; and room tokens come in a time that can be
// told, even as a debt on top of as much.
func fit(period, n, room int64, ok func(Scale) bool) (s Scale, token int64, found bool) {
	if float64(room)*float64(period)/float64(n) > far/2 {
		return Scale{}, 0, false
	}
	for e := uint8(0); e <= coarsest; e++ {
		r := ticks[e]
		if period%r != 0 {
			break
		}
		g := gcd(period/r, n)
		s = Scale{Exponent: e, PerTick: n / g}
		token = period / r / g
		if float64(horizon)/float64(r)*float64(s.PerTick)+float64(token)*float64(room) >= exact {
			continue
		}
		if ok == nil || ok(s) {
			return s, token, true
		}
	}
	return Scale{}, 0, false
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
