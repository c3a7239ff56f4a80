package compile

import (
	"maps"
	"strconv"
	"sync/atomic"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/mistakes/keysample"
	"github.com/stint-go/stint/store"
)

// Registry has the present names of the limits of a family: a limiter and all limiters derived from
// it.
type Registry struct {
	Adaptive   *adaptive.Keys // the limits of this process
	generation atomic.Pointer[Generation]
}

// NewRegistry returns a registry without limits.
func NewRegistry(all *adaptive.Keys) *Registry {
	reg := &Registry{Adaptive: all}
	n := new(Generation)
	n.current.Store(newNames())
	reg.generation.Store(n)
	return reg
}

// Generation returns the generation that is in force.
func (reg *Registry) Generation() *Generation { return reg.generation.Load() }

// Put puts a generation in force.
func (reg *Registry) Put(n *Generation) { reg.generation.Store(n) }

// Generation has the names of a family's limits from one Update to the next. Each With replaces them
// by names with its own limits beside them.
type Generation struct{ current atomic.Pointer[Names] }

// NewGeneration returns a generation without names, for Registry.Put.
func NewGeneration() *Generation { return new(Generation) }

// Names returns the present names.
func (n *Generation) Names() *Names { return n.current.Load() }

// Put replaces the names.
func (n *Generation) Put(now *Names) {
	now.before, now.earlierSamples = nil, nil
	n.current.Store(now)
}

// Names has the rule of each name, and the store's limit of each rule. Once a Generation has it, it is
// immutable.
type Names struct {
	rules  map[string]*Rule
	limits map[*Rule]*store.Limit
	// before are the limits before the Update that is being made, by name.
	before map[string]*store.Limit
	// samples are of each key in use; earlierSamples are those before the Update that is being made.
	samples, earlierSamples map[*keys.Key]*keysample.Sample
}

func newNames() *Names {
	return &Names{rules: map[string]*Rule{}, limits: map[*Rule]*store.Limit{}, samples: map[*keys.Key]*keysample.Sample{}}
}

// Sample returns the sample of a key, or nil if no limit has it.
func (n *Names) Sample(k *keys.Key) *keysample.Sample { return n.samples[k] }

// sampleOf returns the sample of a key that a limit has, or nil for none.
func (n *Names) sampleOf(k *keys.Key) *keysample.Sample {
	s := n.samples[k]
	if s != nil || k == nil {
		return s
	}
	if s = n.earlierSamples[k]; s == nil {
		s = keysample.New(k.Signs)
	}
	n.samples[k] = s
	return s
}

// Clone returns a copy to work on: a New or With that fails leaves no names behind.
func (n *Names) Clone() *Names {
	return &Names{rules: maps.Clone(n.rules), limits: maps.Clone(n.limits), samples: maps.Clone(n.samples)}
}

// Next returns a copy to work on for an Update, with only the rules that configs still use,
// and with all of n's limits as before.
func (n *Names) Next(configs []*Config) *Names {
	used := map[*Rule]bool{}
	for _, c := range configs {
		for _, u := range c.uses() {
			used[u.rule] = true
		}
	}
	next := newNames()
	next.before, next.earlierSamples = make(map[string]*store.Limit, len(n.rules)), n.samples
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
func (n *Names) name(r *Rule) string {
	for name, other := range n.rules {
		if other == r {
			return name
		}
	}
	return r.Spec.Name
}

// Gone returns the names of the limits of this process that next has no more.
func (n *Names) Gone(next *Names) map[string]bool {
	gone := map[string]bool{}
	has := func(n *Names, name string) bool {
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
func (n *Names) assign(rules []*Rule) (names []string, taken []int) {
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
	next := map[string]int{} // the lowest number that may be free, by name
	for i, r := range rules {
		if r.Named {
			continue
		}
		k := max(2, next[r.Spec.Name])
		for ; n.rules[names[i]] != nil; k++ {
			names[i] = r.Spec.Name + "-" + strconv.Itoa(k)
		}
		next[r.Spec.Name] = k
		n.rules[names[i]] = r
	}
	return names, taken
}

// successor returns the rule that has the name of a limit now. It returns nil if there is none, or if
// it is of another kind or algorithm: then it is a different limit.
func (n *Names) successor(l *limit.Limit) *Rule {
	r := n.rules[l.StoreLimit.Name()]
	current := n.limits[r]
	if current == nil || current.Algorithm() != l.StoreLimit.Algorithm() || r.Kind != l.Kind {
		return nil
	}
	return r
}

// Current returns the limit that an Update has put in the place of l, for a call that was decided by l
// and asks again. It returns l itself if there is none, or if the store counts by the same numbers.
// The store and the line count by the new numbers, slots and shares. What the call was told stays as
// it is: whether the limit is a dry run, its failure policy, how long the call waits, and in how long
// a line.
func (reg *Registry) Current(l *limit.Limit) *limit.Limit {
	n := reg.Generation().Names()
	r := n.successor(l)
	current := n.limits[r]
	if current == nil || current == l.StoreLimit {
		return l
	}
	next := new(limit.Limit)
	reg.setLimit(next, r, current, Settings{DryRun: l.DryRun, Marks: l.Marks})
	next.Closed, next.Costs, next.NoRefund, next.Record = l.Closed, l.Costs, l.NoRefund, l.Record
	next.Needs |= l.Needs
	next.Wait.MaxWait = l.Wait.MaxWait
	next.Wait.Room, next.Wait.Queues = l.Wait.Room, l.Wait.Queues
	return next
}

// sharesOf returns a function that returns the present shares of a limit, which an Update may change.
// rule is the limit's, unless it has a successor.
func (reg *Registry) sharesOf(rule *Rule, l *limit.Limit) func() *lines.Shares {
	return func() *lines.Shares {
		if r := reg.Generation().Names().successor(l); r != nil {
			return r.Line.Shares
		}
		return rule.Line.Shares
	}
}
