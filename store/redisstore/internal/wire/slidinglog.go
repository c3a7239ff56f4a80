package wire

import (
	"strings"

	"github.com/stint-go/stint/internal/algorithm"
)

// slidingLogArgs returns the arguments of lua/slidinglog.lua: units, cost, how, period.
func slidingLogArgs(l *limit) []any {
	return []any{text(l.spec.Units), "1", "0", text(l.terms.Period)}
}

// slidingLogState decodes newest:newestUnits:counted:back, of which back is how much older the oldest entry is,
// and :newestLead behind that if it isn't 0; and behind semicolons entries in between, of each its instant
// and the units up to it. Only the server has all entries: the step finds in these what it asks for.
func slidingLogState(found string, s *algorithm.State) bool {
	head, between, _ := strings.Cut(found, ";")
	var few [5]int64
	w := decodeNumbers(head, few[:0])
	if len(w) < 4 || len(w) > 5 {
		return false
	}
	newest, newestUnits, counted, back, newestLead := w[0], w[1], w[2], w[3], int64(0)
	if len(w) > 4 {
		newestLead = w[4]
	}
	if newestUnits <= 0 || counted < newestUnits || back < 0 || newestLead < 0 || (counted == newestUnits) != (back == 0) {
		return false
	}
	s.W = algorithm.Words{algorithm.Newest: newest, algorithm.NewestUnits: newestUnits,
		algorithm.Counted: counted, algorithm.NewestLead: newestLead}
	sum := int64(0)
	if back > 0 { // the first unit leaves with the oldest
		s.Log, sum = []algorithm.Entry{{At: newest - back, Units: 1}}, 1
	}
	for between != "" {
		var entry string
		entry, between, _ = strings.Cut(between, ";")
		w := decodeNumbers(entry, few[:0])
		if len(w) != 2 {
			return false
		}
		at, upTo := w[0], w[1]
		if at == newest { // which has some of these itself
			upTo -= newestUnits
		}
		s.Log = append(s.Log, algorithm.Entry{At: at, Units: upTo - sum})
		sum = upTo
	}
	return true
}
