package redisstore

import (
	"fmt"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

func ban(r *record) []any {
	return []any{fmt.Sprintf("%d,%d,%d", r.spec.Units, r.terms.Period, r.spec.Ban.Microseconds()), "1", ""}
}

func varyBan(r *record, args []any, c *store.Charge, t *timeArgs) {
	if c == nil {
		return
	}
	if c.Cost != 1 {
		args[1] = text(c.Cost)
	}
	args[2] = t.counted
}

// banState decodes A:B:period, and the instants of denials in order.
func banState(found string, s *engine.State) bool {
	w := numerals(found, make([]int64, 0, 16))
	if len(w) < 3 || w[1] < 0 || w[2] < 1 || w[1] == 0 && len(w) == 3 {
		return false
	}
	s.A, s.B, s.Numbers.Token = w[0], w[1], w[2]
	for i, at := range w[3:] {
		if i > 0 && at < w[2+i] {
			return false
		}
		s.Log = append(s.Log, engine.Entry{At: at, Units: 1})
	}
	return true
}
