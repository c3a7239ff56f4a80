// Package figures writes what was measured: medians of rounds with the least and
// the most of them, and numbers as the documents show them.
package figures

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Spread is the result of the rounds: their median, the least and the most.
type Spread struct{ Median, Least, Most float64 }

// Of sorts values and returns their spread. What isn't a number, such as a ratio to
// something too short for the clock that measured it, is left out.
func Of(values []float64) Spread {
	values = slices.DeleteFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return Spread{}
	}
	return Spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// Times writes a ratio, or a dash if no round had one.
func (s Spread) Times() string {
	if s == (Spread{}) {
		return "–"
	}
	return fmt.Sprintf("%.2f × (%.2f–%.2f)", s.Median, s.Least, s.Most)
}

// Part writes a ratio below 1 as 1/x.
func (s Spread) Part() string {
	if s.Median >= 1 || s.Least <= 0 {
		return s.Times()
	}
	return fmt.Sprintf("1/%.1f (1/%.1f–1/%.1f)", 1/s.Median, 1/s.Most, 1/s.Least)
}

// Percent writes a part of one in percent.
func (s Spread) Percent() string {
	return fmt.Sprintf("%.0f %% (%.0f to %.0f)", 100*s.Median, 100*s.Least, 100*s.Most)
}

// Micros writes a duration in microseconds, or a dash for one too short for the clock
// that measured it.
func Micros(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	us := float64(d) / float64(time.Microsecond)
	if us < 10 {
		return fmt.Sprintf("%.2f µs", us)
	}
	return Thousands(int64(math.Round(us))) + " µs"
}

// Thousands writes a number with a comma at each thousand.
func Thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Thousands(n/1000), n%1000)
}

// Many writes a number of things.
func Many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(int64(n)) + " " + what + "s"
}
