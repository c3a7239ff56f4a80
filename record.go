package stint

import (
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// recordResults records which limits have denied the call or made it wait, and which dry runs
// would have denied it. A plain call that passes has nothing to record.
func (a *admission) recordResults() {
	v, c := a.version, &a.call
	for i, l := range c.Limits {
		ch, r := &c.Charges[i], &c.Results[i]
		switch {
		case !r.OK && ch.DryRun:
			l.Record.Report()
		case !r.OK, c.Allowed && (r.Delay > 0 || c.Waited > 0 && l.Needs&limit.Waits != 0):
			l.Record.Bind()
		}
		if r.RetryAfter == store.Never && ch.Cost > largest(ch.Limit) && !ch.DryRun && l.Record.Cost() {
			v.tooCostly(ch)
		}
	}
}
