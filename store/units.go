package store

import (
	"math"
	"math/bits"
)

// units is a length of time or an instant in the units of a Scale. In scales of one
// word it fits an int64, and the steps that every request runs count in those. 20 years
// in units of 2^-40 microseconds take 90 bits.
type units struct {
	hi int64
	lo uint64
}

func whole(n int64) units { return units{n >> 63, uint64(n)} }

// product returns a * b, for b >= 0.
func product(a, b int64) units {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return units{int64(hi) - a>>63&b, lo}
}

func (u units) plus(v units) units {
	lo, carry := bits.Add64(u.lo, v.lo, 0)
	return units{u.hi + v.hi + int64(carry), lo}
}

func (u units) minus(v units) units {
	lo, borrow := bits.Sub64(u.lo, v.lo, 0)
	return units{u.hi - v.hi - int64(borrow), lo}
}

func (u units) less(v units) bool { return u.hi < v.hi || u.hi == v.hi && u.lo < v.lo }

func (u units) positive() bool { return u.hi > 0 || u.hi == 0 && u.lo > 0 }

// over divides u by n, rounding down, and returns the remainder too, from 0 to n-1.
func (u units) over(n int64) (q units, rest int64) {
	if u.hi < 0 {
		q, rest = units{}.minus(u).over(n)
		if q = (units{}).minus(q); rest > 0 {
			return q.minus(units{lo: 1}), n - rest
		}
		return q, 0
	}
	d := uint64(n)
	lo, left := bits.Div64(uint64(u.hi)%d, u.lo, d)
	return units{int64(uint64(u.hi) / d), lo}, int64(left)
}

// upOver divides u by n, rounding up.
func (u units) upOver(n int64) int64 {
	q, rest := u.over(n)
	if rest > 0 {
		q = q.plus(units{lo: 1})
	}
	return q.int()
}

// int returns u as an int64, or the nearest int64.
func (u units) int() int64 {
	switch {
	case u.hi == int64(u.lo)>>63:
		return int64(u.lo)
	case u.hi < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}

func lesser(u, v units) units {
	if v.less(u) {
		return v
	}
	return u
}

func greater(u, v units) units {
	if u.less(v) {
		return v
	}
	return u
}
