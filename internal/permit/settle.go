package permit

import (
	"context"
	"fmt"
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
	amends, err := p.amendsFor("Settle", cost, names)
	for q := p; q != nil && err == nil; q = q.Outer {
		err = q.settle(ctx, amends[q])
	}
	return err
}

// amendsFor returns the amends of an operation, by the permits whose grants they are for.
func (p *Core) amendsFor(operation string, cost int64, names []string) (map[*Core][]decide.Amend, error) {
	if cost < 0 || cost > store.MaxCost {
		return nil, fmt.Errorf("stint: %s: %w: %d: use 0 to 2^40", operation, store.ErrCost, cost)
	}
	if len(names) == 0 {
		return p.chooseAmends(cost), nil
	}
	return p.amendsNamed(operation, cost, names)
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
		p.Issuer.Reporter.Settled(p, s)
	}
	return nil
}

// amendsNamed returns the amends for limits with names.
func (p *Core) amendsNamed(operation string, cost int64, names []string) (map[*Core][]decide.Amend, error) {
	amends := map[*Core][]decide.Amend{}
	for _, name := range names {
		q, grants := p.grantsNamed(name)
		if q == nil {
			return nil, fmt.Errorf("stint: %s: the permit has no limit %q", operation, name)
		}
		for _, i := range grants {
			if why := q.Grants.At(i).Limit.Kind.Traits().Unsettled; why != "" {
				return nil, fmt.Errorf("stint: %s: %q is %s", operation, name, why)
			}
			if a := q.amendTo(i, cost); !slices.Contains(amends[q], a) {
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

func preferenceFor(l *limit.Limit) preference {
	switch {
	case l.Kind.Traits().Unsettled != "":
		return nothingToSettle
	case l.DryRun && l.Costs:
		return dryRunWithCost
	case l.DryRun:
		return dryRunWithoutCost
	case l.Costs:
		return withCost
	}
	return withoutCost
}

// includes reports whether Settle, if it applies to limits of a preference, applies to a limit that can be
// settled.
func (n preference) includes(l *limit.Limit) bool {
	return l.Costs || n == withoutCost || n == dryRunWithoutCost
}

// chooseAmends returns the amends of a Settle without names. Settle applies to one permit: the one that has a
// limit of the first preference, and among equals the innermost.
func (p *Core) chooseAmends(cost int64) map[*Core][]decide.Amend {
	chosen, first := p, nothingToSettle
	for q := p; q != nil; q = q.Outer {
		for i := range q.Grants.Len() {
			if n := preferenceFor(q.Grants.At(i).Limit); n < first {
				chosen, first = q, n
			}
		}
	}
	var amends []decide.Amend
	for i := range chosen.Grants.Len() {
		if l := chosen.Grants.At(i).Limit; preferenceFor(l) != nothingToSettle && first.includes(l) {
			amends = append(amends, chosen.amendTo(i, cost))
		}
	}
	return map[*Core][]decide.Amend{chosen: amends}
}

// amendTo returns the amend of a grant to a cost.
func (p *Core) amendTo(grant int, cost int64) decide.Amend {
	g := p.Grants.At(grant)
	if g.Limit.NoRefund {
		cost = max(cost, g.Cost)
	}
	return decide.Amend{Grant: grant, Cost: cost}
}
