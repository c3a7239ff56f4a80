package store

import (
	"math/bits"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// scale is an engine.Scale with the arithmetic of units.
type scale struct{ engine.Scale }

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
)

// instant returns the instant us in units, rounded down to a tick.
func (s scale) instant(us int64) units { return product(floorDiv(us, s.Tick()), s.PerTick) }

// exactly returns the instant us in units, without rounding to a tick.
func (s scale) exactly(us int64) units {
	part, _ := product(floorMod(us, s.Tick()), s.PerTick).over(s.Tick())
	return s.instant(us).plus(part)
}

func scaleOf(code int64) scale { return scale{engine.ScaleOf(code)} }

// read returns the instant that a State or a Receipt keeps.
func (s scale) read(word int64, low uint32) units {
	if !s.Wide {
		return whole(word)
	}
	ticks, beyond := s.Split(word, low)
	return s.length(ticks).plus(whole(beyond))
}

// write is the inverse of read.
func (s scale) write(u units) (word int64, low uint32) {
	if !s.Wide {
		return u.int(), 0
	}
	ticks, beyond := u.over(s.PerTick)
	return s.Join(ticks.int(), beyond)
}

// length returns the units of so many ticks.
func (s scale) length(ticks int64) units { return product(ticks, s.PerTick) }

// wait returns the time until u units have gone by, rounded up to a tick: at that
// instant, and not a tick earlier, they are there.
func (s scale) wait(u units) time.Duration {
	if !u.positive() {
		return 0
	}
	return micros(u.upOver(s.PerTick) * s.Tick())
}

// waitOne is wait for units in one word.
func (s scale) waitOne(n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	if s.PerTick != 1 {
		n = ceilDiv(n, s.PerTick)
	}
	return time.Duration(n*s.Tick()) * time.Microsecond
}

// within returns the number of units that go by in d, rounded down to a tick.
func (s scale) within(d time.Duration) units {
	return s.length(int64(d/time.Microsecond) / s.Tick())
}

// micros returns a length of time in microseconds, rounded up.
func (s scale) micros(u units) int64 {
	n, rest := u.over(s.PerTick)
	return n.int()*s.Tick() + product(rest, s.Tick()).upOver(s.PerTick)
}

// ofMicros returns a length of time given in microseconds, rounded up.
func (s scale) ofMicros(us int64) units {
	return s.length(us / s.Tick()).plus(whole(product(us%s.Tick(), s.PerTick).upOver(s.Tick())))
}

// convert converts a length of time from one scale to another. It rounds up: a limit
// must not gain by changing its numbers.
func (s scale) convert(u units, to scale) units {
	if s.PerTick == to.PerTick && s.Tick() == to.Tick() || !u.positive() || s.PerTick <= 0 {
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
func fit(period, n, room int64, ok func(scale) bool) (s scale, token int64) {
	for e := uint8(0); e <= coarsest; e++ {
		r := engine.Ticks[e]
		if period%r != 0 {
			break
		}
		g := gcd(period/r, n)
		s = scale{engine.Scale{Exponent: e, PerTick: n / g}}
		token = period / r / g
		if float64(horizon)/float64(r)*float64(s.PerTick)+float64(token)*float64(room) >= exact {
			continue
		}
		if ok == nil || ok(s) {
			return s, token
		}
	}
	g := gcd(period, n)
	return scale{engine.Scale{PerTick: n / g, Wide: true}}, period / g
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
