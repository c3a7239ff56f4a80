package redisstore

import (
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// Sliding windows, logs and counters.

func slidingWindow(r *record) []any {
	scale := r.terms.Scale
	return []any{text(r.spec.Units), "1", "0", text(r.terms.Token), text(scale.PerTick), text(scale.Tick()), text(r.spec.Buckets)}
}

func slidingLog(r *record) []any {
	return []any{text(r.spec.Units), "1", "0", text(r.terms.Period)}
}

func varySliding(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil {
		varyCostAndWait(r, args[1:], c)
	}
}

func varyCostAndWait(r *record, args []any, c *store.Charge) {
	if c.Cost != 1 {
		args[0] = text(c.Cost)
	}
	if c.MaxWait > 0 {
		args[1] = maxWait(c, r.terms.Patience)
	}
}

func counter(r *record) []any {
	return []any{"1", "", text(r.spec.Units), text(r.terms.Period)}
}

func varyCounter(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil {
		varyCostAndWait(r, args, c)
	}
}

// counterState decodes A:B:C:D.
func counterState(found string, s *engine.State) bool {
	var few [4]int64
	w := numerals(found, few[:0])
	if len(w) != 4 {
		return false
	}
	for _, n := range w[1:] {
		if n < 0 || n > store.MaxCost {
			return false
		}
	}
	s.A, s.B, s.C, s.D = w[0], w[1], w[2], w[3]
	return s.B|s.C|s.D != 0
}

// slidingWindowState decodes E:A:C:P:back, of which C has 16 digits, P is the sum of the older
// entries and back is how much older the oldest is, and behind a semicolon the others, oldest
// first: units:gap; They count as far as they are what a limit writes, and the rest of C counts from
// A on.
func slidingWindowState(found string, s *engine.State) bool {
	e, more, _ := strings.Cut(found, ":")
	a, more, _ := strings.Cut(more, ":")
	digits := len(more) - len(strings.TrimLeft(more, "0123456789"))
	c, err := strconv.ParseInt(more[:digits], 10, 64)
	if digits != 16 || err != nil || c == 0 || c >= exact {
		return false
	}
	var few [2]int64
	if w := numerals(found[:len(e)+1+len(a)], few[:0]); len(w) != 2 || w[0] < 0 {
		return false
	}
	s.E, s.A, s.C = few[0], few[1], c
	head, older, _ := strings.Cut(more[digits:], ";")
	_, back, _ := strings.Cut(strings.TrimPrefix(head, ":"), ":")
	at, sum := s.A, int64(0)
	if w := numerals(back, few[:0]); strings.HasPrefix(head, ":") && len(w) == 1 && s.A-w[0] > -exact {
		at -= w[0]
	}
	s.Log = make([]engine.Entry, 0, strings.Count(older, ";"))
	for at < s.A {
		entry, next, ok := strings.Cut(older, ";")
		w := numerals(entry, few[:0])
		if !ok || len(w) != 2 || w[0] <= 0 || w[1] <= 0 || sum+w[0] >= s.C {
			break
		}
		s.Log = append(s.Log, engine.Entry{At: at, Units: w[0]})
		at, sum, older = at+w[1], sum+w[0], next
	}
	s.B = s.C - sum
	return true
}

// slidingLogState decodes A:B:C:back, of which back is how much older the oldest entry is, and E
// behind that if it isn't 0; and behind semicolons entries in between, of each its instant and the
// units up to it. Only the server has all entries: the step finds in these what it asks for.
func slidingLogState(found string, s *engine.State) bool {
	head, between, _ := strings.Cut(found, ";")
	var few [5]int64
	w := numerals(head, few[:0])
	if len(w) < 4 || len(w) > 5 {
		return false
	}
	s.A, s.B, s.C = w[0], w[1], w[2]
	if len(w) == 5 {
		s.E = w[4]
	}
	back := w[3]
	if s.B <= 0 || s.C < s.B || back < 0 || s.E < 0 || (s.C == s.B) != (back == 0) {
		return false
	}
	sum := int64(0)
	if back > 0 { // the first unit leaves with the oldest
		s.Log, sum = []engine.Entry{{At: s.A - back, Units: 1}}, 1
	}
	for between != "" {
		var entry string
		entry, between, _ = strings.Cut(between, ";")
		w := numerals(entry, few[:0])
		if len(w) != 2 {
			return false
		}
		if w[0] == s.A { // the newest has B of these
			w[1] -= s.B
		}
		s.Log = append(s.Log, engine.Entry{At: w[0], Units: w[1] - sum})
		sum = w[1]
	}
	return true
}
