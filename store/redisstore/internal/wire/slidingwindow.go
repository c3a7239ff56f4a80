package wire

import (
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/algorithm"
)

// slidingWindowArgs returns the arguments of lua/slidingwindow.lua: units, cost, how, token,
// perTick, tick, buckets.
func slidingWindowArgs(l *limit) []any {
	scale := l.terms.Scale
	return []any{text(l.spec.Units), "1", "0",
		text(l.terms.Token), text(scale.PerTick), text(scale.Tick()), text(l.spec.Buckets)}
}

// slidingWindowState decodes newestLead:newest:counted:olderUnits:back;older, of which counted has 16 digits,
// olderUnits is the sum of the older entries and back is how much older the oldest is. older are the others,
// oldest first: units:gap; They count as far as they are what a limit writes, and the rest of counted counts
// from newest on.
func slidingWindowState(found string, s *algorithm.State) bool {
	const countedDigits = 16
	lead, more, _ := strings.Cut(found, ":")
	at, more, _ := strings.Cut(more, ":")
	digits := leadingDigits(more)
	counted, err := strconv.ParseInt(more[:digits], 10, 64)
	if digits != countedDigits || err != nil || counted == 0 || counted >= exact {
		return false
	}
	var few [2]int64
	w := decodeNumbers(found[:len(lead)+1+len(at)], few[:0])
	if len(w) != 2 || w[0] < 0 {
		return false
	}
	newestLead, newest := w[0], w[1]
	unitsAndBack, older, _ := strings.Cut(more[digits:], ";")
	log, sum := olderEntries(unitsAndBack, older, newest, counted)
	s.Log = log
	s.W = algorithm.Words{algorithm.Newest: newest, algorithm.NewestUnits: counted - sum,
		algorithm.Counted: counted, algorithm.NewestLead: newestLead}
	return true
}

// olderEntries decodes the entries before the newest, and returns them and their sum, which is below counted.
// unitsAndBack is :olderUnits:back.
func olderEntries(unitsAndBack, older string, newest, counted int64) (log []algorithm.Entry, sum int64) {
	var few [2]int64
	at := newest
	_, back, _ := strings.Cut(strings.TrimPrefix(unitsAndBack, ":"), ":")
	if w := decodeNumbers(back, few[:0]); strings.HasPrefix(unitsAndBack, ":") && len(w) == 1 && newest-w[0] > -exact {
		at -= w[0]
	}
	log = make([]algorithm.Entry, 0, strings.Count(older, ";"))
	for at < newest {
		entry, next, ok := strings.Cut(older, ";")
		w := decodeNumbers(entry, few[:0])
		if !ok || len(w) != 2 {
			break
		}
		units, gap := w[0], w[1]
		if units <= 0 || gap <= 0 || sum+units >= counted {
			break
		}
		log = append(log, algorithm.Entry{At: at, Units: units})
		at, sum, older = at+gap, sum+units, next
	}
	return log, sum
}
