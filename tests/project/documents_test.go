package project

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/tests/doctest"
	"github.com/stint-go/stint/tests/nginxtest"
)

// documents are the pages that readers are sent to. Their links have to lead somewhere
// and their whole programs have to build.
func documents(t *testing.T) []string {
	t.Helper()
	docs := []string{"README.md", "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, pattern := range []string{"docs/*.md", "docs/internals/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		docs = append(docs, found...)
	}
	return docs
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	code := regexp.MustCompile("`[^`\n]*`") // may have [T](x), which is no link
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, doc), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := doc
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(doc), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", doc, err)
			} else if m[2] != "" && !slices.Contains(anchors(read(t, to)), m[2]) {
				t.Errorf("%s: %s has no %s", doc, to, m[2])
			}
		}
	}
}

// anchors are the fragments of a document's headings, as GitHub makes them, and of its lines that
// have an id.
func anchors(text string) (all []string) {
	left := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, "#"+strings.ReplaceAll(left.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	for _, m := range regexp.MustCompile(`<a id="([^"]+)"></a>`).FindAllStringSubmatch(text, -1) {
		all = append(all, "#"+m[1])
	}
	return all
}

// Whole programs compile. TestREADME runs the README's.
func TestProgramsCompile(t *testing.T) {
	compiled := 0
	for _, doc := range documents(t) {
		for _, program := range doctest.Programs(read(t, doc), "") {
			file := filepath.Join(t.TempDir(), "main.go")
			write(t, file, program, 0o600)
			run(t, ".", "go", "vet", file)
			compiled++
		}
	}
	if compiled == 0 {
		t.Error("no whole program in any document")
	}
}

// The tests of the page on testing pass.
func TestTestsOfTheDocument(t *testing.T) {
	_, text, found := strings.Cut(read(t, "docs/testing.md"), "```go\npackage shop\n")
	text, _, _ = strings.Cut(text, "```")
	if !found {
		t.Fatal("docs/testing.md has no test")
	}
	file := filepath.Join(t.TempDir(), "shop_test.go")
	write(t, file, "package shop\n"+text, 0o666)
	if out := run(t, ".", "go", "test", "-count=1", "-v", file); strings.Count(out, "--- PASS") != 2 {
		t.Errorf("want two tests that pass: %s", out)
	}
}

// readmeProgram is the README's whole program, on an address of its own.
func readmeProgram(t *testing.T) (text, addr string) {
	t.Helper()
	addr = nginxtest.FreeAddress(t)
	_, text, _ = strings.Cut(read(t, "README.md"), "```go\npackage main\n")
	text, _, _ = strings.Cut(text, "```")
	return "package main\n" + strings.ReplaceAll(text, "127.0.0.1:8080", addr), addr
}

// docs/observing.md lists each event and each of its fields.
func TestDocumentedEvents(t *testing.T) {
	text := read(t, "docs/observing.md")
	for kind := stint.EventKind(1); !strings.Contains(kind.String(), "("); kind++ {
		if !strings.Contains(text, "\n| `Event"+kind.String()+"` | ") {
			t.Errorf("no line on Event%v", kind)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[stint.Event]()) {
		if f.IsExported() && !strings.Contains(text, "\n| `"+f.Name+"` | ") {
			t.Errorf("no line on the field %s", f.Name)
		}
	}
}

// Each warning's link leads to its line.
func TestWarningsAreDocumented(t *testing.T) {
	lines := anchors(read(t, "docs/warnings.md"))
	kinds := warningKinds()
	for _, k := range kinds {
		if !slices.Contains(lines, "#"+k) {
			t.Errorf("docs/warnings.md has no line on %v", k)
		}
	}
	for file, kept := range map[string]string{"warnings.go": "//\t", "observe/otel/zero.go": `"`} { // in lists of their own
		text := read(t, file)
		for _, k := range kinds {
			if list := regexp.MustCompile(`(?m)^\s*` + kept + `.*` + k); !list.MatchString(text) {
				t.Errorf("%s doesn't list %s", file, k)
			}
		}
	}
	if len(kinds) < 7 {
		t.Errorf("there are %d kinds", len(kinds))
	}
	l := limiter(t, stint.Rate(1, time.Second), stint.WithKey(stint.Header("X-Real-IP")), logger(new(strings.Builder)))
	const page = "https://github.com/stint-go/stint/blob/main/docs/warnings.md#forwarding-header"
	if got := l.Describe().Warnings[0].Link; got != page {
		t.Errorf("links to %s, want %s", got, page)
	}
}

// warningKinds returns all kinds of warnings, which New lists.
func warningKinds() []string {
	_, list, _ := strings.Cut(stint.Check(stint.WithoutWarnings("none")).Error(), `WithoutWarnings("none"): use `)
	list, _, _ = strings.Cut(list, "\n")
	return strings.Split(strings.Replace(list, " or ", ", ", 1), ", ")
}
