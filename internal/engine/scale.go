package engine

// Scale is the unit in which a rate counts instants. A tick is 10^Exponent microseconds
// and is cut into PerTick units, chosen so that a token and a tick are both whole
// numbers of units. So every instant at which a token arrives is exact: 3 per second is
// 3 units a microsecond and 1,000,000 units a token, and nothing is ever rounded.
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

// floorDiv rounds towards minus infinity: instants before the origin (a test's clock in the
// year 2000) are negative.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
