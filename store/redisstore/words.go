package redisstore

import (
	"strings"

	"github.com/stint-go/stint/internal/engine"
)

// words decodes decimal numbers separated by colons, of which those after the dot may be
// missing: A to E, the token and the unit, and what isn't part of the state.
func words(order string) func(string, *engine.State) bool { return wideWords(order, "") }

// wideWords decodes words that have another order if the scale is wide. Then f is the
// part beyond A, and d and e are added to D and E.
func wideWords(order, wide string) func(string, *engine.State) bool {
	order, least := optional(order)
	wide, leastWide := optional(wide)
	return func(found string, s *engine.State) bool {
		var beyond int64
		var added engine.Entry
		order, least := order, least
		read := 0
		for more := true; more; read++ {
			var word string
			word, found, more = strings.Cut(found, ":")
			n, err := unbrief(word)
			if err != nil || read == len(order) {
				return false
			}
			switch order[read] {
			case 'A':
				s.A = n
			case 'B':
				s.B = n
			case 'C':
				s.C = n
			case 'D':
				s.D = n
			case 'E':
				s.E = n
			case 't':
				s.Numbers.Token = n
			case 'u':
				if s.Numbers.Unit = n; wide != "" && engine.ScaleOf(n).Wide {
					order, least = wide, leastWide
				}
			case 'f':
				beyond = n
			case 'd':
				added.At = n
			case 'e':
				added.Units = n
			}
		}
		numbers := s.Numbers
		switch {
		case read < least, numbers == engine.Numbers{}:
			return false
		case order[1] == 't' && (numbers.Token <= 0 || numbers.Unit == 0):
			return false
		case wide != "" && engine.ScaleOf(numbers.Unit).PerTick <= 0:
			return false
		}
		if order == wide {
			s.A, s.Low = engine.ScaleOf(s.Numbers.Unit).Join(s.A, beyond)
		}
		if added != (engine.Entry{}) {
			s.Log = []engine.Entry{added}
		}
		return true
	}
}

// optional returns an order of words without its dot, and how many come before that.
func optional(order string) (all string, least int) {
	must, may, _ := strings.Cut(order, ".")
	return must + may, len(must)
}
