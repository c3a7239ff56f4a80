package compile

import (
	"maps"
	"strconv"
	"sync/atomic"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// Registry is which limit has which name now, among a limiter and all limiters derived from
// it.
type Registry struct {
	Adaptive *adaptive.Keys // the limits of this process
	names    atomic.Pointer[Names]
}

// NewRegistry returns a registry without limits.
func NewRegistry(all *adaptive.Keys) *Registry {
	g := &Registry{Adaptive: all}
	n := new(Names)
	n.now.Store(newNaming())
	g.names.Store(n)
	return g
}

// Names returns the names that are in force.
func (g *Registry) Names() *Names { return g.names.Load() }

// Put puts names in force.
func (g *Registry) Put(n *Names) { g.names.Store(n) }

// Names is which limit has which name from one Update to the next. With adds to it.
type Names struct{ now atomic.Pointer[Naming] }

// NewNames returns names that Put will put in force.
func NewNames() *Names { return new(Names) }

// Now returns the naming that is in force.
func (n *Names) Now() *Naming { return n.now.Load() }

// Put puts a naming in force.
func (n *Names) Put(now *Naming) {
	now.before, now.earlier = nil, nil
	n.now.Store(now)
}

// Naming holds the rules of names, and the store's limits of the rules. What readers can
// see of it is never modified.
type Naming struct {
	rules  map[string]*Rule
	limits map[*Rule]*store.Limit
	// before are the limits before the Update that is being made, by name.
	before map[string]*store.Limit
	// looks are at the requests with each key in use; earlier are those before the Update that
	// is being made.
	looks, earlier map[*keys.Key]*warn.Look
}

func newNaming() *Naming {
	return &Naming{rules: map[string]*Rule{}, limits: map[*Rule]*store.Limit{}, looks: map[*keys.Key]*warn.Look{}}
}

// Look returns the look at the requests with a key, or nil if no limit has it.
func (n *Naming) Look(k *keys.Key) *warn.Look { return n.looks[k] }

// look returns the look at a key that a limit has, or nil for none.
func (n *Naming) look(k *keys.Key) *warn.Look {
	l := n.looks[k]
	if l != nil || k == nil {
		return l
	}
	if l = n.earlier[k]; l == nil {
		l = warn.NewLook(k.Signs)
	}
	n.looks[k] = l
	return l
}

// Clone returns a copy to work on: a New or With that fails leaves no names behind.
func (n *Naming) Clone() *Naming {
	return &Naming{rules: maps.Clone(n.rules), limits: maps.Clone(n.limits), looks: maps.Clone(n.looks)}
}

// Next returns a copy to work on for an Update, with only the rules that configs still use,
// and with all of n's limits as before.
func (n *Naming) Next(configs []*Config) *Naming {
	used := map[*Rule]bool{}
	for _, c := range configs {
		for _, u := range c.uses() {
			used[u.rule] = true
		}
	}
	next := newNaming()
	next.before, next.earlier = make(map[string]*store.Limit, len(n.rules)), n.looks
	for name, r := range n.rules {
		l := n.limits[r]
		next.before[name] = l
		if used[r] {
			next.rules[name], next.limits[r] = r, l
		}
	}
	return next
}

// name returns the name of a rule, even of one without a limit.
func (n *Naming) name(r *Rule) string {
	for name, other := range n.rules {
		if other == r {
			return name
		}
	}
	return r.Spec.Name
}

// Gone returns the names of the limits of this process that next has no more.
func (n *Naming) Gone(next *Naming) map[string]bool {
	gone := map[string]bool{}
	has := func(n *Naming, name string) bool {
		l := n.limits[n.rules[name]]
		return l != nil && inside.Decider(l) != nil
	}
	for name := range n.rules {
		if has(n, name) && !has(next, name) {
			gone[name] = true
		}
	}
	return gone
}

// assign gives rules their names, in their order. Names by WithName come before defaults,
// which give way. taken has the indices of rules whose own name another rule has.
func (n *Naming) assign(rules []*Rule) (names []string, taken []int) {
	names = make([]string, len(rules))
	for i, r := range rules {
		name := r.Spec.Name
		names[i] = name
		if !r.Named {
			continue
		}
		if n.rules[name] != nil {
			taken = append(taken, i)
		}
		n.rules[name] = r
	}
	for i, r := range rules {
		if r.Named {
			continue
		}
		for k := 2; n.rules[names[i]] != nil; k++ {
			names[i] = r.Spec.Name + "-" + strconv.Itoa(k)
		}
		n.rules[names[i]] = r
	}
	return names, taken
}

// heir returns the rule that a limit has now: the one that has its name, or nil if there is
// none, or if it is of another kind or algorithm: then it is a different limit.
func (n *Naming) heir(of *limit.Limit) *Rule {
	r := n.rules[of.Limit.Name()]
	l := n.limits[r]
	if l == nil || l.Algorithm() != of.Limit.Algorithm() || r.Kind != of.Kind {
		return nil
	}
	return r
}

// Newest returns what a limit has become, for a call that was decided by it and asks again. It
// returns the limit itself if it has no heir, or if the store counts by the same numbers. What
// the store and the line count by is the heir's: numbers, slots, shares. What was said to the
// call stays: whether it is a dry run, its failure policy, how long it waits, and in how long a
// line.
func (g *Registry) Newest(of *limit.Limit) *limit.Limit {
	n := g.Names().Now()
	r := n.heir(of)
	l := n.limits[r]
	if l == nil || l == of.Limit {
		return of
	}
	next := new(limit.Limit)
	g.apply(next, r, l, Settings{DryRun: of.DryRun})
	next.Closed, next.Costs, next.Uses, next.Record = of.Closed, of.Costs, of.Uses, of.Record
	next.Needs |= of.Needs
	next.Terms.MaxWait = of.Terms.MaxWait
	if next.Terms.Way == waiting.ForSlot {
		next.Terms.Room = of.Terms.Room
	}
	return next
}

// sharesOf returns what returns the shares of a limit as it now is: an Update may change
// them. own is its rule, for as long as there is no other.
func (g *Registry) sharesOf(own *Rule, of *limit.Limit) func() *waiting.Shares {
	return func() *waiting.Shares {
		if r := g.Names().Now().heir(of); r != nil {
			return r.Line.Shares
		}
		return own.Line.Shares
	}
}
