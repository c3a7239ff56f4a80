package adaptive

import "time"

// gradient2 is Netflix's Gradient2Limit. The limit is multiplied by the ratio of the
// usual latency to the present one, and gets a little room for a queue. It settles
// where latency has grown by the tolerance.
//
// The usual latency is a long-term average rather than a minimum, so that a few quick
// requests don't set a mark that nothing else can reach. The price is that a lasting
// overload becomes usual: after 200 windows at twice the usual latency, half of the
// growth counts as usual. A quieter time undoes it.
type gradient2 struct {
	tolerance float64
	long      average
}

const (
	gradientQueue     = 4   // requests that may queue
	gradientSmoothing = 0.2 // of a change is made at the end of a window
	gradientFloor     = 0.5 // no window reduces the limit by more than half
	longWindows       = 600 // in the average of the usual latency
	longWarmUp        = 10  // windows whose plain average is used at first
	longDecay         = 0.95
)

func (g *gradient2) update(estimate float64, w mean) (float64, Reason) {
	short := float64(w.rtt)
	long := g.long.add(short)
	if long > 2*short {
		// After a long overload: don't wait for the average to catch up.
		g.long.value *= longDecay
	}
	if float64(w.inFlight) < estimate/2 {
		return estimate, Unused
	}
	gradient := min(max(g.tolerance*long/short, gradientFloor), 1)
	next := estimate + gradientSmoothing*(estimate*gradient+gradientQueue-estimate)
	return next, direction(estimate, next)
}

func (g *gradient2) backOff(estimate float64) float64 { return estimate / 2 }

func (g *gradient2) baseline() time.Duration { return time.Duration(g.long.value) }

// direction names a change that the latency calls for.
func direction(from, to float64) Reason {
	switch {
	case to > from:
		return Growing
	case to < from:
		return Queueing
	}
	return Steady
}

// average is an exponential moving average that begins as a plain average.
type average struct {
	value float64
	count int
}

func (a *average) add(x float64) float64 {
	if a.count < longWarmUp {
		a.count++
		a.value += (x - a.value) / float64(a.count)
	} else {
		a.value += (x - a.value) * 2 / (longWindows + 1)
	}
	return a.value
}
