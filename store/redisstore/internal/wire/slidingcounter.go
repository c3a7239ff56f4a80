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

// counterState decodes A:B:C:D.
func counterState(found string, s *algorithm.State) bool {
	var few [4]int64
	w := decodeNumbers(found, few[:0])
	if len(w) != 4 {
		return false
	}
	s.W[algorithm.Start], s.W[algorithm.Count], s.W[algorithm.Previous], s.W[algorithm.Next] = w[0], w[1], w[2], w[3]
	for _, counted := range []int64{s.W[algorithm.Count], s.W[algorithm.Previous], s.W[algorithm.Next]} {
		if counted < 0 || counted > store.MaxCost {
			return false
		}
	}
	return s.W[algorithm.Count]|s.W[algorithm.Previous]|s.W[algorithm.Next] != 0
}
