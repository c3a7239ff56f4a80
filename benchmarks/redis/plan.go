package main

import (
	"slices"
	"time"
)

// plan is everything that is measured, a load at a time. The first two groups are of the
// stacks, the last two of the mixtures: alone, and in batches.
func plan(c config, stacks, subjects, mixtures []subject) groups {
	var all groups
	for _, callers := range []int{64, 1} {
		all = append(all, &group{load: load{callers, 1}, subjects: stacks, samples: map[string][]sample{}})
	}
	for _, callers := range []int{1, 16, 128} {
		for _, keys := range []int{1, c.keys} {
			g := &group{load: load{callers, keys}, samples: map[string][]sample{}}
			for _, s := range subjects {
				if callers == 1 || !s.idle {
					g.subjects = append(g.subjects, s)
				}
			}
			all = append(all, g)
		}
	}
	for _, callers := range []int{1, 128} {
		g := &group{load: load{callers, min(1000, c.keys)}, stretch: 50 * time.Millisecond, samples: map[string][]sample{}}
		for _, s := range mixtures {
			if callers > 1 || len(s.parts) == 0 { // one caller doesn't make batches
				g.subjects = append(g.subjects, s)
			}
		}
		all = append(all, g)
	}
	return all
}

func (gs groups) stacked() groups  { return gs[:2] }
func (gs groups) compared() groups { return gs[2 : len(gs)-2] }

// lone are the comparisons with one caller.
func (gs groups) lone() groups {
	return slices.DeleteFunc(slices.Clone(gs.compared()), func(g *group) bool { return g.callers > 1 })
}

func (gs groups) mixed() groups { return gs[len(gs)-2:] }

func (gs groups) at(callers int, hot bool) *group {
	for _, g := range gs.compared() {
		if g.callers == callers && (g.keys == 1) == hot {
			return g
		}
	}
	panic("benchmarks: no such load")
}
