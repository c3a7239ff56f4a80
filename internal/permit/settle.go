package permit

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Settle replaces the cost of limits of p and of the permits further out: of those with names or, without names, of
// those that chooseAmends selects. The error is about the arguments, or comes from Reporter.Unsettled.
func (p *Core) Settle(ctx context.Context, cost int64, names []string) error {
	if p == nil || p.Issuer == nil {
		return nil
	}
	if cost < 0 || cost > store.MaxCost {
		return fmt.Errorf("stint: Settle: %w: %d: write 0 to 2^40", store.ErrCost, cost)
	}
	var amends map[*Core][]decide.Amend
	var err error
	if len(names) == 0 {
		amends = p.chooseAmends(cost)
	} else {
		amends, err = p.amendsNamed(cost, names)
	}
	for q := p; q != nil && err == nil; q = q.Outer {
		err = q.settle(ctx, amends[q])
	}
	return err
}

// settle makes amends to grants of p.
func (p *Core) settle(ctx context.Context, amends []decide.Amend) error {
	if len(amends) == 0 {
		return nil
	}
	var handler *decide.HandlerSettled
	if p.Response != nil {
		handler = &p.Response.handlerSettled
	}
	s := p.Grants.Settle(ctx, p.Issuer.Backend, amends, p.Observers != nil, handler)
	if s.Err != nil {
		return p.Issuer.Reporter.Unsettled(p, s)
	}
	if s.Amended {
		p.Issuer.Reporter.Settled(p, s.Took)
	}
	return nil
}

// amendsNamed returns the amends for limits with names.
func (p *Core) amendsNamed(cost int64, names []string) (map[*Core][]decide.Amend, error) {
	amends := map[*Core][]decide.Amend{}
	for _, name := range names {
		q, grants := p.grantsNamed(name)
		if q == nil {
			return nil, fmt.Errorf("stint: Settle: the permit has no limit %q", name)
		}
		for _, i := range grants {
			if why := q.Grants.At(i).Limit.Kind.Traits().Unsettled; why != "" {
				return nil, fmt.Errorf("stint: Settle: %q is %s", name, why)
			}
			if a := (decide.Amend{Grant: i, Cost: cost}); !slices.Contains(amends[q], a) {
				amends[q] = append(amends[q], a)
			}
		}
	}
	return amends, nil
}

// grantsNamed finds the limit with a name, from p outwards. A request that is held to several routes may be charged
// for it under several keys.
func (p *Core) grantsNamed(name string) (*Core, []int) {
	for ; p != nil; p = p.Outer {
		if grants := p.Grants.Named(name); len(grants) > 0 {
			return p, grants
		}
	}
	return nil, nil
}

// preference is the order in which Settle without names looks for limits to apply to. Enforced limits come first, and
// limits with a WithCost before others.
type preference int

const (
	withCost preference = iota
	withoutCost
	dryRunWithCost
	dryRunWithoutCost
	nothingToSettle
)

func preferenceFor(u limit.Use) preference {
	switch {
	case u.DryRun && u.Costs:
		return dryRunWithCost
	case u.DryRun:
		return dryRunWithoutCost
	case u.Costs:
		return withCost
	}
	return withoutCost
}

// includes reports whether Settle, if it applies to limits of a preference, applies to a limit.
func (n preference) includes(u limit.Use) bool {
	return u.Costs || n == withoutCost || n == dryRunWithoutCost
}

// preferences returns the first preference that p has a limit for, in each interpretation of its request.
func (p *Core) preferences() []preference {
	first := make([]preference, len(p.Plan.Interpretations()))
	for interpretation := range first {
		first[interpretation] = nothingToSettle
		for i := range p.Grants.Len() {
			if u, ok := settleableIn(p.Grants.At(i).Limit, interpretation); ok {
				first[interpretation] = min(first[interpretation], preferenceFor(u))
			}
		}
	}
	return first
}

// settleableIn returns how an interpretation of a request uses a limit. ok is false if the interpretation doesn't have it, or if it
// can't be settled.
func settleableIn(l *limit.Limit, interpretation int) (u limit.Use, ok bool) {
	u, ok = l.UseIn(interpretation)
	return u, ok && l.Kind.Traits().Unsettled == ""
}

// chooseAmends returns the amends of a Settle without names. Settle applies to one permit: the one with the lowest
// preference, and among equals the innermost. If a limiter has read the request in several ways, the choice may depend
// on the interpretation. Then a limit is settled if any combination of interpretations selects it, and refunded only if all do.
func (p *Core) chooseAmends(cost int64) map[*Core][]decide.Amend {
	var permits []*Core
	for q := p; q != nil; q = q.Outer {
		permits = append(permits, q)
	}
	// ranks has the rank of each permit in each interpretation. No two permits have the same; the lowest is chosen.
	ranks := make([][]int, len(permits))
	for k, q := range permits {
		for _, n := range q.preferences() {
			ranks[k] = append(ranks[k], int(n)*len(permits)+k)
		}
	}
	amends := map[*Core][]decide.Amend{}
	for k, q := range permits {
		lowest, highest := otherRanks(ranks, k)
		for i := range q.Grants.Len() {
			g := q.Grants.At(i)
			some, each := false, true
			for interpretation, rank := range ranks[k] {
				if u, ok := settleableIn(g.Limit, interpretation); ok {
					included := preference(rank / len(permits)).includes(u)
					some = some || included && rank < highest
					each = each && included && rank < lowest
				}
			}
			switch {
			case some && each:
				amends[q] = append(amends[q], decide.Amend{Grant: i, Cost: cost})
			case some:
				amends[q] = append(amends[q], decide.Amend{Grant: i, Cost: max(cost, g.Cost)})
			}
		}
	}
	return amends
}

// otherRanks returns bounds of the lowest rank among the permits other than k, over all combinations of interpretations.
func otherRanks(ranks [][]int, k int) (lowest, highest int) {
	lowest, highest = math.MaxInt, math.MaxInt
	for i, other := range ranks {
		if i != k {
			lowest, highest = min(lowest, slices.Min(other)), min(highest, slices.Max(other))
		}
	}
	return lowest, highest
}
