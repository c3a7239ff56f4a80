package wire

import (
	"fmt"
	"strconv"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// banArgs returns the arguments of lua/ban.lua: limit, cost, counts, which is the last.
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
	if !charges[i].Final {
		return ""
	}
	var b []byte
	for j := range charges {
		if inside.Counts(&charges[j], &charges[i]) {
			b = append(strconv.AppendInt(b, int64(j+1), 10), ',')
		}
	}
	return string(b)
}

// banState decodes bannedUntil:banLength:period, and the instants of denials in order. A Ban has its period in
// Numbers.Token. It reports whether a Ban can have written the state: one without a ban and without
// denials would have been deleted.
func banState(found string, s *algorithm.State) (valid bool) {
	words := decodeNumbers(found, make([]int64, 0, 16))
	if len(words) < 3 {
		return false
	}
	bannedUntil, banLength, period, denials := words[0], words[1], words[2], words[3:]
	if banLength < 0 || period < 1 || banLength == 0 && len(denials) == 0 {
		return false
	}
	s.W[algorithm.BannedUntil], s.W[algorithm.BanLength], s.Numbers.Token = bannedUntil, banLength, period
	for i, at := range denials {
		if i > 0 && at < denials[i-1] {
			return false
		}
		s.Log = append(s.Log, algorithm.Entry{At: at, Units: 1})
	}
	return true
}
