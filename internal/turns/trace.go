package turns

import (
	"fmt"
	"slices"
	"strings"
)

// Trace describes the lines, for the trace of a test.
func (ls *Lines) Trace() string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var all []string
	for _, l := range ls.all {
		s := fmt.Sprintf("%s %s, refunding %t, more %t: waiting", l.key.spec.Name, l.key.key, l.refunding, l.moreSurplus)
		for _, p := range l.waiting {
			s += fmt.Sprintf(" %d", p.units)
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
