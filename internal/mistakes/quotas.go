package mistakes

import (
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// unreachableQuota is a quota that a rate beside it keeps from ever being used up.
type unreachableQuota struct {
	quota, rate string // the limits' names
	units, most int64  // of the quota, and at most through the rate in the quota's period
}

// unreachableQuotas returns the quotas of a plan that a rate for the same key never lets through. It is
// sure of them: costs that may differ, and limits that never deny, are left out.
func unreachableQuotas(p *read.Plan) (all []unreachableQuota) {
	for _, q := range p.Entries {
		quota := q.StoreLimit.Spec()
		if quota.Window == (store.Window{}) || !countsRequests(q) {
			continue
		}
		for _, r := range p.Entries {
			rate := r.StoreLimit.Spec()
			if rate.Window != (store.Window{}) || !countsRequests(r) || r.Key != q.Key || r.Key == nil {
				continue
			}
			if most := mostIn(rate, compile.Span(quota).Seconds()); most < float64(quota.Units) {
				all = append(all, unreachableQuota{q.Name(), r.Name(), quota.Units, int64(most)})
				break
			}
		}
	}
	return all
}

// countsRequests reports whether a limit is enforced, each request costs 1, and none reserves a turn.
func countsRequests(e *read.Entry) bool {
	return e.Kind == limit.Charged && !e.DryRun && e.Cost == nil && e.Settler == nil && e.Wait.MaxWait == 0
}

// mostIn returns an upper bound of what a rate lets pass in a time of so many seconds, whatever its
// algorithm: what refills, also in the hour that Limiter.Wait reserves ahead, what it holds at first,
// and a window at either end.
func mostIn(rate store.Spec, seconds float64) float64 {
	const ahead = 3600
	return ((seconds+ahead)/compile.Span(rate).Seconds()+2)*float64(rate.Units) + float64(max(rate.Burst,
		0)+max(rate.Queue, 0))
}
