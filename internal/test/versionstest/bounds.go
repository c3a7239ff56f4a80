package versionstest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stint-go/stint/store"
)

// bound returns the larger burst and the faster rate, in units per microsecond, of the versions
// that count together with a version. At most burst + rate*t pass in a span t.
func (p *trace) bound(by int) (burst, rate float64) {
	var most, units, prepaid int64
	for v, s := range p.specs {
		if p.limits[v].StateName() == p.limits[by].StateName() {
			most, units = max(most, p.most(v)), max(units, s.Units)
			rate = max(rate, float64(s.Units)/float64(p.periods[v]))
		}
	}
	for _, a := range p.passed { // the next charge waits for what was not there when one passed
		if p.of == store.WarmUp || p.specs[a.by].Debt {
			prepaid = max(prepaid, a.cost)
		}
	}
	switch p.of {
	case store.IntervalBucket, store.FixedWindow, store.SlidingWindow:
		most += units // an interval, a window or a part of one may end as the span begins
	case store.WarmUp:
		most = 0
	case store.SlidingCounter:
		return float64(most) + 0.5, rate // what is covered of the window before is rounded to the nearest
	case store.TokenBucket, store.LeakyBucket, store.SlidingLog, store.Ban:
	default:
		panic("no bound of " + p.of.String())
	}
	return float64(most + prepaid), rate
}

// judge checks each span that contains the latest charge, which is the last of p.passed, for more than its
// versions may let pass. A span may hold as much as one that is longer by a tick or the longest wait of
// all, since a turn counts from the moment at which it is reserved.
func (p *trace) judge(q request) error {
	var group []passed
	longest := p.tick.Microseconds()
	for _, a := range p.passed {
		if p.limits[a.by].StateName() == p.limits[q.by].StateName() {
			group = append(group, a)
			longest = max(longest, a.run-a.at)
		}
	}
	latest := group[len(group)-1].run
	slices.SortStableFunc(group, func(a, b passed) int { return cmp.Compare(a.run, b.run) })
	burst, rate := p.bound(q.by)
	for last, to := range group {
		if to.run < latest {
			continue
		}
		sum := int64(0)
		for _, from := range slices.Backward(group[:last+1]) {
			sum += from.counts
			most := burst + rate*float64(to.run-from.run+longest)
			if from.run <= latest && float64(sum) > most+1e-6 {
				return fmt.Errorf("%d pass in [%d, %d], where %.3f may", sum, from.run, to.run, most)
			}
		}
	}
	return nil
}
