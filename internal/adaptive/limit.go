// Package adaptive implements the limits of stint.AdaptiveConcurrency: limits of this
// process on requests in flight that follow how long requests take.
//
// [Keys] holds them by name and key. [Keys.Limit] makes one, a [Store] over another
// store decides charges on it, [Keys.End] takes the sample of a request, and
// [Rule] returns the limit by which a charge was decided.
//
// The algorithms are those of Netflix's concurrency-limits
// (https://github.com/Netflix/concurrency-limits, its Gradient2Limit, VegasLimit,
// AIMDLimit and WindowedLimit), with its default numbers and these differences:
//
//   - A window in which requests were dropped halves the limit of Gradient2 and Vegas.
//     There, Gradient2 ignores drops and Vegas takes off a little.
//   - That takes one request in twenty, dropped or slower than AIMD's timeout. There,
//     one request is enough.
//   - The duration of a dropped request says nothing about the work, so it isn't part
//     of a window's average.
//   - A window continues until it has enough samples. There, one with too few is
//     discarded, and a limit on slow requests never moves.
//   - Vegas and AIMD learn from windows too. There, each request counts by itself
//     unless windows are enabled, so a single pause under AIMD, which slows everything
//     in flight, takes a tenth off for each request.
//
// A [Limit] reads no clock and draws only random numbers seeded by its caller: the same
// samples give the same limits.
package adaptive

import (
	"fmt"
	"time"
)

// Algorithm is a way to follow the latency.
type Algorithm struct {
	name  string
	begin func(cfg Config, seed uint64) estimator
}

// The algorithms.
var (
	// Gradient2 compares a window's latency with a long-term average.
	Gradient2 = &Algorithm{"Gradient2",
		func(cfg Config, _ uint64) estimator { return &gradient2{tolerance: cfg.Tolerance} }}
	// Vegas estimates the queue from the smallest latency seen.
	Vegas = &Algorithm{"Vegas", func(_ Config, seed uint64) estimator { return newVegas(seed) }}
	// AIMD searches for the limit at which requests become slower than a timeout.
	AIMD = &Algorithm{"AIMD", func(cfg Config, _ uint64) estimator { return aimd{cfg.Timeout} }}
)

// String returns the name.
func (a *Algorithm) String() string { return a.name }

// The published defaults.
const (
	DefaultStart     = 20
	DefaultTolerance = 1.5
	DefaultWindow    = time.Second
)

const (
	// minSamples is how many samples a window needs.
	minSamples = 10
	// minRTT is the duration below which a request has done nothing that concurrency
	// could slow down: a cache or a check has answered it.
	minRTT = 100 * time.Microsecond
	// dropShare: if one request in so many is dropped, the window counts as one of
	// drops; if one in so many is slow, as a slow one. A service that fails one request
	// in a thousand isn't overloaded.
	dropShare = 20
)

// Config is the configuration of a Limit. Every field that its Algorithm has must be set.
type Config struct {
	Algorithm       *Algorithm
	Min, Max, Start int64
	Tolerance       float64       // Gradient2: latency may grow by this factor
	Timeout         time.Duration // AIMD: a request that takes longer is slow
	Window          time.Duration // the shortest time between two changes
}

// StartIn returns the default start of a limit between least and most.
func StartIn(least, most int64) int64 { return max(least, min(DefaultStart, most)) }

// Sample is the observation of a request that has ended.
type Sample struct {
	// RTT is how long it took.
	RTT time.Duration
	// InFlight is how many requests were in flight when it began, including itself.
	InFlight int64
	// Dropped says that it was turned away for lack of capacity. It counts however
	// short the request was.
	Dropped bool
	// Failed says that it failed. That counts as a lack of capacity if the request took
	// long enough to have needed any.
	Failed bool
	// Cut says that it was abandoned and would have taken longer.
	Cut bool
}

// Reason is the reason for a limit's present value.
type Reason uint8

const (
	None     Reason = iota // not a limit of this package
	Start                  // no window has ended yet
	Growing                // requests take as long as usual
	Queueing               // requests take longer than usual: the limit falls
	Drops                  // requests were dropped: the limit was cut
	Steady                 // no change is called for
	Unused                 // less than half of it is in use, so it doesn't grow
)

