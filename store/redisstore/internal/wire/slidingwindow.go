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
	return []any{text(l.spec.Units), "1", "0", text(l.terms.Token), text(scale.PerTick), text(scale.Tick()), text(l.spec.Buckets)}
}

// slidingWindowState decodes E:A:C:P:back;older, of which C has 16 digits, P is the sum of the older
// entries and back is how much older the oldest is. older are the others, oldest first:
// units:gap; They count as far as they are what a limit writes, and the rest of C counts from
// A on.
func slidingWindowState(found string, s *algorithm.State) bool {
	const digitsOfC = 16
	e, more, _ := strings.Cut(found, ":")
	a, more, _ := strings.Cut(more, ":")
	digits := leadingDigits(more)
	c, err := strconv.ParseInt(more[:digits], 10, 64)
	if digits != digitsOfC || err != nil || c == 0 || c >= exact {
		return false
	}
	var few [2]int64
	w := decodeNumbers(found[:len(e)+1+len(a)], few[:0])
	if len(w) != 2 || w[0] < 0 {
		return false
	}
	s.W[algorithm.NewestLead], s.W[algorithm.Newest], s.W[algorithm.Sum] = w[0], w[1], c
	sumAndBack, older, _ := strings.Cut(more[digits:], ";")
	s.W[algorithm.NewestUnits] = s.W[algorithm.Sum] - olderEntries(sumAndBack, older, s)
	return true
}

// olderEntries decodes the entries before the newest, and returns their sum. sumAndBack is :P:back.
func olderEntries(sumAndBack, older string, s *algorithm.State) (sum int64) {
	var few [2]int64
	at := s.W[algorithm.Newest]
	_, back, _ := strings.Cut(strings.TrimPrefix(sumAndBack, ":"), ":")
	if w := decodeNumbers(back, few[:0]); strings.HasPrefix(sumAndBack, ":") && len(w) == 1 && s.W[algorithm.Newest]-w[0] > -exact {
		at -= w[0]
	}
	s.Log = make([]algorithm.Entry, 0, strings.Count(older, ";"))
	for at < s.W[algorithm.Newest] {
		entry, next, ok := strings.Cut(older, ";")
		w := decodeNumbers(entry, few[:0])
		if !ok || len(w) != 2 {
			break
		}
		units, gap := w[0], w[1]
		if units <= 0 || gap <= 0 || sum+units >= s.W[algorithm.Sum] {
			break
		}
		s.Log = append(s.Log, algorithm.Entry{At: at, Units: units})
		at, sum, older = at+gap, sum+units, next
	}
	return sum
}
