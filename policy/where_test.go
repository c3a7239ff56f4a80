package policy_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stint-go/stint/policy"
)

// A policy says where its limits are, those with default names too.
func TestWhere(t *testing.T) {
	p, err := policy.Parse("p.yaml", []byte("version: 1\nkey: remote-ip\nlimits:\n  - {name: a, rate: 1/1s}\n  - quota: 5/daily\nroutes:\n  /b: {limits: [{name: b, rate: 1/1s}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]int{"a": {4, 5}, "daily": {5, 5}, "b": {7, 17}, "missing": {}} {
		if line, column := p.Where(name); [2]int{line, column} != want {
			t.Errorf("%s is at %d:%d, want %d:%d", name, line, column, want[0], want[1])
		}
	}
	for pattern, want := range map[string][2]int{"/b": {7, 3}, "/c": {}} {
		if line, column := p.WhereRoute(pattern); [2]int{line, column} != want {
			t.Errorf("route %s is at %d:%d, want %d:%d", pattern, line, column, want[0], want[1])
		}
	}
}

// A mistake that is a name of the application's says which.
func TestUnknownNames(t *testing.T) {
	_, err := policy.Parse("p.yaml", []byte("version: 1\nkey: tenant\npriority: class\nskip: [internal]\nlimits:\n  - {name: a, rate: 1/1s, cost: rows, settle: tokens, brst: 3}\n"))
	var all policy.Errors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Unknown)
	}
	slices.Sort(names)
	if want := []string{"", "class", "internal", "rows", "tenant", "tokens"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q: %v", names, want, err)
	}
}
