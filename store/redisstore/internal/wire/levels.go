package wire

import "github.com/stint-go/stint/internal/algorithm"

// decodeLevels decodes keptUntil, refundsFrom and the levels behind them, which are the last words of a
// bucket's state, and reports whether a limit may have written those (validNotes in
// lua/levels.lua).
func decodeLevels(words []int64, s *algorithm.State) bool {
	const most = 8
	switch {
	case len(words) == 0:
		return true
	case len(words)%2 == 1 || len(words) > 2+2*most:
		return false
	}
	s.W[algorithm.KeptUntil], s.W[algorithm.RefundsFrom] = words[0], words[1]
	for words = words[2:]; len(words) > 0; words = words[2:] {
		e := algorithm.Entry{At: words[0], Units: words[1]}
		if n := len(s.Log); e.Units < 0 || n > 0 && (e.At <= s.Log[n-1].At || e.Units < s.Log[n-1].Units) {
			return false
		}
		s.Log = append(s.Log, e)
	}
	return s.W[algorithm.KeptUntil] != 0
}
