package wire

import (
	"fmt"
	"strconv"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// banArgs returns the arguments of lua/ban.lua: limit, cost, counts.
func banArgs(l *limit) []any {
	return []any{fmt.Sprintf("%d,%d,%d", l.spec.Units, l.terms.Period, l.spec.Ban.Microseconds()), "1", ""}
}

func varyBan(_ *limit, args []any, c *store.Charge, t *Times) {
	if c == nil {
		return
	}
	if c.Cost != 1 {
		args[1] = text(c.Cost)
	}
	args[2] = t.counted
}

// countedBy returns the numbers of the charges whose denial counts for the ban of
// charge i.
func countedBy(charges []store.Charge, i int) string {
	var b []byte
	for j := range charges {
		if inside.Counts(&charges[j], &charges[i]) {
			b = append(strconv.AppendInt(b, int64(j+1), 10), ',')
		}
	}
	return string(b)
}

// banState decodes A:B:period, and the instants of denials in order.
func banState(found string, s *engine.State) bool {
	w := decodeNumbers(found, make([]int64, 0, 16))
	if len(w) < 3 {
		return false
	}
	s.A, s.B, s.Numbers.Token = w[0], w[1], w[2]
	denials := w[3:]
	if s.B < 0 || s.Numbers.Token < 1 || s.B == 0 && len(denials) == 0 {
		return false
	}
	for i, at := range denials {
		if i > 0 && at < denials[i-1] {
			return false
		}
		s.Log = append(s.Log, engine.Entry{At: at, Units: 1})
	}
	return true
}
