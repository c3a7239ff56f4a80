package serve

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// spec is the OpenAPI file, as far as the tests read it.
type spec struct{ root map[string]any }

func readSpec(t testing.TB) spec {
	t.Helper()
	var s spec
	if err := yaml.Unmarshal(openAPI, &s.root); err != nil {
		t.Fatal(err)
	}
	return s
}

// at returns the value at a path, with references resolved.
func (s spec) at(t testing.TB, from any, path ...string) any {
	t.Helper()
	for _, name := range path {
		m, _ := s.resolve(t, from).(map[string]any)
		if m[name] == nil {
			t.Fatalf("openapi.yaml has no %s in %v", name, path)
		}
		from = m[name]
	}
	return s.resolve(t, from)
}

func (s spec) resolve(t testing.TB, v any) any {
	if m, ok := v.(map[string]any); ok {
		if to, ok := m["$ref"].(string); ok {
			return s.at(t, s.root, strings.Split(strings.TrimPrefix(to, "#/"), "/")...)
		}
	}
	return v
}

// check checks that an answer is one that the file describes.
func (s spec) check(t testing.TB, path string, status int, header http.Header, body []byte) {
	t.Helper()
	response := s.at(t, s.root, "paths", path, "post", "responses", fmt.Sprint(status)).(map[string]any)
	if response["content"] == nil {
		if len(body) > 0 {
			t.Errorf("%s: %d has the body %q, and the file describes none", path, status, body)
		}
		return
	}
	var value any
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Errorf("%s: %d has the body %q: %v", path, status, body, err)
		return
	}
	s.validate(t, fmt.Sprint(path, " ", status), s.at(t, response, "content", header.Get("Content-Type"), "schema"),
		value)
}

// validate checks a value by a schema.
func (s spec) validate(t testing.TB, where string, schema, value any) {
	t.Helper()
	m := s.resolve(t, schema).(map[string]any)
	kind := "null"
	switch v := value.(type) {
	case bool:
		kind = "boolean"
	case string:
		kind = "string"
	case json.Number:
		kind = "integer"
		n, ok := new(big.Int).SetString(v.String(), 10)
		if least, has := m["minimum"].(int); !ok || has && n.Cmp(big.NewInt(int64(least))) < 0 {
			t.Errorf("%s: %v isn't a whole number of at least %v", where, v, m["minimum"])
		}
	case []any:
		kind = "array"
		for i, item := range v {
			s.validate(t, fmt.Sprint(where, " ", i), m["items"], item)
		}
	case map[string]any:
		kind = "object"
		properties, _ := m["properties"].(map[string]any)
		required, _ := m["required"].([]any)
		for name, item := range v {
			if properties[name] == nil {
				t.Errorf("%s: %s isn't in the file", where, name)
				continue
			}
			s.validate(t, where+" "+name, properties[name], item)
		}
		for _, name := range required {
			if _, has := v[name.(string)]; !has {
				t.Errorf("%s: %s is missing", where, name)
			}
		}
	}
	types, many := m["type"].([]any)
	if !many {
		types = []any{m["type"]}
	}
	if !slices.Contains(types, any(kind)) {
		t.Errorf("%s: %v is a %s, and the file says %v", where, value, kind, types)
	}
}

// The handlers have the paths of the file, and take the fields that it describes: all that are required, each of its
// type, and no others.
func TestOpenAPI(t *testing.T) {
	s, file := newReplicaOf(t, nil, tokens+"  - {name: bans, ban: 5/1h, for: 1h}\n"), readSpec(t)
	paths := file.at(t, file.root, "paths").(map[string]any)
	if len(paths) != 6 {
		t.Errorf("the file has %d paths", len(paths))
	}
	for path := range paths {
		limits := []string{"calls"}
		if path == "/v1/ban" {
			limits = []string{"bans"}
		}
		schema := file.at(t, file.root, "paths", path, "post", "requestBody", "content", "application/json",
			"schema").(map[string]any)
		properties := schema["properties"].(map[string]any)
		example := func(leave string, wrong string) map[string]any {
			body := map[string]any{}
			for name, p := range properties {
				right, other := map[string]any{"string": "policy", "integer": 1, "array": limits},
					map[string]any{"string": 1, "integer": "1", "array": "policy"}
				kind := p.(map[string]any)["type"].(string)
				if body[name] = right[kind]; name == "token" {
					body[name] = s.post(t, "/v1/take", `{"limiter": "policy", "key": "l"}`).said.Token
				}
				if name == wrong {
					body[name] = other[kind]
				}
			}
			delete(body, leave)
			return body
		}
		post := func(body map[string]any) exchange {
			data, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			return s.post(t, path, string(data))
		}
		if e := post(example("", "")); e.status != 200 && e.status != 204 {
			t.Errorf("%s: all fields get %d: %s", path, e.status, e.body)
		}
		for name := range properties {
			required := slices.Contains(schema["required"].([]any), any(name))
			if e := post(example(name, "")); (e.status == 400) != required {
				t.Errorf("%s: without %s: %d, and it is required: %t: %s", path, name, e.status, required, e.body)
			}
			if e := post(example("", name)); e.status != 400 || !strings.Contains(e.problem.Detail, name) {
				t.Errorf("%s: %s of another type: %d: %s", path, name, e.status, e.body)
			}
		}
		if p, has := properties["limits"].(map[string]any); has {
			body := example("", "")
			body["limits"] = []string{}
			if e := post(body); e.status != 400 || p["minItems"] != 1 {
				t.Errorf("%s: no limits: %d: %s; the file: %v", path, e.status, e.body, p)
			}
		}
		with := example("", "")
		with["other"] = 1
		if e := post(with); e.status != 400 || !strings.Contains(e.problem.Detail, `unknown field "other"`) {
			t.Errorf("%s: another field: %d: %s", path, e.status, e.body)
		}
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, s.request("GET", "/v1/openapi.yaml", ""))
	if w.Code != 200 || w.Body.String() != string(openAPI) {
		t.Errorf("/v1/openapi.yaml: %d", w.Code)
	}
}
