package redisstore

import (
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/engine"
)

// numerals decodes decimal numbers separated by colons, if they are numbers that a limit may
// have written (words in lua/general.lua), and none otherwise. They are appended to room.
func numerals(found string, room []int64) []int64 {
	const most = 1 << 53
	for more := true; more; {
		var word string
		word, found, more = strings.Cut(found, ":")
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n >= most || n <= -most || len(word) > 17 || word[0] == '+' {
			return nil
		}
		room = append(room, n)
	}
	return room
}

// levels decodes until, changed and the levels behind them, which are the last words of a
// bucket's state, and reports whether a limit may have written those (levelsIn in
// lua/levels.lua).
func levels(w []int64, s *engine.State) bool {
	const most = 8
	switch {
	case len(w) == 0:
		return true
	case len(w)%2 == 1 || len(w) > 2+2*most:
		return false
	}
	s.D, s.E = w[0], w[1]
	for w = w[2:]; len(w) > 0; w = w[2:] {
		e := engine.Entry{At: w[0], Units: w[1]}
		if n := len(s.Log); e.Units < 0 || n > 0 && (e.At <= s.Log[n-1].At || e.Units <= s.Log[n-1].Units) {
			return false
		}
		s.Log = append(s.Log, e)
	}
	return s.D != 0
}
