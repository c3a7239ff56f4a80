package store

import (
	"cmp"

	"github.com/stint-go/stint/internal/engine"
)

// State is the state of one limit for one key, which a store keeps under Limit.StateName and
// Charge.Key. A limit whose numbers have changed can still read its earlier states. The zero
// State is the state of a new key.
//
// A store keeps a state for its Limit.Lifetime. After that time, the state is equivalent to the
// zero State. A store outside of this process keeps states as bytes: see [State.AppendBinary].
// Copies of a State share memory: only the latest copy may be passed to Decide and Amend.
type State engine.Sealed

// open returns the words of the state.
func (s *State) open() *state { return (*state)((*engine.Sealed)(s).Open()) }

// state is the words of a State, for the steps.
type state engine.State

// validCounts reports whether B and C are counts, of any algorithm.
func (s *state) validCounts() bool { return 0 <= s.B && s.B < exact && 0 <= s.C && s.C < exact }

// absBelow reports whether n is nearer to 0 than end.
func absBelow(n, end int64) bool { return -end < n && n < end }

// ascends reports whether the Log is in order and ends before end, and whether every entry
// has as many units as least.
func (s *state) ascends(least, end int64) bool {
	last := int64(-remote)
	for _, e := range s.Log {
		if e.At < last || e.At >= end || e.Units < least {
			return false
		}
		last = e.At
	}
	return true
}

// units returns the sum of the Log's units, or -1 if it is too large.
func (s *state) units() (sum int64) {
	for _, e := range s.Log {
		if e.Units >= exact-sum {
			return -1
		}
		sum += e.Units
	}
	return sum
}

func compareEntry(e engine.Entry, at int64) int { return cmp.Compare(e.At, at) }
