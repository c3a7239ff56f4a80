// Package adaptive holds limits of this process on requests in flight, which follow
// how long these take: those of stint.AdaptiveConcurrency.
//
// [Keys] has them by name and key. [Keys.Limit] makes one, a [Store] over another
// store decides charges on it, [Keys.End] takes what a request has shown, and [Follower]
// says where a limit stood in a decision.
//
// The algorithms are those of Netflix's concurrency-limits
// (https://github.com/Netflix/concurrency-limits, its Gradient2Limit, VegasLimit,
// AIMDLimit and WindowedLimit), with its default numbers and these differences:
//
//   - A window in which requests were dropped halves the limit of Gradient2 and
//     Vegas. There, Gradient2 doesn't look at drops and Vegas takes off a little.
//   - One request in twenty has to be dropped for that, or slower than AIMD's
//     timeout. There, one is enough.
//   - How long a dropped request took says nothing about the work, so it isn't
//     part of a window's average.
//   - A window goes on until it has samples enough. There, one with too few is
//     thrown away, and a limit on slow requests never moves.
//   - Vegas and AIMD too learn from windows. There, each request counts by itself
//     unless one asks for windows, so that one pause under AIMD, which makes all
//     in flight slow, takes a tenth off for each of them.
//
// A [Limit] reads no clock and draws no number that its caller hasn't seeded: the same
// samples give the same limits.
package adaptive

import "time"

// Algorithm is how a limit follows the latency.
type Algorithm uint8

const (
	// Gradient2 compares a window's latency with a long-term average.
	Gradient2 Algorithm = iota
	// Vegas works out the queue from the smallest latency seen.
	Vegas
	// AIMD looks for where requests become slower than a timeout.
	AIMD
)

// String is the name.
func (a Algorithm) String() string { return [...]string{"Gradient2", "Vegas", "AIMD"}[a] }

// The published defaults.
const (
	DefaultStart     = 20
	DefaultTolerance = 1.5
	DefaultTimeout   = 5 * time.Second
	DefaultWindow    = time.Second
)

const (
	// minSamples is how many samples a window needs.
	minSamples = 10
	// minRTT is the duration below which a request has done nothing that
	// concurrency could slow down: what a cache or a check has answered.
	minRTT = 100 * time.Microsecond
	// dropShare: one dropped request in so many makes a window one of drops,
	// one slow request in so many a slow one.
	// A service that fails one request in a thousand is not overloaded.
	dropShare = 20
)

// Config is what a Limit goes by. All of it is set.
type Config struct {
	Algorithm       Algorithm
	Min, Max, Start int64
	Tolerance       float64       // of Gradient2: latency may grow by this factor
	Timeout         time.Duration // of AIMD: a request that takes longer is slow
	Window          time.Duration // the shortest time from one change to the next
}

// Sample is what is known of a request that has ended.
type Sample struct {
	// RTT is how long it took.
	RTT time.Duration
	// InFlight is how many were in flight when it began, itself included.
	InFlight int64
	// Dropped says that it was turned away for want of capacity, which is known
	// however short it was.
	Dropped bool
	// Failed says that it failed, for want of capacity if it took long enough to
	// have wanted any.
	Failed bool
	// Cut says that it was given up on, and would have taken longer.
	Cut bool
}

// Reason is why a limit is where it is.
type Reason uint8

const (
	None     Reason = iota // not a limit of this package
	Start                  // no window has ended
	Growing                // requests take as long as usual
	Queueing               // they take longer: the limit falls
	Drops                  // requests were dropped: it was cut
	Steady                 // neither more nor less is called for
	Unused                 // less than half of it is in use, so it doesn't grow
)

// algorithm turns a window into the next estimate.
type algorithm interface {
	// update is for a window of requests that were served.
	update(estimate float64, w mean) (float64, Reason)
	// backOff is for a window of drops.
	backOff(estimate float64) float64
	// baseline is what latency is compared with.
	baseline() time.Duration
}

// mean is what a window's samples amount to.
type mean struct {
	rtt      time.Duration // average
	inFlight int64         // largest
	slow     bool          // too many took longer than the timeout
}

// Limit is one key's limit. It is not safe for concurrent use.
type Limit struct {
	cfg       Config
	algorithm algorithm
	estimate  float64
	reason    Reason
	latency   time.Duration // of the last window

	window window
	open   bool
	until  time.Duration // when the open window may end
}

// window adds samples up.
type window struct {
	sum          time.Duration
	timed        int64 // samples in sum
	count, drops int64
	slow         int64
	inFlight     int64
}

// New makes a limit at cfg.Start. The seed is for Vegas, which looks for a new
// smallest latency at irregular intervals.
func New(cfg Config, seed uint64) *Limit {
	l := &Limit{cfg: cfg, estimate: float64(cfg.Start), reason: Start}
	switch cfg.Algorithm {
	case Vegas:
		l.algorithm = newVegas(seed)
	case AIMD:
		l.algorithm = aimd{cfg.Timeout}
	default:
		l.algorithm = &gradient2{tolerance: cfg.Tolerance}
	}
	return l
}

// Current is the limit, in whole requests.
func (l *Limit) Current() int64 { return int64(l.estimate) }

// Reason is why the limit is what it is.
func (l *Limit) Reason() Reason { return l.reason }

// Latency is the average of the last window that had one, and Baseline what
// the algorithm compares it with; both 0 before that, but for AIMD's timeout.
func (l *Limit) Latency() time.Duration  { return l.latency }
func (l *Limit) Baseline() time.Duration { return l.algorithm.baseline() }

// Add takes a sample at an instant of the caller's clock, which never runs
// back, and reports whether Current has changed.
func (l *Limit) Add(at time.Duration, s Sample) bool {
	switch {
	case s.Dropped:
	case s.RTT < minRTT:
		return false
	case s.Cut && s.RTT < l.latency:
		return false // all it says is that it took no less than that
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

// close lets the open window say what it has to say.
func (l *Limit) close() {
	w := &l.window
	next := l.estimate
	if w.drops*dropShare >= w.count {
		next, l.reason = l.algorithm.backOff(next), Drops
	} else {
		l.latency = w.sum / time.Duration(w.timed)
		next, l.reason = l.algorithm.update(next, mean{l.latency, w.inFlight, (w.slow+w.drops)*dropShare >= w.count})
	}
	before := l.estimate
	l.set(next)
	if l.estimate == before && l.reason != Unused {
		l.reason = Steady // it would go on, but for Min or Max
	}
}

// set bounds the estimate.
func (l *Limit) set(next float64) {
	l.estimate = min(max(next, float64(l.cfg.Min)), float64(l.cfg.Max))
}

// Config is what the limit goes by.
func (l *Limit) Config() Config { return l.cfg }

// Follow makes a limit that goes by another configuration from where l stands.
func (l *Limit) Follow(cfg Config, seed uint64) *Limit {
	n := New(cfg, seed)
	n.set(l.estimate)
	n.reason = l.reason
	return n
}
