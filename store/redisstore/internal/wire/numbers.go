package wire

import (
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/algorithm"
)

// exact is the first number that a double can't tell from its neighbour.
const exact = 1 << 53

// decodeNumbers decodes decimal numbers separated by colons, if they are numbers that a limit may
// have written (words in lua/general.lua), and none otherwise. They are appended to room.
func decodeNumbers(found string, room []int64) []int64 {
	for more := true; more; {
		var word string
		word, found, more = strings.Cut(found, ":")
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n >= exact || n <= -exact || len(word) > 17 || word[0] == '+' {
			return nil
		}
		room = append(room, n)
	}
	return room
}

// leadingDigits returns how many digits a text begins with.
func leadingDigits(found string) int { return len(found) - len(strings.TrimLeft(found, "0123456789")) }

// validScale reports whether the code is that of a scale that a limit may count in: one whose
// instants of 20 years stay exact.
func validScale(code int64) bool {
	const horizon = 631_152_000_000_000
	if code < 8 || code%8 > 4 {
		return false
	}
	scale := algorithm.ScaleOf(code)
	return float64(scale.PerTick)*(horizon/float64(scale.Tick())) < exact
}

// small holds the numbers that most calls contain, as text: converting a value to an
// argument allocates.
var small = func() (a [256]any) {
	for i := range a {
		a[i] = strconv.Itoa(i)
	}
	return a
}()

// text returns a number as an argument.
func text(n int64) any {
	if n >= 0 && n < int64(len(small)) {
		return small[n]
	}
	return strconv.FormatInt(n, 10)
}
