package stintotel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Go code in README.md is that of an example, so it compiles.
func TestREADMECompiles(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	examples := strings.ReplaceAll(read("example_test.go"), "\n\t", "\n")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(read("README.md"), -1)
	for _, block := range blocks {
		if !strings.Contains(examples, "\n"+block[1]) {
			t.Errorf("no example has\n%s", block[1])
		}
	}
	if len(blocks) == 0 {
		t.Error("no code")
	}
}
