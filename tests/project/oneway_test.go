package project

import (
	"cmp"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rootTable is the table of the root's files in the architecture document: for each file, the
// row that it stands in.
func rootTable(t *testing.T) map[string]int {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "docs/architecture.md"), "The root by file.")
	text, _, found := strings.Cut(text, "\n\nAn `admission`")
	if !found {
		t.Fatal("docs/architecture.md has no table of the root's files")
	}
	row, n := map[string]int{}, 0
	for line := range strings.Lines(text) {
		for _, m := range regexp.MustCompile("`([a-z]+\\.go)`").FindAllStringSubmatch(strings.Split(line+"|", "|")[1], -1) {
			row[m[1]] = n
		}
		n++
	}
	return row
}

// root is the root package, without its tests.
type root struct {
	*types.Package
	*types.Info
	*token.FileSet
	files []*ast.File
}

// parseRoot parses the root package and finds what its names refer to.
func parseRoot(t *testing.T) root {
	t.Helper()
	r := root{FileSet: token.NewFileSet(), Info: &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	for _, file := range tree(t, "*.go") {
		if path.Dir(file) != "." || strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(r.FileSet, file, read(t, file), parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		r.files = append(r.files, f)
	}
	config := types.Config{Importer: importer.ForCompiler(r.FileSet, "gc", exported(t))}
	var err error
	if r.Package, err = config.Check(module, r.FileSet, r.files, r.Info); err != nil {
		t.Fatal(err)
	}
	return r
}

// exported opens what the compiler has exported of a package that the root imports.
func exported(t *testing.T) func(path string) (io.ReadCloser, error) {
	t.Helper()
	list, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(list)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[name] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// file returns the name of the file that a position is in.
func (r root) file(at token.Pos) string { return r.Position(at).Filename }

// of returns what an identifier refers to if that is the package's own, or nil.
func (r root) of(name *ast.Ident) types.Object {
	of := r.Uses[name]
	if of == nil || of.Pkg() != r.Package || !of.Pos().IsValid() {
		return nil
	}
	if v, is := of.(*types.Var); is && !v.IsField() && v.Parent() != r.Scope() {
		return nil // a local variable
	}
	return of
}

// functions calls f for each function of the package, with the name of its receiver's type, if it
// has one.
func (r root) functions(f func(receiver string, d *ast.FuncDecl)) {
	for _, file := range r.files {
		for _, d := range file.Decls {
			if d, is := d.(*ast.FuncDecl); is {
				receiver := ""
				if d.Recv != nil {
					receiver = typeName(d.Recv.List[0].Type)
				}
				f(receiver, d)
			}
		}
	}
}

// typeName returns the name of a type, or of what a pointer points to.
func typeName(t ast.Expr) string {
	if p, is := t.(*ast.StarExpr); is {
		t = p.X
	}
	if id, is := t.(*ast.Ident); is {
		return id.Name
	}
	return ""
}

// The files of the root package refer to one another one way: to those of their own row in
// the table of the architecture document, and of the rows above.
func TestRootRunsOneWay(t *testing.T) {
	row, r := rootTable(t), parseRoot(t)
	seen := map[string]bool{}
	for name := range r.Uses {
		of := r.of(name)
		if of == nil {
			continue
		}
		from, to := r.file(name.Pos()), r.file(of.Pos())
		seen[from] = true
		if row[from] < row[to] {
			t.Errorf("%v refers to %s of %s, which stands below it", r.Position(name.Pos()), of.Name(), to)
		}
	}
	if len(seen) < len(r.files)-1 {
		t.Errorf("references of only %d of %d files were found: %v", len(seen), len(r.files), slices.Sorted(maps.Keys(seen)))
	}
}

// A type's methods stand in its own row: what is declared below it isn't a part of it, and a
// method would let the type's users reach down to it.
func TestRootMethodsStandWithTheirType(t *testing.T) {
	row, r := rootTable(t), parseRoot(t)
	n := 0
	r.functions(func(receiver string, d *ast.FuncDecl) {
		of := r.Scope().Lookup(receiver)
		if of == nil {
			return
		}
		n++
		if at, method := r.file(of.Pos()), r.file(d.Pos()); row[at] != row[method] {
			t.Errorf("%s.%s stands in %s, and its type in %s, of another row", receiver, d.Name.Name, method, at)
		}
	})
	if n < 200 {
		t.Errorf("only %d methods were found", n)
	}
}

// cycles are the types, functions and variables of the root that refer to each other, by what they are made of, by their
// methods or by functions that these call. Each is one subject.
var cycles = []string{
	"Limiter family",       // limiters that are updated together
	"Option config",        // an option changes a config, which keeps its options for the next Update
	"Permit withoutCancel", // a permit, and its context
	"admission admissions", // a type and its pool
	"listed usually",       // a type and what most of its values have in common
}

// Types of the root, its functions and its variables refer to one another one way, but for the few
// of cycles: a reader of one can do without the others.
func TestRootTypesRunOneWay(t *testing.T) {
	r := parseRoot(t)
	to := map[string][]string{} // from each type and function
	refer := func(from string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is {
				if of := subject(r.of(id)); of != "" && of != from && !slices.Contains(to[from], of) {
					to[from] = append(to[from], of)
				}
			}
			return true
		})
	}
	for _, file := range r.files {
		for _, d := range file.Decls {
			d, is := d.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					refer(spec.Name.Name, spec.Type)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						refer(name.Name, spec)
					}
				}
			}
		}
	}
	r.functions(func(receiver string, d *ast.FuncDecl) { refer(cmp.Or(receiver, d.Name.Name), d) })
	reaches := map[string]map[string]bool{}
	for from := range to {
		reached := map[string]bool{}
		for next := slices.Clone(to[from]); len(next) > 0; next = next[1:] {
			if !reached[next[0]] {
				reached[next[0]] = true
				next = append(next, to[next[0]]...)
			}
		}
		reaches[from] = reached
	}
	var found []string
	for from, reached := range reaches {
		if !reached[from] {
			continue
		}
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(reached)), func(name string) bool { return !reaches[name][from] })
		if cycle := strings.Join(names, " "); !slices.Contains(found, cycle) {
			found = append(found, cycle)
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, cycles) {
		t.Errorf("these types refer to each other: %q, and these are known: %q", found, cycles)
	}
}

// subject returns the type that an object is, or that it is a method of, or the function or variable
// that it is.
func subject(of types.Object) string {
	switch of := of.(type) {
	case *types.TypeName:
		return of.Name()
	case *types.Var:
		if !of.IsField() {
			return of.Name()
		}
	case *types.Func:
		receiver := of.Signature().Recv()
		if receiver == nil {
			return of.Name()
		}
		t := receiver.Type()
		if p, is := t.(*types.Pointer); is {
			t = p.Elem()
		}
		if n, is := t.(*types.Named); is {
			return n.Obj().Name()
		}
	}
	return ""
}
