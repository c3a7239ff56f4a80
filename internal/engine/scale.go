package engine

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
	// lengths of time are then in ticks: see store/tokenbucket.go and store/warmup.go.
	Wide    bool
	PerTick int64
}

// wideCode takes the place of the exponent in the Code of a wide scale.
const wideCode = 7

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

// Ticks are the lengths of ticks in microseconds, by exponent. The last two are no longer
// chosen, but a server may hold states counted in them.
var Ticks = [8]int64{1, 10, 100, 1000, 10_000, 100_000, 1, 1}

// Tick returns the length of a tick in microseconds.
func (s Scale) Tick() int64 { return Ticks[s.Exponent&7] }

// At returns the instant us, in microseconds, in units, for a scale that isn't wide.
func (s Scale) At(us int64) int64 {
	if s.Exponent == 0 {
		return us * s.PerTick
	}
	return floorDiv(us, s.Tick()) * s.PerTick
}

// In a wide scale, the units beyond a whole tick are below 2^WideBits. With the ticks of 20
// years that makes 90 bits: an int64 and 32 bits more, which a State or a Receipt
// keeps.
const (
	WideBits = 40
	lowBits  = 32
)

// Split splits an instant, as a State or a Receipt keeps it, into whole ticks and the
// units beyond them.
func (s Scale) Split(word int64, low uint32) (ticks, beyond int64) {
	if s.Wide {
		return word >> (WideBits - lowBits), word&(1<<(WideBits-lowBits)-1)<<lowBits | int64(low)
	}
	ticks = floorDiv(word, s.PerTick)
	return ticks, word - ticks*s.PerTick
}

// Join is the inverse of Split.
func (s Scale) Join(ticks, beyond int64) (word int64, low uint32) {
	if s.Wide {
		return ticks<<(WideBits-lowBits) | beyond>>lowBits, uint32(beyond)
	}
	return ticks*s.PerTick + beyond, 0
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
