package read

import (
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/stint-go/stint/internal/routing"
)

// A request is held to layers: its limiter's own limits, and those of the routes that match it. A
// layer may say that nothing less specific applies, and what the request costs. So a plan is made of
// layers, from the most specific to the least:
//
//	the routes of the limiter that match, those with a host first
//	the limiter's own limits
//	the same of the limiter that it extends by With
//
// Patterns for one host that match a request are a chain (Router.Chains), so the plan of each is
// made beforehand. A request that matches a pattern with a host and one without has a plan made of
// both, when it is first asked for.

// Layer is what a route says, or a limiter beside its routes. Once the plans are built, it is
// immutable.
type Layer struct {
	Entries []*Entry // the limits that are written there
	Funcs   []*Func
	Cost    *Cost // nil: not said
	Only    bool  // nothing less specific applies
	// DenyHandler answers the requests that a limit denies, or is nil. Only says nothing about it.
	DenyHandler http.Handler
}

// Cost is what a route's requests cost the limits that have no cost of their own.
type Cost struct {
	Func  func(*http.Request) int64
	Fixed int64 // as in Entry
}

// Level is what New or one With has said.
type Level struct {
	Base   *Layer
	Routes map[string]*Layer // by their patterns
}

// chains are how patterns follow each other, and the plans of two of them.
type chains struct {
	patterns  []string
	byPattern [][]int
	below     map[string][]int  // the numbers of each pattern and of those that are more specific
	pairs     sync.Map          // of routing.Match: *Plan. There are no more than patterns say.
	replace   func(*Plan) *Plan // of Map, or nil
}

// Build makes the plans of the levels, of which the last is the limiter's. The patterns are those of
// the Router, or none.
func (p *Plans) Build(levels []Level, patterns []string) {
	p.Levels, p.chains = levels, &chains{patterns: patterns}
	if len(patterns) > 0 {
		p.chains.byPattern = p.Router.Chains()
		p.chains.below = make(map[string][]int, len(patterns))
		for i, chain := range p.chains.byPattern {
			for _, n := range chain {
				p.chains.below[patterns[n]] = append(p.chains.below[patterns[n]], i)
			}
		}
	}
	p.Base = p.plan(nil)
	p.Routes = make([]*Plan, len(patterns))
	for i := range patterns {
		p.Routes[i] = p.plan(p.chains.byPattern[i])
	}
	p.DenyHandlers = slices.ContainsFunc(p.Routes, func(q *Plan) bool { return q.DenyHandler != nil })
	for i, q := range p.Routes {
		for _, n := range p.chains.byPattern[i][1:] {
			q.alsoMatched = append(q.alsoMatched, p.Routes[n])
		}
	}
}

// Map returns the plans with each replaced.
func (p *Plans) Map(to func(*Plan) *Plan) Plans {
	q := *p
	q.Base, q.Routes = to(p.Base), make([]*Plan, len(p.Routes))
	for i, plan := range p.Routes {
		q.Routes[i] = to(plan)
	}
	q.chains = &chains{patterns: p.chains.patterns, byPattern: p.chains.byPattern, below: p.chains.below, replace: to}
	return q
}

// Patterns returns those of the routes.
func (p *Plans) Patterns() []string { return p.chains.patterns }

// plan makes the plan of a chain of patterns.
func (p *Plans) plan(chain []int) *Plan {
	all := p.layers(chain)
	var entries []*Entry
	var funcs []*Func
	var cost *Cost
	for _, l := range all {
		if cost = l.Cost; cost != nil {
			break
		}
	}
	for _, l := range slices.Backward(all) {
		for _, e := range l.Entries {
			if l.Cost != cost {
				e = e.withCost(cost)
			}
			entries = append(entries, e)
		}
		funcs = append(funcs, l.Funcs...)
	}
	pattern := ""
	if len(chain) > 0 {
		pattern = p.chains.patterns[chain[0]]
	}
	made := NewPlan(pattern, entries, funcs)
	made.Cost = cost
	made.DenyHandler = p.denyHandler(chain)
	for _, l := range p.Levels {
		if layer := l.layer(pattern); layer != nil {
			made.Declared = append(made.Declared, layer.Entries...)
		}
	}
	return made
}

