package policy_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint/policy"
)

func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(policy.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// value is a document as an editor sees it: YAML turned into JSON's values.
func value(text string) (any, error) {
	var v any
	if err := yaml.Load([]byte(text), &v); err != nil {
		return nil, err
	}
	return withoutTimes(v), nil
}

// withoutTimes returns a value with its dates as text, as JSON has them.
func withoutTimes(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case map[string]any:
		for k := range v {
			v[k] = withoutTimes(v[k])
		}
	case []any:
		for i := range v {
			v[i] = withoutTimes(v[i])
		}
	}
	return v
}

func TestSchemaTakesWhatParseTakes(t *testing.T) {
	s := compiled(t)
	for _, doc := range documents {
		v, err := value(doc.text)
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("%s: %v", doc.name, err)
		}
	}
}

// For each mistake, whether an editor shows it.
func TestSchemaSeesMistakes(t *testing.T) {
	s := compiled(t)
	for _, tt := range mistakes {
		v, err := value(tt.text)
		if err != nil {
			if tt.schema {
				t.Errorf("%s: not a document: %v", tt.name, err)
			}
			continue
		}
		if err := s.Validate(v); (err != nil) != tt.schema && v != nil {
			t.Errorf("%s: the schema says %v, want a rejection: %t", tt.name, err, tt.schema)
		}
	}
}

// Documents are changed at random: whatever Parse accepts, the schema accepts, so what
// the schema rejects, Parse rejects.
func TestMutations(t *testing.T) {
	s := compiled(t)
	random := rand.New(rand.NewPCG(3, 4))
	some := func() any {
		values := []any{nil, true, 0, 1, -1, 1.5, "", "x", "a b", "global", "1_0", "5s", "1/s", "1/daily", "rate", []any{}, []any{"x"}, map[string]any{}, map[string]any{"rate": "1/1s"}}
		return values[random.IntN(len(values))]
	}
	var names []string
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				names = append(names, k)
				collect(e)
			}
		case []any:
			for _, e := range v {
				collect(e)
			}
		}
	}
	for _, doc := range documents {
		v, err := value(doc.text)
		if err != nil {
			t.Fatal(err)
		}
		collect(v)
	}
	slices.Sort(names)

	var mutate func(v any, depth int) any
	mutate = func(v any, depth int) any {
		if random.IntN(6) == 0 && depth > 0 {
			return some()
		}
		switch v := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			if len(keys) == 0 || random.IntN(8) == 0 {
				v[names[random.IntN(len(names))]] = some()
				return v
			}
			k := keys[random.IntN(len(keys))]
			if e := v[k]; random.IntN(8) == 0 {
				delete(v, k)
			} else {
				v[k] = mutate(e, depth+1)
			}
		case []any:
			if len(v) > 0 {
				i := random.IntN(len(v))
				v[i] = mutate(v[i], depth+1)
			}
		default:
			return some()
		}
		return v
	}
	taken, rejected, both := 0, 0, 0
	for i := range 1500 {
		v, err := value(documents[i%len(documents)].text)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + random.IntN(2) {
			v = mutate(v, 0)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		_, bad := policy.Parse("p.json", text, registered...)
		wrong := s.Validate(again)
		switch {
		case bad == nil && wrong != nil:
			t.Fatalf("Parse takes what the schema rejects:\n%s\n%v", text, wrong)
		case bad == nil:
			taken++
		case wrong == nil:
			rejected++
		default:
			both++
		}
	}
	t.Logf("%d taken, %d rejected by Parse alone, %d by both", taken, rejected, both)
	if taken == 0 || both == 0 {
		t.Error("too little was tried")
	}
}

// Every field has a description, which editors show.
func TestSchemaDescribesEveryField(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(policy.Schema(), &root); err != nil {
		t.Fatal(err)
	}
	defs := root["$defs"].(map[string]any)
	seen := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				for name, p := range properties {
					p, ok := p.(map[string]any)
					if !ok { // false: doesn't go with it
						continue
					}
					seen++
					ref, _ := p["$ref"].(string)
					def, _ := defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
					if p["description"] == nil && (def == nil || def["description"] == nil) {
						t.Errorf("%s/%s has no description", at, name)
					}
				}
			}
			for k, e := range v {
				if k != "dependentSchemas" { // of fields that are described elsewhere
					walk(at+"/"+k, e)
				}
			}
		case []any:
			for _, e := range v {
				walk(at, e)
			}
		}
	}
	walk("", root)
	if seen < 40 {
		t.Errorf("%d fields seen", seen)
	}
}
