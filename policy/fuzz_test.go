package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// No text makes Parse panic. What Parse accepts makes a limiter, and the schema accepts
// it; every message has a position in the text.
func FuzzParse(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(doc.text))
	}
	for _, tt := range mistakes {
		f.Add([]byte(tt.text))
	}
	s := compiled(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := policy.Parse("p.yaml", text, registered...)
		if err == nil {
			if _, err := stint.New(p.Options()...); err != nil {
				t.Fatalf("stint.New: %v", err)
			}
			v, err := value(string(text))
			if err == nil {
				err = s.Validate(v)
			}
			if err != nil {
				t.Fatalf("the schema: %v", err)
			}
			return
		}
		var all policy.Errors
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("no Errors: %v", err)
		}
		lines := 2 + strings.Count(string(text), "\n") + strings.Count(string(text), "\r") + strings.Count(string(text), "\u2028") +
			strings.Count(string(text), "\u2029") + strings.Count(string(text), "\u0085")
		for _, e := range all {
			if e.Line < 1 || e.Column < 1 || e.Line > lines || e.Text == "" || e.File != "p.yaml" {
				t.Fatalf("%v: of %d lines", e, lines)
			}
		}
	})
}
