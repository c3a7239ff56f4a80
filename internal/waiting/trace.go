package waiting

import (
	"fmt"
	"slices"
	"strings"
)

// Trace says who waits and what is reserved, for the trace of a test.
func (ts *Turns) Trace() string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var all []string
	for _, l := range ts.all {
		s := fmt.Sprintf("%s %s, settling %t, again %t: wanted", l.key.spec.Name, l.key.key, l.settling, l.again)
		for _, d := range l.demands {
			s += fmt.Sprintf(" %d", d.units)
		}
		s += "; reserved"
		for _, t := range l.reserved {
			s += fmt.Sprintf(" %d at %v (%d)", t.receipt.Cost, t.at.UnixMicro(), t.receipt.Mark)
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Trace says who waits in which order, by when their patience ends, and who has
// been woken, for the trace of a test.
func (s *Slots) Trace() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for key, l := range s.lines {
		line := fmt.Sprintf("%v:", key)
		for i := range l.classes {
			for _, p := range l.classes[i] {
				line += fmt.Sprintf(" %d %v woken %d", i, p.Until.UnixNano(), len(p.woken))
			}
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Counts says, for a test that wants nothing left behind, how many wait, in how
// many lines, and of how many keys slots are held.
func (s *Slots) Counts() (waiting, lines, held int) {
	s.mu.Lock()
	waiting, lines = int(s.waiting.Load()), len(s.lines)
	s.mu.Unlock()
	for i := range s.held {
		p := &s.held[i]
		p.mu.Lock()
		held += len(p.keys) - p.empty
		p.mu.Unlock()
	}
	return waiting, lines, held
}
