package decide

import (
	"context"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// A Ban counts a denied call once: in the store's decision, if the charge on the Ban says that a denial
// would be final, and otherwise by countDenial.

// setFinal says whether a denial by the next decision of the store is the call's final answer. So it is if the call
// waits for no rate: a Ban counts no other denials. It counts no raises either.
func (c *Call) setFinal(ctx context.Context) {
	if c.Needs&limit.Counts == 0 || c.raise {
		return
	}
	final := true
	for i := range c.Charges {
		final = final && (c.Limits[i].Wait.For != limit.ForTurn || c.patience(ctx, i) <= 0)
	}
	for i := range c.Charges {
		c.Charges[i].Final = final && c.Limits[i].Needs&limit.Counts != 0
	}
}

// countDenial has the Bans count a call that has been denied for good by decisions that weren't final. It is
// one more call of the store, which outlives ctx and whose failure changes nothing. A denial that the call's
// own deadline is the reason for isn't counted.
func (c *Call) countDenial(ctx context.Context) {
	if c.endedByDeadline || c.bannedNow() {
		return
	}
	var bans []int
	var charges []store.Charge
	for i := range c.Charges {
		ban, isBan := &c.Charges[i], c.Limits[i].Needs&limit.Counts != 0
		if !isBan || ban.Final || ban.Cost == 0 || !c.Results[i].OK || !c.deniedFor(ban) {
			continue
		}
		bans = append(bans, i)
		charges = append(charges, store.Charge{Key: ban.Key, Limit: ban.Limit, Cost: 1, DryRun: ban.DryRun})
	}
	if len(charges) == 0 {
		return
	}
	s := c.by.settle(context.WithoutCancel(ctx), c.store(), charges, make([]store.Result, len(charges)), c.Timed)
	c.Took += s.Took
	for k, r := range s.Results {
		r.Receipt = store.Receipt{}
		c.Results[bans[k]] = r
	}
}

// bannedNow reports whether an enforced Ban denies the call.
func (c *Call) bannedNow() bool {
	for i, l := range c.Limits {
		if l.Needs&limit.Counts != 0 && !c.Results[i].OK && !c.Charges[i].DryRun {
			return true
		}
	}
	return false
}

// deniedFor reports whether a limit whose denials a ban counts denies the call.
func (c *Call) deniedFor(ban *store.Charge) bool {
	for i := range c.Charges {
		if ch := &c.Charges[i]; !c.Results[i].OK && !ch.DryRun && inside.Counts(ch, ban) {
			return true
		}
	}
	return false
}
