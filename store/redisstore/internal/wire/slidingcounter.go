package wire

import (
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/store"
)

// counterArgs returns the arguments of lua/slidingcounter.lua: cost, how, units, period.
func counterArgs(l *limit) []any {
	return []any{"1", "", text(l.spec.Units), text(l.terms.Period)}
}

func varyCounter(l *limit, args []any, c *store.Charge, _ *Times) {
	if c != nil {
		setCostAndWait(args, l, c)
	}
}

// counterState decodes start:count:previous:next.
func counterState(found string, s *algorithm.State) bool {
	var few [4]int64
	w := decodeNumbers(found, few[:0])
	if len(w) != 4 {
		return false
	}
	start, counts := w[0], w[1:]
	for _, counted := range counts {
		if counted < 0 || counted > store.MaxCost {
			return false
		}
	}
	s.W = algorithm.Words{algorithm.Start: start, algorithm.Count: counts[0],
		algorithm.Previous: counts[1], algorithm.Next: counts[2]}
	return counts[0]|counts[1]|counts[2] != 0
}
