package stint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unlinked are beginnings of functions that only other kinds of limit and options need.
var unlinked = []string{
	"internal/adaptive.(*Keys).",
	"internal/clientip.(*Resolver).behind",
	"internal/namesakes.(*Family).",
	"internal/respond.(*",
	"internal/routing.(*Router).",
	"internal/waiting.(*Lines).",
}

// One Rate makes a server at most 1.5 MB larger, built with a plain `go build`, and
// what it doesn't use isn't linked.
func TestWeight(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	const most = 1_500_000
	out := t.TempDir()
	cmd := exec.Command("go", "build", "-o", out, "./testdata/weight/bare", "./testdata/weight/limited")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	size := func(name string) int64 {
		info, err := os.Stat(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	bare, limited := size("bare"), size("limited")
	t.Logf("bare %d bytes, limited %d: %d more", bare, limited, limited-bare)
	if limited-bare > most || limited <= bare {
		t.Errorf("a server of %d bytes has %d with one Rate: %d more, want %d at most", bare, limited, limited-bare, most)
	}

	symbols, err := exec.Command("go", "tool", "nm", filepath.Join(out, "limited")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(symbols)) {
		for _, name := range unlinked {
			if strings.Contains(line, " T "+module+"/"+name) {
				t.Errorf("linked, though nothing needs it: %s", line)
			}
		}
	}
}
