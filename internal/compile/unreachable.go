package compile

import (
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Unreachable is a quota that a rate beside it keeps from ever being used up.
type Unreachable struct {
	Quota, Rate string // the limits' names
	Units, Most int64  // of the quota, and at most through the rate in the quota's period
}

// Unreached returns the quotas of a plan that a rate for the same key never lets through. It is
// sure of them: costs that may differ, and limits that never deny, are left out.
func Unreached(p *read.Plan) (all []Unreachable) {
	for _, q := range p.Entries {
		s := q.StoreLimit.Spec()
		if s.Window == (store.Window{}) || !plain(q) {
			continue
		}
		for _, r := range p.Entries {
			if r.StoreLimit.Spec().Window != (store.Window{}) || !plain(r) || r.Key != q.Key || r.Key == nil {
				continue
			}
			if most := mostIn(r.StoreLimit.Spec(), span(s).Seconds()); most < float64(s.Units) {
				all = append(all, Unreachable{q.Name(), r.Name(), s.Units, int64(most)})
				break
			}
		}
	}
	return all
}

// plain reports whether the limit is enforced, each request costs 1, and none reserves a turn.
func plain(e *read.Entry) bool {
	return e.Kind == limit.Charged && !e.DryRun && e.Cost == nil && e.Settler == nil && e.Wait.MaxWait == 0
}

// mostIn returns what a rate never exceeds in a time of so many seconds, whatever its algorithm:
// what refills, also in the hour that Limiter.Wait reserves ahead, what it holds at first, and a
// window at either end.
func mostIn(s store.Spec, seconds float64) float64 {
	const ahead = 3600
	return ((seconds+ahead)/span(s).Seconds()+2)*float64(s.Units) + float64(max(s.Burst, 0)+max(s.Queue, 0))
}
