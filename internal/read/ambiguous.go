package read

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/store"
)

// An ambiguous request is one of which package routing finds several readings. It is held to the
// plans of all of them:
//
//   - A limit that any of them selects is charged, once for each key, at the highest cost.
//   - Its settings are the strictest: see limit.Limit.Merge.
//   - It is refunded only as far as all that select it would refund it: see Settler.Ask, and
//     Permit.Settle of the root.
//
// So it never gets more than by any reading alone, whichever the router behind the limiter
// follows. It pays for that with a copy of each limit; other requests pay nothing.

// union returns the plan of a request that is held to those of several matches.
func (p *Plans) union(matches []routing.Match) *Plan {
	var plans []*Plan
	for _, m := range matches {
		if plan := p.at(m); !plan.exempt() {
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
	return both(strings.Join(names, ", "), plans...)
}

// both returns the plan of requests that are held to several. Its entries are only the first of
// each limit.
func both(pattern string, plans ...*Plan) *Plan {
	u, seen := &Plan{Pattern: pattern, of: plans}, map[*store.Limit]bool{}
	for _, p := range plans {
		if len(p.readings) > 0 {
			u.readings = append(u.readings, p.readings...)
		} else {
			u.readings = append(u.readings, p)
		}
		for _, e := range p.Entries {
			if !seen[e.Limit.Limit] {
				seen[e.Limit.Limit] = true
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

// Readings returns the plans that a request of the plan is held to: itself, or several.
func (p *Plan) Readings() []*Plan {
	if p == nil || len(p.readings) == 0 {
		return []*Plan{p}
	}
	return p.readings
}

// readings makes the charges of an ambiguous request, except those of functions.
func (q *Reading) readings(p *Plan) error {
	for i, reading := range p.readings {
		for _, e := range reading.Entries {
			if err := q.chargeIn(i, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// chargeIn adds the charge of one limit in a reading, or makes it part of the charge that another
// reading has made of the limit.
func (q *Reading) chargeIn(reading int, e *Entry) error {
	if e.Skip != nil && e.Skip(q.R) {
		return nil
	}
	key, err := q.key(e)
	if err != nil {
		return err
	}
	q.know(e.Key, key)
	if i := q.find(e.Limit.Limit, key); i >= 0 {
		cost, err := q.cost(e)
		if err != nil {
			return err
		}
		o := q.entries[i]
		o.merge(reading, e)
		q.enforced = q.enforced || !e.DryRun
		q.call.Replace(i, &o.Limit, max(cost, q.call.Charges[i].Cost))
		return nil
	}
	for i := range q.Paced {
		if p := &q.Paced[i]; p.Limit.Limit == e.Limit.Limit && p.Key == key {
			p.merge(reading, e)
			q.enforced = q.enforced || !e.DryRun
			q.paces |= p.Needs
			return nil
		}
	}
	return q.charge(e.in(reading))
}

// usedBy makes limits that a function has returned those of the readings that have it, at the highest
// cost.
func (q *Reading) usedBy(f *Func, entries []*Entry) error {
	first := len(q.entries) - len(entries)
	for i, e := range entries {
		var own *Entry
		most := int64(0)
		for n, p := range q.Plan.readings {
			if !slices.Contains(p.Funcs, f) {
				continue
			}
			as := e.costing(p.Cost)
			cost, err := q.cost(as)
			if err != nil {
				return err
			}
			if most = max(most, cost); own == nil {
				own = as.in(n)
			} else {
				own.use(n, as)
			}
		}
		entries[i] = own
		q.call.Replace(first+i, &own.Limit, most)
	}
	return nil
}

// in returns the entry as a reading of one request has it.
func (e *Entry) in(reading int) *Entry {
	own := e.copy()
	own.use(reading, e)
	return own
}

func (e *Entry) use(reading int, as *Entry) {
	e.Uses = append(e.Uses, limit.Use{Reading: reading, DryRun: as.DryRun, Costs: as.Costs})
}

// merge makes another reading's entry part of one that in has returned.
func (e *Entry) merge(reading int, o *Entry) {
	e.Limit.Merge(&o.Limit)
	e.use(reading, o)
	e.Settler = e.Settler.and(o.Settler)
}

// and returns what settles a charge that two readings make. nil settles nothing.
func (s *Settler) and(o *Settler) *Settler {
	if s == o {
		return s
	}
	each := []*Settler{s}
	if s != nil && s.each != nil {
		each = slices.Clip(s.each)
	}
	return &Settler{each: append(each, o)}
}

// Ask returns what a charge costs in the end, or a negative number to leave it as it is. ask
// returns the same of one WithSettle. If the readings that make the charge disagree, the cost is
// the highest of what they say, and the charge must not cost less than it does: atLeast.
func (s *Settler) Ask(ask func(*Settler) int64) (cost int64, atLeast bool) {
	if s.each == nil {
		return ask(s), false
	}
	cost = -1
	for i, one := range s.each {
		said := int64(-1)
		if one != nil {
			said = ask(one)
		}
		atLeast = atLeast || i > 0 && said != cost
		cost = max(cost, said)
	}
	return cost, atLeast
}
