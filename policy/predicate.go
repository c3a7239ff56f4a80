package policy

import (
	"maps"
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

const predicateExample = "[preflight, {cidr: [10.0.0.0/8]}]"

// predicate is the option that an entry makes in skip, and the one that it makes in block.
type predicate struct {
	skip  stint.SharedOption
	block stint.Option
}

func predicateOf[P func(*http.Request) bool | stint.Predicate](p P) predicate {
	return predicate{stint.WithSkip(p), stint.WithBlock(p)}
}

// predicateForms are the predicates that take a value.
var predicateForms = []field[predicate]{
	{"cidr", func(d *decoder, n *yaml.Node, to *predicate) {
		networks := d.networks(n, "cidr")
		if networks == nil {
			return
		}
		in := stint.FromCIDR(networks...)
		if !d.reports(n, "cidr", probe, stint.WithSkip(in)) {
			*to = predicateOf(in)
		}
	}},
}

// predicates reads which requests skip or block applies to.
func (d *decoder) predicates(n *yaml.Node, what string) (all []predicate) {
	items, _ := d.list(n, what, predicateExample)
	for _, item := range items {
		if p := d.predicate(item, what); p.skip != nil {
			all = append(all, p)
		}
	}
	return all
}

func (d *decoder) predicate(n *yaml.Node, what string) (p predicate) {
	if n.Kind != yaml.ScalarNode {
		object(d, n, "an entry of "+what, predicateExample, predicateForms, &p)
		if p.skip == nil && len(n.Content) == 0 {
			d.bad(n, "an empty entry of %s: write some of %s", what, predicateExample)
		}
		return p
	}
	if n.Value == "preflight" {
		return predicateOf(stint.Preflight)
	}
	if f := d.with.predicates[n.Value]; f != nil {
		p = predicateOf(f)
	} else {
		known := append(slices.Sorted(maps.Keys(d.with.predicates)), "preflight", "{cidr: [...]}")
		d.unknown(n, "unknown entry %q of %s: %s; predicates of the application are registered with policy.WithPredicate", n.Value, what, choose(n.Value, known))
	}
	return p
}
