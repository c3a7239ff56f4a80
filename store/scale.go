package store

import (
	"math/bits"
	"time"
)

// Scale is the unit in which a rate counts instants. A tick is 10^Exponent microseconds
// and is cut into PerTick units, chosen so that a token and a tick are both whole
// numbers of units. So every instant at which a token arrives is exact: 3 per second is
// 3 units a microsecond and 1,000,000 units a token, and nothing is ever rounded.
//
// For most rates an instant is one integer that a double can hold. The others have a
// wide scale, whose instants are two integers: whole ticks of a microsecond, and units
// beyond them.
type Scale struct {
	Exponent uint8
	// Wide means that instants are two integers. In the words of a State, instants and
	// lengths of time are then in ticks: see tokenbucket.go and warmup.go.
	Wide    bool
	PerTick int64
}

const (
	// exact is the first integer that a double can't distinguish from its neighbour.
	// The Lua twins count in doubles.
	exact = 1 << 53
	// horizon is how far from a store's origin instants stay exact, in microseconds: 20
	// years. Beyond it only limits that use the whole range lose exactness, and the
	// stores here are restarted more often.
	horizon = 20 * 365.25 * 24 * 3600 * 1e6
	// coarsest is the exponent of the coarsest tick: a millisecond.
	coarsest = 3
	// wideCode takes the place of the exponent in the Code of a wide scale.
	wideCode = 7
)

// ticks are the lengths of ticks by exponent. The last two are no longer chosen, but a
// server may hold states counted in them.
var ticks = [8]int64{1, 10, 100, 1000, 10_000, 100_000, 1, 1}

// tick is the length of a tick in microseconds.
func (s Scale) tick() int64 { return ticks[s.Exponent&7] }

// at returns the instant us in units, for a scale that isn't wide.
func (s Scale) at(us int64) int64 {
	if s.Exponent == 0 {
		return us * s.PerTick
	}
	return floorDiv(us, s.tick()) * s.PerTick
}

// instant returns the instant us in units, rounded down to a tick.
func (s Scale) instant(us int64) units { return product(floorDiv(us, s.tick()), s.PerTick) }

// exactly returns the instant us in units, without rounding to a tick.
func (s Scale) exactly(us int64) units {
	part, _ := product(floorMod(us, s.tick()), s.PerTick).over(s.tick())
	return s.instant(us).plus(part)
}

// Code returns the scale as one number: the inverse of ScaleOf.
func (s Scale) Code() int64 {
	if s.Wide {
		return s.PerTick*8 + wideCode
	}
	return s.PerTick*8 + int64(s.Exponent)
}

// ScaleOf returns the scale that has the given Code.
func ScaleOf(code int64) Scale {
	if code&7 == wideCode {
		return Scale{PerTick: code >> 3, Wide: true}
	}
	return Scale{Exponent: uint8(code & 7), PerTick: code >> 3}
}

// In a wide scale, the units beyond a whole tick are below 2^40. With the ticks of 20
// years that makes 90 bits: an int64 and 32 bits more, which a State or a Receipt
// keeps.
const (
	wideBits = 40
	lowBits  = 32
)

// Split splits an instant, as a State or a Receipt keeps it, into whole ticks and the
// units beyond them.
func (s Scale) Split(word int64, low uint32) (ticks, beyond int64) {
	if s.Wide {
		return word >> (wideBits - lowBits), word&(1<<(wideBits-lowBits)-1)<<lowBits | int64(low)
	}
	return floorDiv(word, s.PerTick), floorMod(word, s.PerTick)
}

// Join is the inverse of Split.
func (s Scale) Join(ticks, beyond int64) (word int64, low uint32) {
	if s.Wide {
		return ticks<<(wideBits-lowBits) | beyond>>lowBits, uint32(beyond)
	}
	return ticks*s.PerTick + beyond, 0
}

// read returns the instant that a State or a Receipt keeps.
func (s Scale) read(word int64, low uint32) units {
	if !s.Wide {
		return whole(word)
	}
	ticks, beyond := s.Split(word, low)
	return s.length(ticks).plus(whole(beyond))
}

// write is the inverse of read.
func (s Scale) write(u units) (word int64, low uint32) {
	if !s.Wide {
		return u.int(), 0
	}
	ticks, beyond := u.over(s.PerTick)
	return s.Join(ticks.int(), beyond)
}

// length returns the units of so many ticks.
func (s Scale) length(ticks int64) units { return product(ticks, s.PerTick) }

// At returns the instant us, in microseconds, as word A of a rate's state with these
// numbers. A state whose A plus D isn't later than that is as if never seen.
func (n Numbers) At(us int64) int64 {
	s := ScaleOf(n.Unit)
	if s.Wide {
		return us << (wideBits - lowBits)
	}
	return s.at(us)
}

// wait returns the time until u units have gone by, rounded up to a tick: at that
// instant, and not a tick earlier, they are there.
func (s Scale) wait(u units) time.Duration {
	if !u.positive() {
		return 0
	}
	return micros(u.upOver(s.PerTick) * s.tick())
}

// waitOne is wait for units in one word.
func (s Scale) waitOne(n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	if s.PerTick != 1 {
		n = ceilDiv(n, s.PerTick)
	}
	return time.Duration(n*ticks[s.Exponent&7]) * time.Microsecond
}

// within returns the number of units that go by in d, rounded down to a tick.
func (s Scale) within(d time.Duration) units {
	return s.length(int64(d/time.Microsecond) / s.tick())
}

// micros returns a length of time in microseconds, rounded up.
func (s Scale) micros(u units) int64 {
	n, rest := u.over(s.PerTick)
	return n.int()*s.tick() + product(rest, s.tick()).upOver(s.PerTick)
}

// ofMicros returns a length of time given in microseconds, rounded up.
func (s Scale) ofMicros(us int64) units {
	return s.length(us / s.tick()).plus(whole(product(us%s.tick(), s.PerTick).upOver(s.tick())))
}

// convert converts a length of time from one scale to another. It rounds up: a limit
// must not gain by changing its numbers.
func (s Scale) convert(u units, to Scale) units {
	if s.PerTick == to.PerTick && s.tick() == to.tick() || !u.positive() || s.PerTick <= 0 {
		return greater(u, units{})
	}
	return to.ofMicros(s.micros(u))
}

// share returns ceil(n * to / from), for n >= 0, but at most most.
func share(n units, to, from int64, most units) units {
	if to == from || from <= 0 {
		return lesser(n, most)
	}
	times, rest := n.over(from)
	if limit, _ := most.over(to); limit.less(times) {
		return most
	}
	hi, lo := bits.Mul64(times.lo, uint64(to))
	part := product(rest, to).upOver(from)
	return lesser(units{times.hi*to + int64(hi), lo}.plus(whole(part)), most)
}

// fit finds the finest scale in which n per period is exact, and the units of one token
// in it. In a scale of one word all instants up to the horizon, with room tokens on
// top, stay below 2^53, and ok accepts it. If there is none, the scale is wide.
func fit(period, n, room int64, ok func(Scale) bool) (s Scale, token int64) {
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
			return s, token
		}
	}
	g := gcd(period, n)
	return Scale{PerTick: n / g, Wide: true}, period / g
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
