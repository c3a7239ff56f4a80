package read

import (
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/store"
)

// An ambiguous request is one of which package routing finds several interpretations. It is held to the
// plans of all of them:
//
//   - A limit that any of them selects is charged, once for each key, at the highest cost.
//   - Its settings are the strictest: see limit.Limit.Merge.
//   - If two of them settle it by different WithSettles, it is never settled below its charge.
//     Interpretations that don't select it have no say.
//
// A limit that two of them have is copied for the request; nothing else costs anything.

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
		if u.DenyHandler == nil {
			u.DenyHandler = p.DenyHandler
		}
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
	for _, interpretation := range p.interpretations {
		for _, e := range interpretation.Entries {
			if err := q.chargeInInterpretation(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// chargeInInterpretation adds the charge of one limit in an interpretation, or makes it part of the charge that another
// interpretation has made of the limit.
func (q *Reading) chargeInInterpretation(e *Entry) error {
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
		q.entries[i] = q.entries[i].merge(e)
		q.enforced = q.enforced || !e.DryRun
		q.call.Replace(i, &q.entries[i].Limit, max(cost, q.call.Charges[i].Cost))
		return nil
	}
	for i := range q.Paced {
		if p := &q.Paced[i]; p.StoreLimit == e.StoreLimit && p.Key == key {
			p.Entry = p.merge(e)
			q.enforced = q.enforced || !e.DryRun
			q.paces |= p.Needs
			return nil
		}
	}
	return q.charge(e)
}

// costInInterpretations replaces entries, which f has returned, by those of the interpretations whose plan has f. Each
// is charged at the highest cost of these interpretations.
func (q *Reading) costInInterpretations(f *Func, entries []*Entry) error {
	first := len(q.entries) - len(entries)
	for i, e := range entries {
		var merged *Entry
		most := int64(0)
		for _, p := range q.Plan.interpretations {
			if !slices.Contains(p.Funcs, f) {
				continue
			}
			costed := e.withCost(p.Cost)
			cost, err := q.cost(costed)
			if err != nil {
				return err
			}
			if most = max(most, cost); merged == nil {
				merged = costed
			} else {
				merged = merged.merge(costed)
			}
		}
		entries[i] = merged
		q.call.Replace(first+i, &merged.Limit, most)
	}
	return nil
}

// merge returns the entry of a request of which one interpretation has e and another o.
func (e *Entry) merge(o *Entry) *Entry {
	if e == o {
		return e
	}
	merged := e.copy()
	merged.Limit.Merge(&o.Limit)
	if e.Settler != o.Settler {
		merged.Settler, merged.NoRefund = e.Settler.merge(o.Settler), true
	}
	return merged
}

// merge returns the Settler of a charge that two interpretations settle differently. nil settles nothing.
func (s *Settler) merge(o *Settler) *Settler {
	switch {
	case s == nil:
		return o
	case o == nil:
		return s
	}
	return &Settler{func(r *http.Request, status int, written int64) int64 {
		return max(s.Cost(r, status, written), o.Cost(r, status, written))
	}}
}
