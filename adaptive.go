package stint

import (
	"cmp"
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// AdaptiveConcurrency lets as many requests of a key (commonly Global) run at once as the
// service can take, measured by how long they take. The limit rises while requests take as long as usual
// and at least half of it is in use, and falls when they take longer or fail. It starts
// at 20 (WithInitialLimit) and stays between min and max. The default name is
// "adaptive".
//
// min is at least 1, and max from min to 1,000,000; New rejects other numbers. It
// combines with every other kind of limit. Requests wait for its slots as for those of
// a Concurrency (WithQueue, WithMaxWait). A request that costs more than the present
// limit, but no more than max, passes alone.
//
// The algorithms are those of Netflix's concurrency-limits
// (https://github.com/Netflix/concurrency-limits), with its numbers; see
// WithAdaptation. They learn from how long a request takes from when it is admitted to
// Permit.Done, not including waits:
//
//   - A status of 500 or above is a drop, and so are a handler's panic and a request
//     whose deadline passed. The status is known if an adapter passes on the writer
//     of Limiter.Admit.
//   - A request whose client left counts only if it has already taken longer than
//     others do.
//   - These requests are ignored: those whose connection was hijacked or detached
//     (Permit.Detach), that an inner limiter denied, or that panic with
//     http.ErrAbortHandler; and those under 100 µs, which have waited for nothing, even
//     if they fail.
//   - Outside HTTP (Take, Wait) the context is ignored: it may only have bounded the
//     wait.
//   - Permit.Drop and Permit.Ignore take precedence over all of this, for what only the
//     handler knows.
//
// The limit and its slots belong to this process, whatever the store, because each
// process has its own capacity. A slot is taken before the store decides the other
// limits, and given back if one denies, so still either all limits are charged or
// none. While the store is down, the limit continues to work. In Decision.Limits it
// comes after the store's limits, with the present limit as Capacity.
//
// A limiter and those derived from it remember 10,000 keys without requests in flight,
// for all their adaptive limits together. Beyond that the least recently used keys
// start anew, as do those of a limit that an Update has removed.
func AdaptiveConcurrency(min, max int64, opts ...SlotOption) Limit {
	c := &adaptive.Config{Min: min, Max: max, Window: adaptive.DefaultWindow}
	Gradient2(adaptive.DefaultTolerance).set(c)
	r := &compile.Rule{Kind: limit.Adaptive, Adaptive: c, Spec: store.Spec{Name: "adaptive", Algorithm: store.Concurrency, Units: max}}
	if min < 1 || max < min || max > mostAdaptive {
		r.Errs.Bad(fmt.Sprintf("AdaptiveConcurrency(%d, %d)", min, max), "",
			fmt.Sprintf("write a min of 1 or more, and a max of no less, up to %d", mostAdaptive))
		r.Spec.Units = 1 // or the store's limit would be reported too
	}
	apply(r, opts)
	switch {
	case c.Start == 0:
		c.Start = adaptive.StartIn(min, max)
	case c.Start < min || c.Start > max:
		r.Errs.Bad(fmt.Sprintf("WithInitialLimit(%d)", c.Start), "", fmt.Sprintf("write %d to %d, the range of the limit", min, max))
	}
	return Limit{r}
}

// mostAdaptive is the largest max: far more than a process has in flight.
const mostAdaptive = 1_000_000

// configures returns an option that sets part of the configuration, unless its argument is
// wrong.
func configures(valid bool, option, write string, set func(*adaptive.Config)) SlotOption {
	return checkedChange(valid, option, write, func(r *compile.Rule) { set(r.Adaptive) }, "AdaptiveConcurrency")
}

// Adaptation says how an AdaptiveConcurrency follows the latency: Gradient2, Vegas or AIMD.
// WithAdaptation takes it. It is immutable and safe for concurrent use.
type Adaptation struct {
	set     func(*adaptive.Config) // nil if the arguments are wrong
	written string                 // with wrong arguments, and what to write instead
	write   string
}

// Gradient2 compares latency with its long-term average, and shrinks the limit when latency
// exceeds tolerance times that. It is lenient with work of mixed durations. Latency alone
// doesn't take the limit below 8. An AdaptiveConcurrency without a WithAdaptation has
// Gradient2(1.5).
//
// tolerance is from 1 to 100; New rejects other values. With 1, if requests are many and alike,
// the limit stays within a few requests of what the service can do at once. With 1.5 it is half
// above that, and rises further while an overload lasts, but mixed work isn't mistaken for
// overload.
func Gradient2(tolerance float64) Adaptation {
	return adaptation(tolerance >= 1 && tolerance <= 100, // NaN is neither
		fmt.Sprintf("Gradient2(%v)", tolerance), "write 1 or more, up to 100",
		func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.Gradient2, tolerance, 0 })
}

