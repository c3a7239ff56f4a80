package project

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each guarantee names a test, and each test that is named exists.
func TestGuaranteesNameTests(t *testing.T) {
	text := read(t, "docs/guarantees.md")
	span := regexp.MustCompile("`(\\.[a-z/]*) (Test[A-Za-z0-9]+)`")
	for line := range strings.Lines(text) {
		if head := strings.HasPrefix(line, "| --- |") || strings.HasSuffix(line, "| tests |\n"); strings.HasPrefix(line, "| ") && !head {
			if !span.MatchString(line) {
				t.Errorf("no test holds %q", line)
			}
		}
	}
	named := span.FindAllStringSubmatch(text, -1)
	if len(named) < 40 {
		t.Fatalf("%d tests are named", len(named))
	}
	for _, m := range named {
		files, err := filepath.Glob(filepath.Join(m[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(code), "\nfunc "+m[2]+"(t *testing.T)")
		}
		if !found {
			t.Errorf("docs/guarantees.md: %s has no %s", m[1], m[2])
		}
	}
}
