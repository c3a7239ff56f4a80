package wire

import (
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/store"
)

// intervalArgs returns the arguments of lua/intervalbucket.lua: limit, cost, how, units, unit,
// burst, start, next, after.
func intervalArgs(l *limit) []any {
	limit, start, next, after := unaligned(l)
	return []any{limit, "1", "", text(l.spec.Units), text(l.terms.Numbers.Unit), text(l.spec.Burst), start, next, after}
}

// intervalState decodes start:token:unit:used:burst, where used is negative if it is Owed, and what few have behind
// that: the levels.
func intervalState(found string, s *algorithm.State) bool {
	var few [24]int64
	w := decodeNumbers(found, few[:0])
	if len(w) < 5 {
		return false
	}
	start, n, used, more := w[0], algorithm.Numbers{Token: w[1], Unit: w[2], Burst: w[4]}, w[3], w[5:]
	if used < 0 {
		used, s.W[algorithm.Owed] = -used, 1
	}
	s.W[algorithm.Start], s.W[algorithm.Used], s.Numbers = start, used, n
	return 1 <= n.Token && n.Token <= store.MaxCost && 0 <= n.Burst && n.Burst <= store.MaxCost &&
		intervalUnit(n.Unit) && decodeLevels(more, s) && (used > 0 || s.W[algorithm.KeptUntil] != 0)
}

// intervalUnit reports whether a limit may have such an interval: a number of microseconds, or the
// code of a window (Numbers.Unit in internal/algorithm).
func intervalUnit(unit int64) bool {
	const from = 7 // the kind of a window made by Every that has a From: its length is at most 2^53
	kind := -unit % 8
	return unit > 0 || unit < -1 && 1 <= kind && (kind != from || -unit/8%64 <= 53)
}
