package stint

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Ban refuses a key everything for d once its other limits have refused it n times
// within a span of within, in every process that shares the store. n is 1000 at
// the most: the instant of each refusal is kept.
//
//	stint.New(
//		stint.Rate(5, time.Minute),
//		stint.Ban(20, time.Minute, time.Hour),
//		stint.WithKey(stint.RemoteIP()))
//
// Refusals count of all limits decided together with the ban and of the same key:
// nobody is banned because the whole service is full (Global, AdaptiveConcurrency),
// nor for having waited for a slot in vain. A limit with another key than the ban's
// counts for nothing. To count what several routes refuse, give the same Limit to
// each. A request that is banned touches no other limit, and does not
// prolong the ban; RetryAfter says when it ends, Limiter.Reset ends it, and the
// problem body says abnormal-usage-detected. Limits that only report don't count;
// WithDryRun on the ban has it report only.
//
// A request that is not refused pays for looking the ban up beside its limits, in
// the same call. The ban has no cost and no RateLimit fields. In a memory store
// that is full, refusals of keys without a place aren't counted. Its default name
// is "ban".
func Ban(n int64, within, d time.Duration, opts ...BanOption) Limit {
	return newLimit(&ban{}, store.Spec{Name: "ban", Algorithm: store.Ban, Units: n, Period: within, Ban: d}, opts)
}

// ban is the kind of Ban: it charges nothing, and counts what others refuse.
type ban struct{ charged }

func (*ban) enter(e *entry) {
	e.cost, e.settle = nil, nil // of the limiter
	e.wait = waiting.Terms{Way: waiting.ForNothing}
	e.needs = counts
}

// repeated: a ban counts what a limiter further in refuses too.
func (*ban) repeated() bool                { return true }
func (*ban) counted(*entry) bool           { return false }
func (*ban) succeeds() bool                { return false }
func (*ban) binds() bool                   { return false } // how many refusals are left isn't how many requests are
func (*ban) refusal(*store.Charge) refusal { return abnormalUsage }
func (*ban) unsettled() string             { return "a ban, which charges nothing" }

// lacks: a ban needs a limit whose refusals it counts. One that only reports may
// come to refuse.
func (*ban) lacks(_ *entry, beside []*entry) *OptionError {
	if slices.ContainsFunc(beside, func(e *entry) bool { return e.kind.counted(e) }) {
		return nil
	}
	return &OptionError{Problem: "nothing to count", Write: "write a Rate, a Quota or a Concurrency that nobody waits for beside the Ban"}
}
