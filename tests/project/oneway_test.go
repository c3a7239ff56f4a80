package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The files of the root package refer to one another one way: to those of their own row in
// the table of the architecture document, and of the rows above. The flow of a request is one
// subject, whose files stand in three rows.
func TestRootRunsOneWay(t *testing.T) {
	row := map[string]int{}
	_, text, _ := strings.Cut(read(t, "docs/architecture.md"), "The root by file.")
	text, _, _ = strings.Cut(text, "\n\nAn `admission`")
	n := 0
	for line := range strings.Lines(text) {
		for _, m := range regexp.MustCompile("`([a-z]+\\.go)`").FindAllStringSubmatch(strings.Split(line+"|", "|")[1], -1) {
			row[m[1]] = n
		}
		n++
	}
	for _, file := range []string{"record.go", "mistakes.go", "outcome.go", "deny.go", "headers.go", "permit.go", "settle.go", "response.go", "pacing.go", "learning.go", "leaked.go"} {
		row[file] = row["request.go"]
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, file := range tree(t, "*.go") {
		if path.Dir(file) != "." || strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, file, read(t, file), 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	root := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: empty{}, Error: func(error) {}}
	pkg, _ := config.Check(module, files, parsed, root)
	seen := map[string]bool{}
	for name, of := range root.Uses {
		if of.Pkg() != pkg || !of.Pos().IsValid() {
			continue
		}
		if v, is := of.(*types.Var); is && !v.IsField() && v.Parent() != pkg.Scope() {
			continue // a local variable
		}
		from, to := files.Position(name.Pos()).Filename, files.Position(of.Pos()).Filename
		seen[from] = true
		if row[from] < row[to] {
			t.Errorf("%v refers to %s of %s, which stands below it", files.Position(name.Pos()), of.Name(), to)
		}
	}
	if len(seen) < len(parsed)-1 {
		t.Errorf("references of only %d of %d files were found: %v", len(seen), len(parsed), slices.Sorted(func(yield func(string) bool) {
			for file := range seen {
				if !yield(file) {
					return
				}
			}
		}))
	}
}

// empty imports packages without contents: to see which file defines what the root uses of
// itself needs no others, and reading those takes a while.
type empty struct{}

func (empty) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}
