package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// filesToAdd are the files that a table of CONTRIBUTING names in the first column of
// a section, with what is there for each placeholder.
func filesToAdd(t *testing.T, section string, instead ...string) (files []string) {
	t.Helper()
	_, text, found := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## "+section+"\n")
	if !found {
		t.Fatalf("CONTRIBUTING.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	span := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `") {
			for _, m := range span.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
				files = append(files, strings.NewReplacer(instead...).Replace(m[1]))
			}
		}
	}
	if len(files) < 5 {
		t.Fatalf("%s names %q", section, files)
	}
	return files
}

// Everything that CONTRIBUTING says must be added exists for what has been added.
func TestContributingNamesFiles(t *testing.T) {
	for section, instead := range map[string][]string{
		"Adding an algorithm":    {"<algorithm>", "slidinglog"},
		"Adding a kind of limit": {"<kind>", "adaptive"},
		"Adding a store":         {"<store>", "redisstore"},
		"Adding an adapter":      {"<framework>", "gin"},
	} {
		for _, file := range filesToAdd(t, section, instead...) {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", section, err)
			}
		}
	}
}

// Every file that CONTRIBUTING names for an option or an event knows of one that there is.
func TestContributingNamesFilesThatKnow(t *testing.T) {
	for section, words := range map[string][]string{
		"Adding an option": {"WithMaxWait", "max-wait", "maxWait", "WaitMax"},
		"Adding an event":  {"Banned", "Ban"},
	} {
		for _, file := range filesToAdd(t, section) {
			text := read(t, file)
			if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) }) {
				t.Errorf("%s: %s has none of %q", section, file, words)
			}
		}
	}
}

// Exactly the files that CONTRIBUTING names refer to an algorithm.
func TestContributingNamesAllOfAnAlgorithm(t *testing.T) {
	named := filesToAdd(t, "Adding an algorithm", "<algorithm>", "slidinglog")
	for _, file := range tree(t, "*.go", "*.lua", "*.json") {
		of := strings.TrimSuffix(path.Base(file), path.Ext(file)) == "slidinglog"
		switch {
		case strings.HasSuffix(file, "_test.go"), strings.HasPrefix(file, "store/storetest/"):
			continue // which may try what they like on it
		case path.Ext(file) == ".go":
			of = of || uses(t, file, "SlidingLog")
		case path.Ext(file) == ".json":
			of = strings.Contains(read(t, file), `"sliding-log"`)
		}
		if of && !slices.Contains(named, file) {
			t.Errorf("%s knows of SlidingLog: how to add an algorithm doesn't name it", file)
		}
	}
}

// Exactly the files that CONTRIBUTING names refer to a kind of limit.
func TestContributingNamesAllOfAKind(t *testing.T) {
	for kind, of := range map[string][]string{
		"ban":         {"Ban", "BanOption", "ofBan", "Banning"},
		"bandwidth":   {"Bandwidth", "BandwidthOption", "ofBandwidth"},
		"concurrency": {"ConcurrencyOption", "ofConcurrency", "Concurrent"}, // store.Concurrency is others' too
		"adaptive":    {"AdaptiveConcurrency", "AdaptiveOption", "ofAdaptive"},
	} {
		named := filesToAdd(t, "Adding a kind of limit", "<kind>", kind)
		for _, file := range tree(t, "*.go") {
			if dir := path.Dir(file); !slices.Contains([]string{".", "policy", "internal/limit", "internal/read", "internal/compile"}, dir) || strings.HasSuffix(file, "_test.go") || slices.Contains(named, file) {
				continue
			}
			for _, name := range of {
				if uses(t, file, name) {
					t.Errorf("%s knows of %s: how to add a kind of limit doesn't name it", file, name)
				}
			}
		}
	}
}

// The table in the architecture document lists exactly the files of the root package,
// each once.
func TestArchitectureNamesFiles(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "docs/architecture.md"), "The root by file.")
	text, _, _ = strings.Cut(text, "\n\nAn `admission`")
	var named []string
	for line := range strings.Lines(text) {
		for _, m := range regexp.MustCompile("`([a-z]+\\.go)`").FindAllStringSubmatch(strings.Split(line+"|", "|")[1], -1) {
			named = append(named, m[1])
		}
	}
	files := slices.DeleteFunc(tree(t, "*.go"), func(file string) bool {
		return path.Dir(file) != "." || strings.HasSuffix(file, "_test.go")
	})
	slices.Sort(named)
	slices.Sort(files)
	if !slices.Equal(named, files) {
		t.Errorf("docs/architecture.md names %q, and there are %q", named, files)
	}
}

// uses reports whether a file's code, comments aside, has a name.
func uses(t *testing.T, file, name string) (found bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		id, is := n.(*ast.Ident)
		found = found || is && id.Name == name
		return !found
	})
	return found
}
