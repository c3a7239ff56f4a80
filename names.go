package stint

import (
	"maps"
	"reflect"
	"strconv"
	"sync/atomic"

	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// names is which limit has which name, among a limiter and all limiters derived from it,
// from one Update to the next. With adds to it.
type names struct{ now atomic.Pointer[naming] }

// naming holds the rules of names, and the store's limits of the rules. What readers can
// see of it is never modified.
type naming struct {
	rules  map[string]*rule
	limits map[*rule]*store.Limit
	// before are the limits before the Update that is being made, by name.
	before map[string]*store.Limit
	// sources are what the requests with each key in use have shown; earlier are those
	// before the Update that is being made.
	sources, earlier map[*keys.Key]*warn.Source
}

func newNaming() *naming {
	return &naming{rules: map[string]*rule{}, limits: map[*rule]*store.Limit{}, sources: map[*keys.Key]*warn.Source{}}
}

// source returns the source of a key in use, or nil for none.
func (n *naming) source(k *keys.Key) *warn.Source {
	s := n.sources[k]
	if s != nil || k == nil {
		return s
	}
	if s = n.earlier[k]; s == nil {
		s = warn.NewSource(k.Signs)
	}
	n.sources[k] = s
	return s
}

// clone returns a copy to work on: a New or With that fails leaves no names behind.
func (n *naming) clone() *naming {
	return &naming{rules: maps.Clone(n.rules), limits: maps.Clone(n.limits), sources: maps.Clone(n.sources)}
}

// next returns a copy with only the rules that are still used, and with all of n's limits
// as before.
func (n *naming) next(used map[*rule]bool) *naming {
	next := newNaming()
	next.before, next.earlier = make(map[string]*store.Limit, len(n.rules)), n.sources
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
func (n *naming) name(r *rule) string {
	for name, other := range n.rules {
		if other == r {
			return name
		}
	}
	return r.spec.Name
}

// inherited returns entries for a route with settings s that inherits their limits.
func (n *naming) inherited(entries []*entry, s settings) (all []*entry) {
	for _, e := range entries {
		r := n.rules[e.limit.Name()]
		settled := r.shared.or(s).or(e.settled)
		all = append(all, newEntry(r, e.limit, settled, n.source(settled.key)))
	}
	return all
}

// gone returns the names of those limits for which which is true and that have none such
// in next.
func (n *naming) gone(next *naming, which func(*store.Limit) bool) map[string]bool {
	gone := map[string]bool{}
	has := func(n *naming, name string) bool {
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

// assign gives rules their names, in their order. Names by WithName come before defaults,
// which give way. taken has the indices of rules whose own name another rule has.
func (n *naming) assign(rules []*rule) (names []string, taken []int) {
	names = make([]string, len(rules))
	for i, r := range rules {
		name := r.spec.Name
		names[i] = name
		if !r.named {
			continue
		}
		if n.rules[name] != nil {
			taken = append(taken, i)
		}
		n.rules[name] = r
	}
	for i, r := range rules {
		if r.named {
			continue
		}
		for k := 2; n.rules[names[i]] != nil; k++ {
			names[i] = r.spec.Name + "-" + strconv.Itoa(k)
		}
		n.rules[names[i]] = r
	}
	return names, taken
}

// heir returns the rule that an entry's limit has now: the one that has its name, or nil if
// there is none, or if it is of another kind or algorithm: then it is a different limit.
func (n *naming) heir(e *entry) *rule {
	r := n.rules[e.limit.Name()]
	l := n.limits[r]
	if l == nil || l.Algorithm() != e.limit.Algorithm() || reflect.TypeOf(r.kind) != reflect.TypeOf(e.kind) {
		return nil
	}
	return r
}

// successor returns what the limit of an entry has become: its heir's, with the entry's own
// key, cost and maximum wait. It returns the entry itself if it has no heir, or if the store
// counts by the same numbers.
func (n *naming) successor(e *entry) *entry {
	r := n.heir(e)
	l := n.limits[r]
	if l == nil || l == e.limit {
		return e
	}
	next := newEntry(r, l, settings{key: e.key, cost: e.cost, settle: e.settle, dryRun: e.dryRun}, e.source)
	next.closed, next.wait.MaxWait = e.closed, e.wait.MaxWait
	if e.wait.Way == waiting.ForSlot {
		next.wait.Room = e.wait.Room
	}
	return next
}
