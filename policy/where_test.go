package policy_test

import (
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
}
