package stint

import (
	"math"
	"time"
)

// lineStatus is what a call has seen of the line of one of its limits.
type lineStatus struct {
	queued int32 // with it, when it came
	waited time.Duration
}

// permitWait is what a permit knows of having waited; nil where it hasn't.
type permitWait struct {
	waited time.Duration
	lines  []lineStatus // of each charge, or none
}

// note keeps for the decision that n wait for the limit of charge i.
func (c *call) note(i int, n int64) {
	if len(c.lines) == 0 {
		c.lines = make([]lineStatus, len(c.charges))
	}
	c.lines[i].queued = int32(min(n, math.MaxInt32))
}

// begin tells the observers that the call has begun to wait: for d, where that
// is known. A call that waits for several things in turn begins once.
func (c *call) begin(i int, d time.Duration) {
	if c.began {
		return
	}
	c.began = true
	if len(c.lim.observers) == 0 {
		return
	}
	c.lim.observe(Event{Kind: Waiting, Request: c.r, Decision: Decision{
		Limit: c.charges[i].Limit.Name(), Queued: c.lines[i].queued, Delay: d,
	}})
}

// decided is what the call's results and its waiting amount to.
func (c *call) decided(d *Decision, statuses []LimitStatus) {
	d.decide(c.charges, c.results, statuses)
	d.wait(c.waited, c.lines, statuses)
}

// wait adds to a decision how its request has waited. lines are those of the
// limits of statuses, or none.
func (d *Decision) wait(waited time.Duration, lines []lineStatus, statuses []LimitStatus) {
	d.Delay = max(d.Delay, waited)
	for i := range lines {
		statuses[i].Delay = max(statuses[i].Delay, lines[i].waited)
		d.Queued = max(d.Queued, lines[i].queued)
	}
}
