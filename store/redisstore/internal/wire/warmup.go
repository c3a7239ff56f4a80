package wire

import (
	"fmt"

	"github.com/stint-go/stint/internal/algorithm"
)

// warmUpArgs returns the arguments of lua/warmup.lua: limit, cost, how, token, perTick, tick,
// unit, warm.
func warmUpArgs(l *limit) []any {
	t := &l.terms
	return []any{
		fmt.Sprintf("%d,%d", t.Largest, t.Longest), "1", "0",
		text(t.Token), text(t.Scale.PerTick), text(t.Scale.Tick()), text(t.Numbers.Unit), text(t.Warm),
	}
}

// warmUpState decodes A:warm:unit:B, and what few have behind that, C and E.
func warmUpState(found string, s *algorithm.State) bool {
	var few [6]int64
	w := decodeNumbers(found, few[:0])
	if len(w) < 4 || len(w) > 6 {
		return false
	}
	n := algorithm.Numbers{Token: w[1], Unit: w[2]}
	s.W[algorithm.Free], s.W[algorithm.Cold], s.Numbers = w[0], w[3], n
	if len(w) > 4 {
		s.W[algorithm.FreeLead] = w[4]
	}
	if len(w) > 5 {
		s.W[algorithm.RefundsFrom] = w[5]
	}
	return n.Token >= 1 && n.Token < 1<<46 && validScale(n.Unit) && s.W[algorithm.Cold] >= 0 && s.W[algorithm.Cold] <= n.Token && s.W[algorithm.FreeLead] >= 0
}
