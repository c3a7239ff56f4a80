package adaptive

import (
	"math"
	"math/rand/v2"
	"time"
)

// vegas is Netflix's VegasLimit, after TCP Vegas. If latency has grown above the
// smallest one seen, the corresponding share of the requests in flight must be
// queueing. The limit is kept where that queue is neither short nor long, both measured
// by the limit's order of magnitude.
//
// The smallest latency is forgotten now and then; otherwise a service that has become
// slower for good would be throttled for ever. The value that replaces it may include a
// queue, which the next quiet window undoes.
type vegas struct {
	rand     *rand.Rand
	smallest time.Duration
	windows  float64 // since smallest was last forgotten
	jitter   float64 // of the next interval
}

// probeEvery times the limit is about how many windows pass until the smallest latency
// is forgotten.
const probeEvery = 30

func newVegas(seed uint64) *vegas {
	v := &vegas{rand: rand.New(rand.NewPCG(seed, 0))}
	v.draw()
	return v
}

// draw chooses how irregular the next interval is: keys must not probe at the same
// time.
func (v *vegas) draw() { v.jitter = 0.5 + v.rand.Float64()/2 }

// update returns the limit after a window of requests, as VegasLimit in Netflix's concurrency-limits does:
//
//  1. Forget the smallest latency if it is time, or lower it. The limit stays.
//  2. Keep the limit if less than half of it was in use: the window says nothing about it.
//  3. Estimate how many of the limit's requests were queueing. Raise the limit if the queue is short, and
//     fast if it is negligible; lower it if the queue is long.
func (v *vegas) update(estimate float64, w mean) (float64, Reason) {
	v.windows++
	switch {
	case v.windows >= v.jitter*probeEvery*estimate:
		v.draw()
		v.windows, v.smallest = 0, w.rtt
		return estimate, Steady
	case v.smallest == 0 || w.rtt < v.smallest:
		v.smallest = w.rtt
		return estimate, Steady
	case float64(w.inFlight) < estimate/2:
		return estimate, Unused
	}
	queue := math.Ceil(estimate * (1 - float64(v.smallest)/float64(w.rtt)))
	magnitude := max(1, math.Floor(math.Log10(math.Floor(estimate))))
	short, long := 3*magnitude, 6*magnitude
	switch {
	case queue <= magnitude: // negligible
		return estimate + long, Growing
	case queue < short:
		return estimate + magnitude, Growing
	case queue > long:
		return estimate - magnitude, Queueing
	}
	return estimate, Steady
}

func (v *vegas) backOff(estimate float64) float64 { return estimate / 2 }

func (v *vegas) baseline() time.Duration { return v.smallest }
