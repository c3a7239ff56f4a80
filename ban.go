package stint

import (
	"time"

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
	return newLimit(store.Spec{Name: "ban", Algorithm: store.Ban, Units: n, Period: within, Ban: d}, opts)
}

// lonelyBan reports a ban that has nothing to count: a bandwidth refuses nobody,
// an adaptive limit is the service's state and none of the store's, and who waits
// for a slot is not counted. A limit that only reports may come to refuse.
func (p *plan) lonelyBan() *entry {
	var ban *entry
	for _, e := range p.entries {
		switch {
		case e.bans:
			ban = e
		case e.bandwidth == nil && e.adaptive == nil && (!e.slots || e.maxWait == 0):
			return nil
		}
	}
	if len(p.funcs) > 0 {
		return nil
	}
	return ban
}

// banned reports whether an enforced ban has refused the call, and whether one has
// begun with it.
func (c *call) banned() (refused, begun bool) {
	for i, e := range c.entries {
		if r := &c.results[i]; e.bans && !r.OK {
			refused = refused || !e.dryRun
			begun = begun || r.Begun
		}
	}
	return refused, begun
}