// Vegas estimates the queue from the smallest latency seen, and keeps it to a few
// requests. If requests are many and alike, the limit stays close to what a service can do
// at once. If durations vary by chance, it takes that for a queue and denies
// requests that the service could handle.
func Vegas() Adaptation {
	return adaptation(true, "Vegas()", "", func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.Vegas, 0, 0 })
}

// AIMD adds one to the limit while requests take no longer than timeout, and takes off a tenth
// when one in twenty takes longer or fails. No request is interrupted. It needs no usual
// latency, so an overload never becomes usual to it, and processes in front of one
// service end up with equal limits. The queue grows as long as timeout allows.
//
// timeout is a millisecond or more; New rejects other values. Start with twice what the slowest
// requests take without a queue. If more than one in twenty takes longer than timeout without
// any queue, the limit falls to its min.
func AIMD(timeout time.Duration) Adaptation {
	valid, write := engine.CheckDuration(timeout, timeout > 0, "write 1ms or more")
	return adaptation(valid, fmt.Sprintf("AIMD(%v)", timeout), write,
		func(c *adaptive.Config) { c.Algorithm, c.Tolerance, c.Timeout = adaptive.AIMD, 0, timeout })
}

func adaptation(valid bool, written, write string, set func(*adaptive.Config)) Adaptation {
	if valid {
		return Adaptation{set: set}
	}
	return Adaptation{written: written, write: write}
}

// WithAdaptation sets how an AdaptiveConcurrency follows the latency: Gradient2, Vegas
// or AIMD.
//
//	stint.WithAdaptation(stint.AIMD(150 * time.Millisecond))
//
// The default is Gradient2(1.5). New rejects wrong numbers in them, and the zero Adaptation.
func WithAdaptation(a Adaptation) SlotOption {
	written := cmp.Or(a.written, "WithAdaptation(Adaptation{})")
	write := cmp.Or(a.write, "write stint.Gradient2, stint.Vegas or stint.AIMD")
	return configures(a.set != nil, written, write, a.set)
}

// WithInitialLimit sets where an AdaptiveConcurrency starts, between its min and max.
// The default is 20, or the nearer of min and max if 20 is outside. New rejects other
// values.
func WithInitialLimit(n int64) SlotOption {
	return configures(n >= 1, fmt.Sprintf("WithInitialLimit(%d)", n), "write 1 or more",
		func(c *adaptive.Config) { c.Start = n })
}

// WithSampleWindow sets the time over which an AdaptiveConcurrency averages latency
// before it changes: 100 ms or more. The default is a second. New rejects shorter
// windows. A window continues until it has ten requests. Shorter windows react faster,
// and mistake chance for change sooner.
func WithSampleWindow(d time.Duration) SlotOption {
	valid, write := engine.CheckDuration(d, d >= 100*time.Millisecond, "write 100ms or more")
	return configures(valid, fmt.Sprintf("WithSampleWindow(%v)", d), write,
		func(c *adaptive.Config) { c.Window = d })
}
