package policy

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
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

func predicateOf(match func(*http.Request) bool) predicate {
	return predicate{stint.WithSkip(match), stint.WithBlock(match)}
}

// addressEntry is an entry for addresses: the key that reads them, and the networks.
type addressEntry struct {
	key, at *yaml.Node
	cidr    []netip.Prefix
}

var addressEntryForms = []field[addressEntry]{
	{"key", func(_ *decoder, n *yaml.Node, to *addressEntry) { to.key = n }},
	{"cidr", func(d *decoder, n *yaml.Node, to *addressEntry) { to.at, to.cidr = n, d.networks(n, "cidr") }},
}

// predicates reads the entries of skip or block.
func (d *decoder) predicates(n *yaml.Node, what string) (all []predicate) {
	d.checkServed(n, what)
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
		return d.addressPredicate(n, what)
	}
	if n.Value == "preflight" {
		return predicateOf(stint.Preflight)
	}
	if f := d.config.predicates[n.Value]; f != nil {
		p = predicateOf(f)
	} else {
		candidates := append(slices.Sorted(maps.Keys(d.config.predicates)), "preflight", "{cidr: [...]}")
		d.unknown(n, "unknown entry %q of %s: %s; predicates of the application are registered with policy.WithPredicate",
			n.Value, what, suggestion(n.Value, candidates))
	}
	return p
}

// addressPredicate reads an entry for addresses. Without a key, they are those of connections.
func (d *decoder) addressPredicate(n *yaml.Node, what string) (p predicate) {
	var f addressEntry
	before := len(d.errs)
	object(d, n, "an entry of "+what, predicateExample, addressEntryForms, &f)
	key := stint.RemoteIP()
	if f.key != nil {
		key = d.key(f.key)
	}
	if len(d.errs) > before {
		return p
	}
	if f.at == nil {
		d.bad(n, "an entry of %s without networks: write entries such as %s", what, predicateExample)
		return p
	}
	if _, problem := keyIn(key, anywhere); problem != nil {
		d.bad(f.key, "the key of an entry of %s must be an address: write remote-ip or {forwarded-ip: {trusted: [...]}}", what)
		return p
	}
	in, problem := keyIn(key, f.cidr)
	if problem != nil {
		d.bad(f.at, "%s", inFileWords("cidr", *problem))
		return p
	}
	return predicateOf(in)
}

// anywhere is a network that is right.
var anywhere = []netip.Prefix{netip.MustParsePrefix("::/0")}

// keyIn is key.In. It returns the problem instead of panicking.
func keyIn(key stint.Key, networks []netip.Prefix) (in func(*http.Request) bool, problem *stint.OptionError) {
	defer func() {
		if v, ok := recover().(error); ok && !errors.As(v, &problem) {
			panic(v)
		}
	}()
	return key.In(networks...), nil
}
