package replay

import (
	"fmt"
	"math/big"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Finding is a limit or a route that has no effect.
type Finding struct {
	Limit string
	Route string // where it can't; "" for the limiter's own limits
	Text  string
}

// Idle returns the limits that can never be the first to deny a request, because a token bucket
// with the same key and cost always denies before them. It compares rates and quotas whose
// costs don't depend on the request or its response, and reports only certain cases.
func Idle(l *stint.Limiter) (all []Finding) {
	plans := plansOf(l)
	seen := map[Finding]bool{}
	add := func(p *read.Plan) {
		for _, e := range p.Entries {
			for _, by := range p.Entries {
				text := whyIdle(e, by)
				if text == "" {
					continue
				}
				general := Finding{e.Name(), "", text}
				if f := (Finding{e.Name(), p.Pattern, text}); !seen[f] && !seen[general] {
					seen[f] = true
					all = append(all, f)
				}
				break
			}
		}
	}
	add(plans.Base)
	for _, p := range plans.Routes {
		add(p)
	}
	return all
}

// whyIdle returns why e never denies before by does, or "".
func whyIdle(e, by *read.Entry) string {
	if e == by || e.Key != by.Key || e.DryRun || by.DryRun || !steady(e) || !steady(by) || fixedCost(e) != fixedCost(by) {
		return ""
	}
	a, b := e.StoreLimit.Spec(), by.Limit.StoreLimit.Spec()
	if b.Algorithm != store.TokenBucket || b.Debt || b.Queue > 0 || b.Burst <= 0 {
		return ""
	}
	switch a.Algorithm {
	case store.TokenBucket:
		if a.Debt || a.Queue > 0 || a.Burst < b.Burst || perSecond(a).Cmp(perSecond(b)) < 0 {
			return ""
		}
		if a.Burst == b.Burst && perSecond(a).Cmp(perSecond(b)) == 0 && e.Name() > by.Name() {
			return "" // said of the other
		}
	case store.FixedWindow, store.SlidingWindow, store.SlidingLog:
		span := spanOf(&a)
		if span == 0 {
			return ""
		}
		// No more than the burst, and what is refilled, passes in any span.
		most := new(big.Rat).Mul(perSecond(b), new(big.Rat).SetFrac64(int64(span), int64(time.Second)))
		most.Add(most, new(big.Rat).SetInt64(b.Burst))
		if most.Cmp(new(big.Rat).SetInt64(a.Units)) > 0 {
			return ""
		}
		units := new(big.Int).Quo(most.Num(), most.Denom())
		return fmt.Sprintf("it never denies first, since %q allows at most %s in %v: lower it, or remove it",
			by.Name(), units, span)
	case store.IntervalBucket, store.LeakyBucket, store.SlidingCounter, store.WarmUp, store.Concurrency, store.Ban:
		return "" // without an exact bound, or one that depends on more than time
	default:
		panic(a.Algorithm.String())
	}
	return fmt.Sprintf("it never denies first, since %q has no larger burst and no faster rate: lower it, or remove it",
		by.Name())
}

// steady reports whether an entry's charges all cost the same, are decided at once, and aren't settled.
func steady(e *read.Entry) bool {
	return e.Kind == limit.Charged && e.Needs&^limit.Counts == 0 && e.Settler == nil && (e.Cost == nil || e.Fixed > 0)
}

func fixedCost(e *read.Entry) int64 { return max(e.Fixed, 1) }

func perSecond(s store.Spec) *big.Rat {
	r := new(big.Rat).SetFrac64(s.Units, int64(s.Period))
	return r.Mul(r, new(big.Rat).SetInt64(int64(time.Second)))
}

// spanOf returns the longest time that a window counts over, or 0 if that isn't known.
func spanOf(s *store.Spec) time.Duration {
	switch {
	case s.Period > 0:
		return s.Period
	case s.Window == store.Hourly:
		return time.Hour
	case s.Window == store.Daily:
		return 25 * time.Hour // where clocks are set back
	case s.Window == store.Weekly:
		return 7*24*time.Hour + time.Hour
	case s.Window == store.Monthly:
		return 31*24*time.Hour + time.Hour
	case s.Window == store.Yearly:
		return 366 * 24 * time.Hour
	}
	return 0
}
