package stint

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Ban refuses everything to a key for d, once other limits have refused it n times
// within a period of within. It holds in every process that shares the store. The
// default name is "ban".
//
//	stint.New(
//		stint.Rate(5, time.Minute),
//		stint.Ban(20, time.Minute, time.Hour),
//		stint.WithKey(stint.RemoteIP()))
//
// n is from 1 to 1000, because the time of each refusal is kept. within is a whole
// number of microseconds, at most two years; d likewise, at most one year. New refuses
// other numbers, and a Ban without a limit beside it whose refusals count: a Rate, a
// Quota, or a Concurrency without a queue.
//
// Refusals by any limit in the same decision with the same key count. So no key is
// banned because the whole service is full (Global, AdaptiveConcurrency), nor for
// having waited for a slot in vain. Refusals by limits in dry run don't count. To count
// what several routes refuse, give the same Limit to each.
//
// A banned request charges no other limit and doesn't prolong the ban. RetryAfter says
// when the ban ends, Limiter.Reset ends it, and the problem body has the type
// abnormal-usage-detected. With WithDryRun the ban itself only reports. The ban has no
// cost and no RateLimit fields; other requests pay for looking it up beside their
// limits, in the same call. If a store in memory is full, refusals of keys without a
// place aren't counted.
func Ban(n int64, within, d time.Duration, opts ...BanOption) Limit {
	return newLimit(&ban{}, store.Spec{Name: "ban", Algorithm: store.Ban, Units: n, Period: within, Ban: d}, opts)
}

// ban is the kind of Ban: it charges nothing and counts what other limits refuse.
type ban struct{ charged }

func (*ban) enter(e *entry, _ *rule) {
	e.cost, e.settle = nil, nil // the limiter's, which don't apply
	e.wait = waiting.Terms{Way: waiting.ForNothing}
	e.needs = counts
}

// repeated: a ban also counts refusals by inner limiters.
func (*ban) repeated() bool { return true }

func (*ban) counted(*entry) bool { return false }

func (*ban) binds() bool { return false } // how many refusals are left isn't how many requests are

func (*ban) refusal(*store.Charge) refusal { return abnormalUsage }

func (*ban) whyUnsettled() string { return "a ban, which charges nothing" }

// lacks: a ban needs a limit whose refusals it counts. A limit in dry run counts too,
// since it may be enforced later.
func (*ban) lacks(_ *entry, beside []*entry) *mistake.Mistake {
	if slices.ContainsFunc(beside, func(e *entry) bool { return e.kind.counted(e) }) {
		return nil
	}
	return &mistake.Mistake{Problem: "no limit beside it whose refusals count", Write: "write a rate, a quota or a concurrency that nobody waits for beside the ban"}
}
