package redisstore

import (
	"fmt"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

func warmUp(r *record) []any {
	t := &r.terms
	return []any{
		fmt.Sprintf("%d,%d", t.Largest, t.Longest), "1", "0",
		text(t.Token), text(t.Scale.PerTick), text(t.Scale.Tick()), text(t.Numbers.Unit), text(t.Warm),
	}
}

func varyWarmUp(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil {
		varyCostAndWait(r, args[1:], c)
	}
}

// warmUpState decodes A:warm:unit:B, and what few have behind that, C and E.
func warmUpState(found string, s *engine.State) bool {
	var few [6]int64
	w := numerals(found, few[:0])
	if len(w) < 4 || len(w) > 6 {
		return false
	}
	s.A, s.B = w[0], w[3]
	s.Numbers = engine.Numbers{Token: w[1], Unit: w[2]}
	if len(w) > 4 {
		s.C = w[4]
	}
	if len(w) > 5 {
		s.E = w[5]
	}
	n := s.Numbers
	return n.Token >= 1 && n.Token < 1<<46 && counted(n.Unit) && s.B >= 0 && s.B <= n.Token && s.C >= 0
}

// counted reports whether the code is that of a scale that a limit may count in: one whose
// instants of 20 years stay exact.
func counted(code int64) bool {
	const horizon = 631_152_000_000_000
	if code < 8 || code%8 > 4 {
		return false
	}
	scale := engine.ScaleOf(code)
	return float64(scale.PerTick)*(horizon/float64(scale.Tick())) < exact
}
