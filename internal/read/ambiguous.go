package read

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/store"
)

// An ambiguous request is one of which package routing finds several interpretations. It is held to the
// plans of all of them:
//
//   - A limit that any of them selects is charged, once for each key, at the highest cost.
//   - Its settings are the strictest: see limit.Limit.Merge.
//   - It is refunded only as far as all that select it would refund it: see Settler.FinalCost, and
//     Permit.Settle of the root.
//
// So it never gets more than by any interpretation alone, whichever the router behind the limiter
// follows. It pays for that with a copy of each limit; other requests pay nothing.

// union returns the plan of a request that is held to those of several matches.
func (p *Plans) union(matches []routing.Match) *Plan {
	var plans []*Plan
	for _, m := range matches {
		if plan := p.ofMatch(m); !plan.exempt() {
			plans = append(plans, plan)
		}
	}
	switch len(plans) {
	case 0:
		return &Plan{}
	case 1:
		return plans[0]
	}
	names := make([]string, len(plans))
	for i, plan := range plans {
		names[i] = plan.Pattern
	}
	return combine(strings.Join(names, ", "), plans...)
}

// combine returns the plan of requests that are held to several. Its entries are only the first of
// each limit.
func combine(pattern string, plans ...*Plan) *Plan {
	u, seen := &Plan{Pattern: pattern, alsoMatched: plans}, map[*store.Limit]bool{}
	for _, p := range plans {
		if len(p.interpretations) > 0 {
			u.interpretations = append(u.interpretations, p.interpretations...)
		} else {
			u.interpretations = append(u.interpretations, p)
		}
		for _, e := range p.Entries {
			if !seen[e.StoreLimit] {
				seen[e.StoreLimit] = true
				u.Entries = append(u.Entries, e)
			}
		}
		for _, f := range p.Funcs {
			if !slices.Contains(u.Funcs, f) {
				u.Funcs = append(u.Funcs, f)
			}
		}
	}
	return u
}

// Interpretations returns the plans that a request of the plan is held to: itself, or several.
func (p *Plan) Interpretations() []*Plan {
	if p == nil || len(p.interpretations) == 0 {
		return []*Plan{p}
	}
	return p.interpretations
}

// chargeInterpretations makes the charges of an ambiguous request, except those of functions.
func (q *Reading) chargeInterpretations(p *Plan) error {
	for i, interpretation := range p.interpretations {
		for _, e := range interpretation.Entries {
			if err := q.chargeInInterpretation(i, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// chargeInInterpretation adds the charge of one limit in an interpretation, or makes it part of the charge that another
// interpretation has made of the limit.
func (q *Reading) chargeInInterpretation(interpretation int, e *Entry) error {
	if e.Skip != nil && e.Skip(q.R) {
		return nil
	}
	key, err := q.key(e)
	if err != nil {
		return err
	}
	q.keepKey(e.Key, key)
	if i := q.find(e.StoreLimit, key); i >= 0 {
		cost, err := q.cost(e)
		if err != nil {
			return err
		}
		o := q.entries[i]
		o.merge(interpretation, e)
		q.enforced = q.enforced || !e.DryRun
		q.call.Replace(i, &o.Limit, max(cost, q.call.Charges[i].Cost))
		return nil
	}
	for i := range q.Paced {
		if p := &q.Paced[i]; p.StoreLimit == e.StoreLimit && p.Key == key {
			p.merge(interpretation, e)
			q.enforced = q.enforced || !e.DryRun
			q.paces |= p.Needs
			return nil
		}
	}
	return q.charge(e.forInterpretation(interpretation))
}

// splitByInterpretation replaces entries, which f has returned, by those of the interpretations whose plan has f. Each
// is charged at the highest cost of these interpretations.
func (q *Reading) splitByInterpretation(f *Func, entries []*Entry) error {
	first := len(q.entries) - len(entries)
	for i, e := range entries {
		var merged *Entry
		most := int64(0)
		for n, p := range q.Plan.interpretations {
			if !slices.Contains(p.Funcs, f) {
				continue
			}
			costed := e.withCost(p.Cost)
			cost, err := q.cost(costed)
			if err != nil {
				return err
			}
			if most = max(most, cost); merged == nil {
				merged = costed.forInterpretation(n)
			} else {
				merged.addUse(n, costed)
			}
		}
		entries[i] = merged
		q.call.Replace(first+i, &merged.Limit, most)
	}
	return nil
}

// forInterpretation returns the entry as an interpretation of one request has it.
func (e *Entry) forInterpretation(interpretation int) *Entry {
	c := e.copy()
	c.addUse(interpretation, e)
	return c
}

func (e *Entry) addUse(interpretation int, as *Entry) {
	e.Uses = append(e.Uses, limit.Use{Interpretation: interpretation, DryRun: as.DryRun, Costs: as.Costs})
}

// merge makes another interpretation's entry part of one that forInterpretation has returned.
func (e *Entry) merge(interpretation int, o *Entry) {
	e.Limit.Merge(&o.Limit)
	e.addUse(interpretation, o)
	e.Settler = e.Settler.combine(o.Settler)
}

// combine returns the Settler of a charge that two interpretations make. nil settles nothing.
func (s *Settler) combine(o *Settler) *Settler {
	if s == o {
		return s
	}
	each := []*Settler{s}
	if s != nil && s.perInterpretation != nil {
		each = slices.Clip(s.perInterpretation)
	}
	return &Settler{perInterpretation: append(each, o)}
}

// FinalCost returns what a charge costs in the end, or a negative number to leave it as it is. ask
// returns the final cost by one WithSettle. If the interpretations that make the charge disagree, the result
// is their highest cost, and atLeast: the charge must not become cheaper than it was.
func (s *Settler) FinalCost(ask func(*Settler) int64) (cost int64, atLeast bool) {
	if s.perInterpretation == nil {
		return ask(s), false
	}
	cost = -1
	for i, one := range s.perInterpretation {
		said := int64(-1)
		if one != nil {
			said = ask(one)
		}
		atLeast = atLeast || i > 0 && said != cost
		cost = max(cost, said)
	}
	return cost, atLeast
}