var reasons = [...]string{"not adaptive", "start", "growing", "queueing", "drops", "steady", "unused"}

// String returns the reason as one word.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("AdaptiveReason(%d)", uint8(r))
}

// estimator is an Algorithm at work on one limit. It computes the next estimate from a
// window.
type estimator interface {
	// update handles a window of requests that were served.
	update(estimate float64, w mean) (float64, Reason)
	// backOff handles a window of drops.
	backOff(estimate float64) float64
	// baseline returns what latency is compared with.
	baseline() time.Duration
}

// mean summarizes the samples of a window.
type mean struct {
	rtt      time.Duration // average
	inFlight int64         // largest
	slow     bool          // too many took longer than the timeout
}

// Limit is one key's limit. It is not safe for concurrent use.
type Limit struct {
	cfg       Config
	estimator estimator
	estimate  float64
	reason    Reason
	latency   time.Duration // of the last window

	window window
	open   bool
	until  time.Duration // the earliest end of the open window
}

// window sums up samples.
type window struct {
	sum          time.Duration
	timed        int64 // number of samples in sum
	count, drops int64
	slow         int64
	inFlight     int64
}

// New returns a limit whose value is cfg.Start. seed is for Vegas, which looks for a
// new smallest latency at irregular intervals.
func New(cfg Config, seed uint64) *Limit {
	return &Limit{cfg: cfg, estimator: cfg.Algorithm.begin(cfg, seed), estimate: float64(cfg.Start), reason: Start}
}

// Current returns the limit, in whole requests.
func (l *Limit) Current() int64 { return int64(l.estimate) }

// Reason returns the reason for the limit's present value.
func (l *Limit) Reason() Reason { return l.reason }

// Latency returns the average of the last window that had one, and Baseline what the
// algorithm compares it with. Both are 0 before that, except AIMD's Baseline, which is
// its timeout.
func (l *Limit) Latency() time.Duration  { return l.latency }
func (l *Limit) Baseline() time.Duration { return l.estimator.baseline() }

// Add takes a sample at an instant of the caller's clock, which never runs back. It
// reports whether Current has changed.
func (l *Limit) Add(at time.Duration, s Sample) bool {
	switch {
	case s.Dropped:
	case s.RTT < minRTT:
		return false
	case s.Cut && s.RTT < l.latency:
		return false // only a lower bound of the duration is known
	}
	if !l.open {
		l.open, l.until = true, at+l.cfg.Window
	}
	w := &l.window
	w.count++
	w.inFlight = max(w.inFlight, s.InFlight)
	if s.Dropped || s.Failed {
		w.drops++
	} else {
		w.timed++
		w.sum += s.RTT
		if s.RTT > l.cfg.Timeout {
			w.slow++
		}
	}
	if at < l.until || w.count < minSamples {
		return false
	}
	before := l.Current()
	l.close()
	*w, l.until = window{}, at+l.cfg.Window
	return l.Current() != before
}

// close ends the open window and applies it.
func (l *Limit) close() {
	w := &l.window
	next := l.estimate
	if w.drops*dropShare >= w.count {
		next, l.reason = l.estimator.backOff(next), Drops
	} else {
		l.latency = w.sum / time.Duration(w.timed)
		next, l.reason = l.estimator.update(next, mean{l.latency, w.inFlight, (w.slow+w.drops)*dropShare >= w.count})
	}
	before := l.estimate
	l.set(next)
	if l.estimate == before && l.reason != Unused {
		l.reason = Steady // Min or Max keeps it from moving
	}
}

// set sets the estimate within its bounds.
func (l *Limit) set(next float64) {
	l.estimate = min(max(next, float64(l.cfg.Min)), float64(l.cfg.Max))
}

// Config returns the limit's configuration.
func (l *Limit) Config() Config { return l.cfg }

// Follow returns a limit with another configuration that starts at the present value of l.
func (l *Limit) Follow(cfg Config, seed uint64) *Limit {
	n := New(cfg, seed)
	n.set(l.estimate)
	n.reason = l.reason
	return n
}
