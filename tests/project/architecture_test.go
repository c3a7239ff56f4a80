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

// declared is what the root, package store, the internal packages and these tests declare: "Name" and "package.Name", and "Type.Member" and
// "package.Type.Member" of types.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range tree(t, "*.go") {
		dir := path.Dir(file)
		ours := dir == "." || dir == "store" || strings.HasPrefix(dir, "internal/")
		if dir != "tests/project" && (!ours || strings.HasSuffix(file, "_test.go")) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		add := func(name string) { all[name], all[f.Name.Name+"."+name] = true, true }
		member := func(of, name string) {
			all[name] = true
			add(of + "." + name)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					member(typeName(d.Recv.List[0].Type), d.Name.Name)
				} else {
					add(d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(name.Name)
						}
					case *ast.TypeSpec:
						add(spec.Name.Name)
						if s, is := spec.Type.(*ast.StructType); is {
							for _, field := range s.Fields.List {
								for _, name := range field.Names {
									member(spec.Name.Name, name.Name)
								}
							}
						}
						if i, is := spec.Type.(*ast.InterfaceType); is {
							for _, method := range i.Methods.List {
								for _, name := range method.Names {
									member(spec.Name.Name, name.Name)
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// What the architecture document says of a request names code that exists.
func TestArchitectureNamesCode(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "docs/architecture.md"), "\n## One request\n")
	text, _, _ = strings.Cut(text, "\n## ")
	all := declared(t)
	all["ResponseWriter"], all["http"] = true, true // of net/http
	n := 0
	for _, m := range regexp.MustCompile("`([A-Za-z]+(?:\\.[A-Za-z]+)*)`").FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(m[1], ".go") {
			continue // TestArchitectureNamesFiles
		}
		n++
		if !all[m[1]] {
			t.Errorf("docs/architecture.md names %s, which doesn't exist", m[1])
		}
	}
	if n < 40 {
		t.Errorf("only %d names were found", n)
	}
}

// The comment of subject lists exactly the functions that set a field of a request's event.
func TestSubjectListsWhereEventsAreSet(t *testing.T) {
	r := parseRoot(t)
	var listed []string
	for _, f := range r.files {
		for _, d := range f.Decls {
			if d, is := d.(*ast.GenDecl); is && d.Tok == token.TYPE && d.Specs[0].(*ast.TypeSpec).Name.Name == "subject" {
				text, _, _ := strings.Cut(d.Doc.Text(), "A test holds this list.")
				for _, m := range regexp.MustCompile(`\b([A-Za-z]+\.[A-Za-z]+)\b`).FindAllStringSubmatch(text, -1) {
					listed = append(listed, m[1])
				}
			}
		}
	}
	slices.Sort(listed)
	event := r.Scope().Lookup("Event").Type().Underlying().(*types.Struct)
	ofEvent := func(of types.Object) bool {
		for f := range event.Fields() {
			if f == of {
				return true
			}
		}
		return false
	}
	var set []string
	r.functions(func(receiver string, d *ast.FuncDecl) {
		name := receiver + "." + d.Name.Name
		if receiver == "Event" && d.Name.Name != "about" {
			return // which copy an event, to give it away or to write it
		}
		ast.Inspect(d, func(n ast.Node) bool {
			assign, is := n.(*ast.AssignStmt)
			if !is {
				return true
			}
			for _, to := range assign.Lhs {
				ast.Inspect(to, func(n ast.Node) bool {
					if id, is := n.(*ast.Ident); is && ofEvent(r.of(id)) && !slices.Contains(set, name) {
						set = append(set, name)
					}
					return true
				})
			}
			return true
		})
	})
	slices.Sort(set)
	if !slices.Equal(listed, set) {
		t.Errorf("the comment of subject lists %q, and fields of events are set by %q", listed, set)
	}
}
