package policy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// TestDocument reads the file in docs/policy.md, which shows every field but
// those of rarer limits.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d files in the document, want one", len(blocks))
	}
	file := blocks[0][1]
	p, err := policy.Parse("docs/policy.md", file, registered...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stint.New(p.Options()...); err != nil {
		t.Error(err)
	}
	v, err := value(string(file))
	if err == nil {
		err = compiled(t).Validate(v)
	}
	if err != nil {
		t.Error(err)
	}
	// And it is read, not skipped: the same with a slip is rejected.
	if _, err := policy.Parse("docs/policy.md", []byte(strings.Replace(string(file), "sliding-log", "sliding", 1)), registered...); err == nil {
		t.Error("a slip was taken")
	}
}

// The document's program builds.
func TestProgramOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?ms)^```go policy\n(package main\n.*?)^```").FindAllStringSubmatch(string(text), -1)
	if len(programs) != 1 {
		t.Fatalf("%d programs in the document, want one", len(programs))
	}
	file := filepath.Join(t.TempDir(), "main.go")
	write(t, file, programs[0][1])
	if out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
