package project

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each row of guarantees.md and SECURITY.md names a test, and each test that is named exists.
func TestGuaranteesNameTests(t *testing.T) {
	span := regexp.MustCompile("`(\\.[a-z/]*) (Test[A-Za-z0-9]+)`")
	for doc, least := range map[string]int{"docs/guarantees.md": 40, "SECURITY.md": 8} {
		text := read(t, doc)
		for line := range strings.Lines(text) {
			if head := strings.HasPrefix(line, "| --- |") || strings.HasSuffix(line, "| tests |\n"); strings.HasPrefix(line, "| ") && !head {
				if !span.MatchString(line) {
					t.Errorf("%s: no test holds %q", doc, line)
				}
			}
		}
		named := span.FindAllStringSubmatch(text, -1)
		if len(named) < least {
			t.Errorf("%s names %d tests", doc, len(named))
		}
		for _, m := range named {
			files, err := filepath.Glob(filepath.Join(m[1], "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, file := range files {
				found = found || strings.Contains(read(t, file), "\nfunc "+m[2]+"(t *testing.T)")
			}
			if !found {
				t.Errorf("%s: %s has no %s", doc, m[1], m[2])
			}
		}
	}
}
