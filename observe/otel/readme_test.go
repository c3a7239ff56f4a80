package stintotel_test

import (
	"os"
	"testing"

	"github.com/stint-go/stint/internal/doctest"
)

// Go code in README.md compiles.
func TestREADMECompiles(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := doctest.New(t, "github.com/stint-go/stint", "stintotel github.com/stint-go/stint/observe/otel")
	blocks := doctest.Blocks(string(text), "")
	for _, code := range blocks {
		if err := c.Check("var lim *stint.Limiter", code); err != nil {
			t.Errorf("%v\n%s", err, code)
		}
	}
	if len(blocks) == 0 {
		t.Error("no code")
	}
}