// denyHandler returns that of the most specific route of a chain that has one, or nil.
func (p *Plans) denyHandler(chain []int) http.Handler {
	for _, n := range chain {
		for _, l := range slices.Backward(p.Levels) {
			if layer := l.Routes[p.chains.patterns[n]]; layer != nil && layer.DenyHandler != nil {
				return layer.DenyHandler
			}
		}
	}
	return nil
}

// layers returns those of a chain of patterns.
func (p *Plans) layers(chain []int) (all []*Layer) {
	for _, l := range slices.Backward(p.Levels) {
		for _, n := range append(slices.Clip(chain), -1) {
			layer := l.Base
			if n >= 0 {
				layer = l.Routes[p.chains.patterns[n]]
			}
			if layer == nil {
				continue
			}
			if all = append(all, layer); layer.Only {
				return all
			}
		}
	}
	return all
}

func (l *Level) layer(pattern string) *Layer {
	if pattern == "" {
		return l.Base
	}
	return l.Routes[pattern]
}

// Below returns the plans of a route's pattern and of the more specific ones, with their numbers, or all plans
// for "".
func (p *Plans) Below(pattern string) iter.Seq2[int, *Plan] {
	return func(yield func(int, *Plan) bool) {
		if pattern == "" {
			for i, plan := range p.All() {
				if !yield(i-1, plan) {
					return
				}
			}
			return
		}
		for _, i := range p.chains.below[pattern] {
			if !yield(i, p.Routes[i]) {
				return
			}
		}
	}
}

// Applies reports whether a layer applies to requests that match a route and those that are less
// specific.
func (p *Plans) Applies(l *Layer, route int) bool {
	return slices.Contains(p.layers(p.chains.byPattern[route]), l)
}

// Holds reports whether what a route says holds for requests that match another one, or the same.
func (p *Plans) Holds(route, matching int) bool {
	all := p.layers(p.chains.byPattern[matching])
	return slices.ContainsFunc(p.Levels, func(l Level) bool {
		layer := l.Routes[p.chains.patterns[route]]
		return layer != nil && slices.Contains(all, layer)
	})
}

// ofMatch returns the plan of a match.
func (p *Plans) ofMatch(m routing.Match) *Plan {
	switch none := len(p.Routes); {
	case m.Pattern == none:
		return p.Base
	case m.Beside == none:
		return p.Routes[m.Pattern]
	}
	if made, ok := p.chains.pairs.Load(m); ok {
		return made.(*Plan)
	}
	with, without := p.Routes[m.Pattern], p.Routes[m.Beside]
	made := p.plan(slices.Concat(p.chains.byPattern[m.Pattern], p.chains.byPattern[m.Beside]))
	if made.repeats() { // a limit that is written in both
		made = combine(with.Pattern, with, without)
	} else if p.chains.replace != nil {
		made = p.chains.replace(made)
	}
	made.Pattern = strings.Join([]string{with.Pattern, without.Pattern}, ", ")
	made.alsoMatched = []*Plan{with, without}
	kept, _ := p.chains.pairs.LoadOrStore(m, made)
	return kept.(*Plan)
}

// repeats reports whether the plan has a limit twice.
func (p *Plan) repeats() bool {
	for i, e := range p.Entries {
		if slices.ContainsFunc(p.Entries[:i], func(o *Entry) bool { return o.StoreLimit == e.StoreLimit }) {
			return true
		}
	}
	return false
}

// withCost returns the entry as it is for requests of a route that sets their cost.
func (e *Entry) withCost(cost *Cost) *Entry {
	if cost == nil || !e.TakesRouteCost {
		return e
	}
	changed := e.copy()
	changed.Cost, changed.Fixed, changed.Costs = cost.Func, cost.Fixed, true
	return changed
}

// copy returns a copy of the entry, which records what happens with it.
func (e *Entry) copy() *Entry {
	c := &Entry{Key: e.Key, Sample: e.Sample, Cost: e.Cost, Fixed: e.Fixed, TakesRouteCost: e.TakesRouteCost,
		Settler: e.Settler, Bytes: e.Bytes, Tenant: e.Tenant, Skip: e.Skip, SkipEmpty: e.SkipEmpty}
	e.CopyTo(&c.Limit)
	return c
}

// ChargeReturned adds the charge of a limit that a function has returned.
func (q *Reading) ChargeReturned(e *Entry) error {
	if q.readAll {
		q.addPeek(e)
		return nil
	}
	if q.Plan != nil {
		e = e.withCost(q.Plan.Cost)
	}
	return q.Charge(e)
}
