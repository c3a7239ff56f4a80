package adaptive

import (
	"math"
	"time"
)

// aimd is Netflix's AIMDLimit, after TCP's congestion avoidance: additive increase,
// multiplicative decrease. It doesn't search for the knee of the latency curve. The
// limit climbs until requests take longer than the timeout, steps back and climbs
// again, so the timeout determines how long a queue may become.
//
// A step down is a fraction of the limit and a step up is a constant, so processes in
// front of one service end up with equal limits wherever they started.
type aimd struct{ timeout time.Duration }

const (
	aimdIncrease = 1
	aimdBackoff  = 0.9
)

func (a aimd) update(estimate float64, w mean) (float64, Reason) {
	switch {
	case w.slow:
		return a.backOff(estimate), Queueing
	case float64(w.inFlight) < estimate/2:
		return estimate, Unused
	}
	return estimate + aimdIncrease, Growing
}

// backOff rounds down to whole requests, as published: a tenth of a small limit is less
// than one and would not show for many windows.
func (a aimd) backOff(estimate float64) float64 { return math.Floor(estimate * aimdBackoff) }

func (a aimd) baseline() time.Duration { return a.timeout }
