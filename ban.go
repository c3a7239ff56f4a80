package stint

import (
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Ban denies everything to a key, for the time of WithBanFor, once other limits have
// denied it n times within a period of within. It holds in every process that shares the
// store. The default name is "ban".
//
//	stint.New(
//		stint.Rate(5, time.Minute),
//		stint.Ban(20, time.Minute, stint.WithBanFor(time.Hour)),
//		stint.WithKey(stint.RemoteIP()))
//
// n is from 1 to 1000, because the time of each denial is kept. within is a whole
// number of microseconds, at most two years. New rejects other numbers, a Ban without
// WithBanFor, and one without a limit beside it that has its key and whose denials count: a
// Rate, a Quota, or a Concurrency without a queue.
//
// Denials by any limit in the same decision with the same key count. So no key is
// banned because the whole service is full (Global, AdaptiveConcurrency), nor for
// having waited for a slot in vain. Denials by limits in dry run don't count. To count
// what several routes deny, give the same Limit to each.
//
// A banned request charges no other limit and doesn't prolong the ban. RetryAfter says
// when the ban ends, Limiter.Reset ends it, and the problem body has the type
// abnormal-usage-detected. With WithDryRun the ban itself only reports. The ban has no
// cost and no RateLimit fields; other requests pay for looking it up beside their
// limits, in the same call. If a store in memory is full, denials of keys without a
// place aren't counted.
func Ban(n int64, within time.Duration, opts ...BanOption) Limit {
	l := newLimit(&compile.Rule{Kind: limit.Banning, Spec: store.Spec{Name: "ban", Algorithm: store.Ban, Units: n, Period: within}}, opts)
	checkPeriod(l.rule)
	if l.rule.Spec.Ban == 0 {
		l.rule.Errs.Bad("", "no time for which the ban lasts", "write stint.WithBanFor(time.Hour)")
		l.rule.Spec.Ban = time.Hour // or the store's limit would report it too
	}
	return l
}

// WithBanFor sets how long a Ban lasts. d is a whole number of microseconds, from a
// millisecond to a year; New rejects any other. Every Ban needs it.
func WithBanFor(d time.Duration) BanOption {
	return changeOption{change: func(r *compile.Rule) {
		if r.Spec.Ban = d; lacksUnit(r, "WithBanFor", d) {
			r.Spec.Ban = time.Hour // or the store's limit may report it too
		}
	}}
}
