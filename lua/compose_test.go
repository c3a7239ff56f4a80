package lua_test

import (
	"context"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
)

// TestScriptsCompile loads the scripts of up to two algorithms, where what one lacks shows, and
// of nearly all, where what two have in common does. make test-servers loads all that can be
// composed.
func TestScriptsCompile(t *testing.T) {
	n := bits.OnesCount(uint(scripts.Several - 1))
	compile(t, func(set scripts.Set) bool {
		has := bits.OnesCount(uint(set))
		return has <= 2 || has >= n-3
	})
}

func TestServersCompileEveryScript(t *testing.T) {
	redistest.Suite(t, "servers")
	compile(t, func(scripts.Set) bool { return true })
}

// compile loads the scripts of those sets that are chosen.
func compile(t *testing.T, chosen func(scripts.Set) bool) {
	ctx, rdb := context.Background(), client(t)
	load := func(s *scripts.Script) {
		t.Helper()
		if sha, err := rdb.ScriptLoad(ctx, s.Source).Result(); err != nil || sha != s.SHA {
			t.Fatalf("%s %v, want %s:\n%s", sha, err, s.SHA, s.Source)
		}
	}
	for set := range scripts.Several {
		if chosen(set) {
			load(scripts.Take(set))
			load(scripts.Take(set | scripts.Several))
			load(scripts.Settle(set))
		}
	}
	load(scripts.Renew())
}

// TestFunctionNames: a script makes the functions of several files in one scope, where
// the second of a name would be called in place of the first.
func TestFunctionNames(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`^(?:local function (\w+)|function rare\.(\w+)|rare\.(\w+) =)`)
	in := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			m := made.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			name := m[1]
			if name == "" {
				name = "rare." + m[2] + m[3]
			}
			if in[name] != "" {
				t.Errorf("%s: %s is in %s, too", file, name, in[name])
			}
			in[name] = file
		}
	}
	if len(in) < 50 {
		t.Errorf("%d functions found", len(in))
	}
}

// TestNamesOfTheLoops: no block has a local of a name that the blocks of store.lua, which
// stand beside it, take for the loop's.
func TestNamesOfTheLoops(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	if err != nil {
		t.Fatal(err)
	}
	local := regexp.MustCompile(`^\s*local [^=]*\b(wrote|noMemory|granted|probe|vals|again|now|call|KEYS|i|write)\b`)
	for _, file := range files {
		if slices.Contains([]string{"prelude.lua", "outcome.lua", "take.lua", "several.lua", "settle.lua"}, file) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks, _, _ := strings.Cut(string(text), "--:functions")
		for line := range strings.Lines(blocks) {
			if local.MatchString(line) {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
}
