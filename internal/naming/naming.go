// Package naming keeps which limit has which name among a limiter and all limiters
// derived from it.
package naming

import (
	"maps"
	"strconv"

	"github.com/stint-go/stint/store"
)

// Rule is a limit's rule, by a pointer: its address is its identity.
type Rule interface {
	// Wish returns the name that the rule gets if no other has it, and whether somebody
	// wrote it. Other names are defaults.
	Wish() (name string, written bool)
}

// Names are the names of rules, and the store's limits of the rules. Names may be read
// concurrently.
type Names struct {
	rules  map[string]Rule
	limits map[Rule]*store.Limit
	// before are the limits of the previous names, by name, until Settled is called.
	before map[string]*store.Limit
}

// New returns Names without a rule.
func New() *Names {
	return &Names{rules: map[string]Rule{}, limits: map[Rule]*store.Limit{}}
}

// Clone returns a copy to work on: a New, With or Update that fails leaves no names
// behind.
func (n *Names) Clone() *Names {
	return &Names{rules: maps.Clone(n.rules), limits: maps.Clone(n.limits)}
}

// Next returns a copy with only the rules that are still used. Before finds the limits
// of all rules of n in it until Settled is called.
func (n *Names) Next(used func(Rule) bool) *Names {
	next := New()
	next.before = make(map[string]*store.Limit, len(n.rules))
	for name, r := range n.rules {
		l := n.limits[r]
		next.before[name] = l
		if used(r) {
			next.rules[name], next.limits[r] = r, l
		}
	}
	return next
}

// Before returns the limit that had the name in the previous names, or nil.
func (n *Names) Before(name string) *store.Limit { return n.before[name] }

// Settled forgets the previous names.
func (n *Names) Settled() { n.before = nil }

// Rule returns the rule of a name, or nil if no rule has it.
func (n *Names) Rule(name string) Rule { return n.rules[name] }

// Name returns the name of a rule, even of one without a limit.
func (n *Names) Name(r Rule) string {
	for name, other := range n.rules {
		if other == r {
			return name
		}
	}
	name, _ := r.Wish()
	return name
}

// Limit returns the limit of a rule: nil if the rule is wrong. known is false if
// SetLimit hasn't been called for the rule.
func (n *Names) Limit(r Rule) (l *store.Limit, known bool) {
	l, known = n.limits[r]
	return l, known
}

// SetLimit sets the limit of a rule, or nil for a rule that is wrong.
func (n *Names) SetLimit(r Rule, l *store.Limit) { n.limits[r] = l }

// Adopt gives a rule the name and the limit that it has in other names, if it has none and
// the name is free.
func (n *Names) Adopt(r Rule, other *Names) {
	l, known := other.limits[r]
	name := other.Name(r)
	if _, has := n.limits[r]; known && !has && n.rules[name] == nil {
		n.rules[name], n.limits[r] = r, l
	}
}

// Gone returns the names of those limits for which which is true and that have none such
// in next.
func (n *Names) Gone(next *Names, which func(*store.Limit) bool) map[string]bool {
	gone := map[string]bool{}
	has := func(n *Names, name string) bool {
		l := n.limits[n.rules[name]]
		return l != nil && which(l)
	}
	for name := range n.rules {
		if has(n, name) && !has(next, name) {
			gone[name] = true
		}
	}
	return gone
}

// Assign gives rules their names, in their order. Names that somebody wrote come before
// defaults, which give way. taken has the indices of rules whose written name another
// rule has.
func (n *Names) Assign(rules []Rule) (names []string, taken []int) {
	names = make([]string, len(rules))
	for i, r := range rules {
		name, written := r.Wish()
		names[i] = name
		if !written {
			continue
		}
		if n.rules[name] != nil {
			taken = append(taken, i)
		}
		n.rules[name] = r
	}
	for i, r := range rules {
		name, written := r.Wish()
		if written {
			continue
		}
		for k := 2; n.rules[names[i]] != nil; k++ {
			names[i] = name + "-" + strconv.Itoa(k)
		}
		n.rules[names[i]] = r
	}
	return names, taken
}
