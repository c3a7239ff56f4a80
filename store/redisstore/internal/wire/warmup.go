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

// warmUpState decodes free:warm:unit:cold, and what few have behind that, freeLead and refundsFrom.
func warmUpState(found string, s *algorithm.State) bool {
	var few [6]int64
	w := decodeNumbers(found, few[:0])
	if len(w) < 4 || len(w) > 6 {
		return false
	}
	free, warm, unit, cold := w[0], w[1], w[2], w[3]
	var freeLead, refundsFrom int64
	if len(w) > 4 {
		freeLead = w[4]
	}
	if len(w) > 5 {
		refundsFrom = w[5]
	}
	s.Numbers = algorithm.Numbers{Token: warm, Unit: unit}
	s.W = algorithm.Words{algorithm.Free: free, algorithm.Cold: cold,
		algorithm.FreeLead: freeLead, algorithm.RefundsFrom: refundsFrom}
	return 1 <= warm && warm < 1<<46 && validScale(unit) && 0 <= cold && cold <= warm && freeLead >= 0
}
