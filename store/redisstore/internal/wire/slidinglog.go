package wire

import (
	"strings"

	"github.com/stint-go/stint/internal/algorithm"
)

// slidingLogArgs returns the arguments of lua/slidinglog.lua: units, cost, how, period.
func slidingLogArgs(l *limit) []any {
	return []any{text(l.spec.Units), "1", "0", text(l.terms.Period)}
}

// slidingLogState decodes A:B:C:back, of which back is how much older the oldest entry is, and E
// behind that if it isn't 0; and behind semicolons entries in between, of each its instant and the
// units up to it. Only the server has all entries: the step finds in these what it asks for.
func slidingLogState(found string, s *algorithm.State) bool {
	head, between, _ := strings.Cut(found, ";")
	var few [5]int64
	w := decodeNumbers(head, few[:0])
	if len(w) < 4 || len(w) > 5 {
		return false
	}
	s.W[algorithm.Newest], s.W[algorithm.NewestUnits], s.W[algorithm.Sum] = w[0], w[1], w[2]
	back := w[3]
	if len(w) > 4 {
		s.W[algorithm.NewestLead] = w[4]
	}
	if s.W[algorithm.NewestUnits] <= 0 || s.W[algorithm.Sum] < s.W[algorithm.NewestUnits] || back < 0 || s.W[algorithm.NewestLead] < 0 || (s.W[algorithm.Sum] == s.W[algorithm.NewestUnits]) != (back == 0) {
		return false
	}
	sum := int64(0)
	if back > 0 { // the first unit leaves with the oldest
		s.Log, sum = []algorithm.Entry{{At: s.W[algorithm.Newest] - back, Units: 1}}, 1
	}
	for between != "" {
		var entry string
		entry, between, _ = strings.Cut(between, ";")
		w := decodeNumbers(entry, few[:0])
		if len(w) != 2 {
			return false
		}
		at, upTo := w[0], w[1]
		if at == s.W[algorithm.Newest] { // the newest has B of these
			upTo -= s.W[algorithm.NewestUnits]
		}
		s.Log = append(s.Log, algorithm.Entry{At: at, Units: upTo - sum})
		sum = upTo
	}
	return true
}
