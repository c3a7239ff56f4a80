package stint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// One Rate makes a server at most 1.5 MB larger, as `go build` makes it when it is
// told nothing else.
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
}
