package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/store"
)

// Of the arguments of lua/fixedwindow.lua, the places of those that few others have.
const (
	fixedHead = 4
	fixedRoom = 5
)

// fixedArgs returns the arguments of lua/fixedwindow.lua: limit, cost, how, units, head, room,
// start, next, after.
func fixedArgs(l *limit) []any {
	limit, start, next, after := unaligned(l)
	return []any{limit, "1", "", text(l.spec.Units), "", roomFor(l, 1), start, next, after}
}

func varyFixed(l *limit, args []any, c *store.Charge, t *Times) {
	varyWindow(l, args, c, t)
	if l.spec.Window != (store.Window{}) {
		args[fixedHead] = l.around(t.Wall).head
	}
	if c != nil && c.Cost != 1 {
		args[fixedRoom] = roomFor(l, c.Cost)
	}
}

// An integer that is a whole state: 1, the minute at which the window begins in eight digits, and
// what is counted in it in ten.
const (
	fixedDigits = 19
	mostMinutes = 100_000_000   // that have eight digits
	mostCounted = 9_999_999_999 // in ten digits
)

// roomFor returns how much may be in a window, in ten digits, for a charge to fit.
func roomFor(l *limit, cost int64) string {
	most := min(l.spec.Units, mostCounted) - cost
	if cost == 0 || most < 0 {
		return ""
	}
	return fmt.Sprintf("%010d", most)
}

// fixedState decodes one integer, or start:count and what few have behind that, :later.
func fixedState(found string, s *algorithm.State) bool {
	if len(found) == fixedDigits && !strings.Contains(found, ":") {
		n, err := strconv.ParseInt(found, 10, 64)
		s.W[algorithm.Start], s.W[algorithm.Count] = n/(mostCounted+1)%mostMinutes*minute, n%(mostCounted+1)
		return err == nil && found[0] == '1' && s.W[algorithm.Count] > 0
	}
	var few [3]int64
	w := decodeNumbers(found, few[:0])
	if len(w) < 2 || len(w) > 3 {
		return false
	}
	s.W[algorithm.Start], s.W[algorithm.Count] = w[0], w[1]
	if len(w) > 2 {
		s.W[algorithm.Later] = w[2]
	}
	count, later := s.W[algorithm.Count], s.W[algorithm.Later]
	return count >= 0 && count <= store.MaxCost && later >= 0 && count|later != 0
}
