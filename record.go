package stint

import (
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// record records which limits have denied the call or made it wait, and which dry runs would have
// denied it. A plain call that passes has nothing to record, unless a limit looks at keys that
// pass.
func (a *admission) record() {
	v, c := a.version, &a.call
	for i, l := range c.Limits {
		ch, r := &c.Charges[i], &c.Results[i]
		switch {
		case !r.OK && ch.DryRun:
			l.Record.Report()
			v.events.countDryRun(ch.Limit.Name())
		case !r.OK, c.Allowed && (r.Delay > 0 || c.Waited > 0 && l.Needs&limit.Waits != 0):
			l.Record.Bind()
		}
		if r.RetryAfter == store.Never && ch.Cost > 1 && !ch.DryRun {
			v.noteCost(ch)
		}
		if a.reading.R != nil && (c.Allowed || !r.OK) { // what another limit denies isn't this one's
			v.lookAtKey(l, ch, r)
		}
	}
}

// follow has the version go on with what limits of the same numbers have recorded.
func (v *version) follow(before *version) {
	for _, p := range v.plans.All() {
		for _, q := range before.plans.All() {
			if p.Pattern != q.Pattern {
				continue
			}
			if q.Met() {
				p.Meet()
			}
			for _, e := range p.Entries {
				says := list(p, e)
				for _, o := range q.Entries {
					if e.Name() == o.Name() && says == list(q, o) {
						e.Record = o.Record
					}
				}
			}
		}
	}
}
