package memory_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/store"
)

// done is a call of a store that is over: what it was, and what it answered.
type done struct {
	steps.Span
	verb    verb
	charges []store.Charge
	results []store.Result
}

type verb int

const (
	took verb = iota
	settled
	forgot
)

func (d *done) String() string {
	s := [...]string{"take", "settle", "reset"}[d.verb]
	for i, c := range d.charges {
		s += fmt.Sprintf(" %s %d", c.Key, c.Cost)
		if d.verb != forgot {
			r := d.results[i]
			s += fmt.Sprintf(" (ok: %t, remaining %d, at %d)", r.OK, r.Remaining, r.Receipt.Instant)
		}
	}
	return fmt.Sprint(s, ", clock ", d.Clock)
}

// place is where a state is kept: of a limit and a key, or, where there was no room for
// the key, of a limit alone.
type place struct {
	limit *store.Limit
	key   string
}

// seen is a state of a place.
type seen struct {
	place
	numbers       algorithm.Numbers
	a, b, c, d, e int64
	log           string
}

// sequential is the state of a store that decides one call after the other.
type sequential struct {
	states map[place]store.State
	// since is the first instant at which a place was in a state. Nothing is decided on a
	// state at an earlier one.
	since map[seen]int64
}

func (q sequential) clone() sequential {
	return sequential{maps.Clone(q.states), maps.Clone(q.since)}
}

// serial says whether the calls can have been made one after the other: each at an
// instant that it read from the clock, in an order in which none comes before one that
// had ended when it began, and each answered as it was. With full, keys may have found no
// room that there is nothing to be told of.
func serial(calls []*done, full bool) bool {
	return sequential{map[place]store.State{}, map[seen]int64{}}.goesOn(calls, full)
}

func (q sequential) goesOn(calls []*done, full bool) bool {
	if len(calls) == 0 {
		return true
	}
	for i, d := range calls {
		if slices.ContainsFunc(calls, func(e *done) bool { return e.Ended < d.Began }) {
			continue
		}
		rest := slices.Delete(slices.Clone(calls), i, i+1)
		if d.verb == forgot {
			next := q.clone()
			for _, c := range d.charges {
				delete(next.states, place{c.Limit, c.Key})
			}
			if next.goesOn(rest, full) {
				return true
			}
			continue
		}
		for _, at := range d.Clock {
			for _, in := range q.places(d, at, full) {
				if next := q.clone(); next.apply(d, at, in) && next.goesOn(rest, full) {
					return true
				}
			}
		}
	}
	return false
}

// places are where a call's states may be kept.
func (q sequential) places(d *done, at int64, full bool) [][]place {
	all := [][]place{nil}
	for i := range d.charges {
		c := &d.charges[i]
		own, shared := place{c.Limit, c.Key}, place{limit: c.Limit}
		var may []place
		switch {
		case d.verb == settled && inShared(&c.Receipt):
			may = []place{shared}
		case full && q.over(own, at):
			may = []place{own, shared}
		default:
			may = []place{own}
		}
		var more [][]place
		for _, in := range all {
			for _, p := range may {
				more = append(more, append(slices.Clone(in), p))
			}
		}
		all = more
	}
	return all
}

// over says whether a place is as if never seen.
func (q sequential) over(p place, at int64) bool {
	s, is := q.states[p]
	if !is {
		return true
	}
	states, r := []store.State{s}, make([]store.Result, 1)
	store.Decide(store.Now{Steady: at}, []store.Charge{{Limit: p.limit}}, states, r)
	return p.limit.Lifetime(store.Now{Steady: at}, &states[0], &r[0]) == 0
}

func inShared(r *store.Receipt) bool { return r.Lease[len(r.Lease)-1] == 1 }

// apply makes a call at an instant on the states of some places, and says whether it is
// answered as it was.
func (q sequential) apply(d *done, at int64, in []place) bool {
	now := store.Now{Steady: at}
	states := make([]store.State, len(in))
	results := make([]store.Result, len(in))
	for i := range in {
		states[i] = q.states[in[i]]
		inside.State(&states[i]).Log = slices.Clone(inside.State(&states[i]).Log)
		if at < q.since[in[i].seen(&states[i])] {
			return false
		}
		if r := &d.results[i].Receipt; in[i].limit.Algorithm() == store.Concurrency && r.Cost > 0 {
			now.Lease = r.Lease // they have to differ, and no more
			now.Lease[len(now.Lease)-1] = 0
		}
	}
	if d.verb == took {
		store.Decide(now, d.charges, states, results)
	} else {
		store.Amend(now, &d.charges[0], &states[0], &results[0])
	}
	for i := range in {
		if r := &results[i].Receipt; in[i].key == "" && (r.Cost > 0 || d.verb == settled) {
			r.Lease[len(r.Lease)-1] = 1
		}
	}
	if !slices.Equal(results, d.results) {
		return false
	}
	for i := range in {
		q.keep(in[i], states[i], at)
	}
	return true
}

func (q sequential) keep(p place, s store.State, at int64) {
	if !inside.State(&s).Live {
		delete(q.states, p)
		return
	}
	q.states[p] = s
	state := p.seen(&s)
	if _, known := q.since[state]; !known {
		q.since[state] = at
	}
}

func (p place) seen(s *store.State) seen {
	is := inside.State(s)
	k := seen{place: p, numbers: is.Numbers, a: is.W[0], b: is.W[1], c: is.W[2], d: is.W[3], e: is.W[4]}
	if len(is.Log) > 0 {
		k.log = fmt.Sprint(is.Log)
	}
	return k
}
