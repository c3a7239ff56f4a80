package policy

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// node is a schema, or a part of it.
type node map[string]any

func (n node) at(t *testing.T, path ...any) node {
	t.Helper()
	var v any = map[string]any(n)
	for _, step := range path {
		switch step := step.(type) {
		case string:
			v = v.(map[string]any)[step]
		case int:
			v = v.([]any)[step]
		}
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("no schema at %v", path)
	}
	return m
}

func texts(v any) (all []string) {
	for _, e := range v.([]any) {
		all = append(all, e.(string))
	}
	return all
}

// sayings are example values of each field of a limit, but those that are a kind, and
// dry-run, which goes with all.
func sayings(t *testing.T) (all []placedOption) {
	values := map[string]string{
		"name": "a", "key": "global", "cost": "2", "settle": "failed-only", "max-wait": "1s", "near-limit": "[80]", "failure": "open", "empty-key": "skip", "skip": "[preflight]",
		"algorithm": "fixed-window", "burst": "1", "direction": "both", "queue": "1",
		"shares": "[{class: 1, percent: 1}]", "fair-queue": "{header: X-Tenant}", "buckets": "2", "warm-up": "1s", "debt": "true", "hidden": "true",
		"after":      "true",
		"adaptation": "vegas", "initial-limit": "1", "sample-window": "1s", "in": "UTC", "from": "2026-01-31T09:00:00Z", "for": "1h",
	}
	c, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range limitFields() {
		if f.name == "dry-run" || slices.ContainsFunc(kinds, func(k kind) bool { return k.name == f.name }) {
			continue
		}
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(values[f.name]), &doc); err != nil || len(doc.Content) != 1 {
			t.Fatalf("write a value for the field %s here: %v", f.name, err)
		}
		d := &decoder{config: c, namedKeys: map[string]*namedKey{}, settles: map[string]stint.ChargeOption{}}
		if f.name == "after" { // it goes with a domain
			d.domain, c.descriptors = "shop", &Descriptors{ChargesAfter: func(*http.Request) bool { return false }}
		}
		var l limit
		f.read(d, doc.Content[0], &l)
		said := l.allOptions()
		if len(said) != 1 || d.err() != nil {
			t.Fatalf("%s: %v", f.name, d.err())
		}
		all = append(all, said...)
	}
	return all
}

// TestSchemaAndDecoderAgree walks both: each mapping has the same fields, and
// each word the same choices.
func TestSchemaAndDecoderAgree(t *testing.T) {
	var root node
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	same := func(what string, schema, decoder []string) {
		t.Helper()
		slices.Sort(schema)
		slices.Sort(decoder)
		if !slices.Equal(schema, decoder) {
			t.Errorf("%s: the schema has %q, the decoder %q", what, schema, decoder)
		}
	}
	objects := 0
	object := func(what string, decoder []string, path ...any) {
		t.Helper()
		n := root.at(t, path...)
		if n["additionalProperties"] != false {
			t.Errorf("%s: the schema takes any field", what)
		}
		same(what, slices.Collect(maps.Keys(n.at(t, "properties"))), decoder)
		objects++
	}
	object("a policy", names(documentFields()))
	object("a limit", names(limitFields()), "$defs", "limit", "anyOf", 1)
	object("a route", names(routeFields(nil)), "$defs", "route")
	object("a plan", names(planFields(nil)), "$defs", "plan")
	object("a key", names(keyForms()), "$defs", "key", "anyOf", 2)
	object("remote-ip", names(addressFieldsOf("", false)), "$defs", "key", "anyOf", 2, "properties", "remote-ip")
	object("forwarded-ip", names(addressFieldsOf("X", false)), "$defs", "forwarded")
	object("single-ip-header", names(addressFieldsOf("", true)), "$defs", "key", "anyOf", 2, "properties", "single-ip-header")
	object("a share", names(shareFields), "$defs", "limit", "anyOf", 1, "properties", "shares", "items")
	object("adaptation", names(adaptationForms), "$defs", "limit", "anyOf", 1, "properties", "adaptation", "anyOf", 1)
	object("settle", names(settleForms), "$defs", "settle", "anyOf", 2)
	object("a predicate", names(addressEntryForms), "$defs", "predicate", "anyOf", 2)

	// And there is no mapping of fixed fields that has been left out.
	var count func(v any) int
	count = func(v any) (n int) {
		switch v := v.(type) {
		case map[string]any:
			if v["additionalProperties"] == false {
				n++
			}
			for _, e := range v {
				n += count(e)
			}
		case []any:
			for _, e := range v {
				n += count(e)
			}
		}
		return n
	}
	if n := count(map[string]any(root)); n != objects {
		t.Errorf("the schema has %d mappings of fixed fields, %d were compared", n, objects)
	}

	// What goes with which kind.
	limit := root.at(t, "$defs", "limit", "anyOf", 1)
	said := sayings(t)
	if branches := limit["oneOf"].([]any); len(branches) != len(kinds) {
		t.Fatalf("the schema has %d kinds, the decoder %d", len(branches), len(kinds))
	}
	for i, k := range kinds {
		branch := limit.at(t, "oneOf", i)
		required := []string{k.name}
		if k.required != "" {
			needed, _, _ := strings.Cut(k.required, ":")
			required = append(required, needed)
		}
		same("kind", texts(branch["required"]), required)
		var not []string
		for _, other := range kinds {
			if other.name != k.name {
				not = append(not, other.name)
			}
		}
		for _, o := range said {
			if !k.accepts(o) {
				not = append(not, o.field)
			}
		}
		same("fields that don't go with "+k.name, slices.Collect(maps.Keys(branch.at(t, "properties"))), not)
	}

	// Words.
	var algorithmNames, words []string
	for _, a := range algorithms {
		algorithmNames = append(algorithmNames, a.name)
	}
	for w := range keyWords {
		words = append(words, w)
	}
	same("algorithm", texts(limit.at(t, "properties", "algorithm")["enum"]), algorithmNames)
	same("keys", texts(root.at(t, "$defs", "key", "anyOf", 0)["enum"]), slices.Clone(words))
	reserved := append([]string{""}, words...)
	for _, name := range names(keyForms()) {
		if !slices.Contains(reserved, name) {
			reserved = append(reserved, name)
		}
	}
	same("names that a key can't have", texts(root.at(t, "properties", "keys", "propertyNames", "not")["enum"]), reserved)
}
