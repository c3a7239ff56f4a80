package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// Fixed windows and interval buckets. Their last arguments are windows.

func fixed(r *record) []any {
	period := strconv.FormatInt(r.terms.Period, 10)
	return []any{period + ",0", "1", "", text(r.spec.Units), "", roomFor(r, 1), period, "", ""}
}

// headOf returns the beginning of one-integer states of the window at start
// (fixedwindow.lua), or "" if that doesn't begin at a whole minute since 2026.
func headOf(start int64) string {
	if start < 0 || start%60_000_000 != 0 {
		return ""
	}
	return fmt.Sprintf("1%08d", start/60_000_000)
}

// roomFor returns how much may be in a window, in ten digits, for a charge to fit.
func roomFor(r *record, cost int64) string {
	most := min(r.spec.Units, 9_999_999_999) - cost
	if cost == 0 || most < 0 {
		return ""
	}
	return fmt.Sprintf("%010d", most)
}

func varyFixed(r *record, args []any, c *store.Charge, t *timeArgs) {
	varyWindow(r, args, c, t)
	if r.spec.Window != (store.Window{}) {
		args[4] = r.around(t.wall).head
	}
	if c != nil && c.Cost != 1 {
		args[5] = roomFor(r, c.Cost)
	}
}

// fixedState decodes one integer, or A:B and what few have behind that, :C.
func fixedState(found string, s *engine.State) bool {
	if len(found) == 19 && !strings.Contains(found, ":") {
		const most = 10_000_000_000
		n, err := strconv.ParseInt(found, 10, 64)
		s.A, s.B = n/most%100_000_000*60_000_000, n%most
		return err == nil && found[0] == '1' && s.B > 0
	}
	var few [3]int64
	w := numerals(found, few[:0])
	if len(w) < 2 || len(w) > 3 {
		return false
	}
	if s.A, s.B = w[0], w[1]; len(w) > 2 {
		s.C = w[2]
	}
	return s.B >= 0 && s.B <= store.MaxCost && s.C >= 0 && s.B|s.C != 0
}

func interval(r *record) []any {
	period := strconv.FormatInt(r.terms.Period, 10)
	return []any{period + ",0", "1", "", text(r.spec.Units), text(r.terms.Numbers.Unit), text(r.spec.Burst), period, "", ""}
}

// intervalState decodes A:token:unit:B:burst, and what few have behind that.
func intervalState(found string, s *engine.State) bool {
	var few [24]int64
	w := numerals(found, few[:0])
	if len(w) < 5 {
		return false
	}
	s.A, s.B = w[0], w[3]
	s.Numbers = engine.Numbers{Token: w[1], Unit: w[2], Burst: w[4]}
	n, kind := s.Numbers, -s.Numbers.Unit%8
	return 1 <= n.Token && n.Token <= store.MaxCost && 0 <= n.Burst && n.Burst <= store.MaxCost &&
		(n.Unit > 0 || n.Unit < -1 && 1 <= kind && kind <= 5) &&
		levels(w[5:], s) && s.B >= 0 && (s.B > 0 || s.D != 0)
}

func varyWindow(r *record, args []any, c *store.Charge, t *timeArgs) {
	if r.spec.Window != (store.Window{}) {
		limit, bounds := r.window(t)
		args[0] = limit
		copy(args[len(args)-len(bounds):], bounds[:])
	}
	if c != nil {
		varyCostAndWait(r, args[1:], c)
	}
}
