package project

import (
	"flag"
	"fmt"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/doctest"
)

var updateAPI = flag.Bool("update", false, "write testdata/api.txt anew")

const apiFile = "testdata/api.txt"

// The exported API is in a file, so that a review sees every change of it: make api
// writes the file.
func TestAPI(t *testing.T) {
	workspace, err := filepath.Abs("go.work")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOWORK", workspace) // policy is a module of its own
	list, err := exec.Command("go", "list", "./...", "./policy").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := slices.DeleteFunc(strings.Fields(string(list)), func(p string) bool {
		return strings.Contains(p, "/internal/") || strings.Contains(p, "/examples") || strings.Contains(p, "/cmd/")
	})
	packages := doctest.Exported(t, token.NewFileSet(), paths...)
	var got strings.Builder
	for _, path := range paths {
		p, err := packages.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name() != "main" {
			api(&got, p)
		}
	}
	if *updateAPI {
		if err := os.WriteFile(apiFile, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Split(read(t, apiFile), "\n")
	now := strings.Split(got.String(), "\n")
	for _, line := range now {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(now, line) {
			t.Errorf("gone: %s", line)
		}
	}
	if t.Failed() {
		t.Errorf("where that is meant: go test -run TestAPI -update .")
	} else if !slices.Equal(want, now) {
		t.Errorf("%s isn't in order: go test -run TestAPI -update .", apiFile)
	}
}

// api writes a line for each name that a package exports, and for each method and
// field of those.
func api(w *strings.Builder, p *types.Package) {
	in := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	line := func(format string, args ...any) {
		fmt.Fprintf(w, "%s: %s\n", strings.TrimPrefix(p.Path(), "github.com/stint-go/"), fmt.Sprintf(format, args...))
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		kind, isType := o.(*types.TypeName)
		if c, isConst := o.(*types.Const); isConst {
			line("%s = %s", types.ObjectString(o, in), c.Val())
			continue
		} else if !isType || kind.IsAlias() {
			line("%s", types.ObjectString(o, in))
			continue
		}
		switch under := o.Type().Underlying().(type) {
		case *types.Struct:
			line("type %s struct", name)
			for f := range under.Fields() {
				if f.Exported() {
					line("field %s.%s %s", name, f.Name(), types.TypeString(f.Type(), in))
				}
			}
		case *types.Interface:
			line("type %s interface", name)
			for m := range under.Methods() {
				if m.Exported() {
					line("method %s.%s%s", name, m.Name(), strings.TrimPrefix(types.TypeString(m.Signature(), in), "func"))
				}
			}
			continue
		default:
			line("type %s %s", name, types.TypeString(under, in))
		}
		methods := types.NewMethodSet(types.NewPointer(o.Type()))
		for m := range methods.Methods() {
			if f := m.Obj(); f.Exported() {
				line("%s", types.ObjectString(f, in))
			}
		}
	}
}
