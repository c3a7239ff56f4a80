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

	"github.com/stint-go/stint/tests/doctest"
)

var updateAPI = flag.Bool("update", false, "write testdata/api.txt anew")

const apiFile = "testdata/api.txt"

// The exported API is in a file, so that a review sees every change of it: make api
// writes the file.
func TestAPI(t *testing.T) {
	packages := public(t)
	var got strings.Builder
	for _, p := range packages {
		api(&got, p)
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

// loaded is what public has returned.
var loaded []*types.Package

// public returns the packages that other modules may import.
func public(t *testing.T) (all []*types.Package) {
	t.Helper()
	if loaded != nil {
		return loaded
	}
	workspace, err := filepath.Abs("go.work")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOWORK", workspace) // some are modules of their own
	list, err := exec.Command("go", "list", "./...", "./policy", "./adapters/grpc").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := slices.DeleteFunc(strings.Fields(string(list)), func(p string) bool {
		return strings.Contains(p, "/internal/") || strings.Contains(p, "/examples") || strings.Contains(p, "/cmd/")
	})
	packages := doctest.Exported(t, token.NewFileSet(), paths...)
	for _, path := range paths {
		p, err := packages.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name() != "main" {
			all = append(all, p)
		}
	}
	loaded = all
	return all
}

// What other modules can name is all that the exported API consists of: no type of an
// internal package is in it. So what compiles against the API compiles elsewhere.
func TestAPIIsPublic(t *testing.T) {
	for _, p := range public(t) {
		check := func(what types.Object, in types.Type) {
			if internal := internalIn(in); internal != nil {
				t.Errorf("%s.%s mentions %v, which no other module can name", p.Name(), what.Name(), internal)
			}
		}
		for _, name := range p.Scope().Names() {
			o := p.Scope().Lookup(name)
			if !o.Exported() {
				continue
			}
			if check(o, o.Type()); types.IsInterface(o.Type()) {
				for m := range o.Type().Underlying().(*types.Interface).Methods() {
					if m.Exported() {
						check(m, m.Type())
					}
				}
			}
			if kind, isType := o.(*types.TypeName); !isType || kind.IsAlias() {
				continue
			}
			if under, ok := o.Type().Underlying().(*types.Struct); ok {
				for f := range under.Fields() {
					if f.Exported() {
						check(f, f.Type())
					}
				}
			}
			for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
				if f := m.Obj(); f.Exported() {
					check(f, f.Type())
				}
			}
		}
	}
}

// internalIn returns a type of an internal package that t mentions, or nil.
func internalIn(t types.Type) types.Type {
	first := func(all ...types.Type) types.Type {
		for _, t := range all {
			if internal := internalIn(t); internal != nil {
				return internal
			}
		}
		return nil
	}
	switch t := t.(type) {
	case *types.Alias:
		return first(t.Rhs())
	case *types.Named:
		if p := t.Obj().Pkg(); p != nil && strings.Contains(p.Path()+"/", "/internal/") && strings.HasPrefix(p.Path(), module) {
			return t
		}
		for arg := range t.TypeArgs().Types() {
			if internal := internalIn(arg); internal != nil {
				return internal
			}
		}
	case *types.Signature:
		return first(t.Params(), t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			if internal := internalIn(v.Type()); internal != nil {
				return internal
			}
		}
	case *types.Map:
		return first(t.Key(), t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		return first(t.Elem())
	}
	return nil
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
