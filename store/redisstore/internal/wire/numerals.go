package wire

import (
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// exact is the first number that a double can't tell from its neighbour.
const exact = 1 << 53

// numerals decodes decimal numbers separated by colons, if they are numbers that a limit may
// have written (words in lua/general.lua), and none otherwise. They are appended to room.
func numerals(found string, room []int64) []int64 {
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

// digitsIn returns how many digits a text begins with.
func digitsIn(found string) int { return len(found) - len(strings.TrimLeft(found, "0123456789")) }

// countsIn reports whether the code is that of a scale that a limit may count in: one whose
// instants of 20 years stay exact.
func countsIn(code int64) bool {
	const horizon = 631_152_000_000_000
	if code < 8 || code%8 > 4 {
		return false
	}
	scale := engine.ScaleOf(code)
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

// setCostAndWait sets the arguments of a charge that its algorithm calls cost and how, and has
// beside each other. They stand for a charge of 1 that doesn't wait.
func setCostAndWait(costAndHow []any, l *limit, c *store.Charge) {
	if c.Cost != 1 {
		costAndHow[0] = text(c.Cost)
	}
	if c.MaxWait > 0 {
		costAndHow[1] = maxWait(c, l.terms.Patience)
	}
}

// varyCostAndWait is vary for the algorithms whose second and third arguments are cost and how.
func varyCostAndWait(l *limit, args []any, c *store.Charge, _ *Times) {
	if c != nil {
		setCostAndWait(args[1:], l, c)
	}
}

// maxWait returns the longest a charge may wait, in microseconds, as store counts it.
// Less than one microsecond is no wait, but differs from none, with which a queue keeps
// its own.
func maxWait(c *store.Charge, patience int64) string {
	if us := c.MaxWait.Microseconds(); us > 0 || c.MaxWait <= 0 {
		return strconv.FormatInt(min(max(us, 0), patience), 10)
	}
	return "0.5"
}
