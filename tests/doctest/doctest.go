// Package doctest checks that the Go code in documents compiles, although it is part of
// a program rather than a whole one.
package doctest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Checker compiles parts of programs that use some packages. It isn't safe for
// concurrent use.
type Checker struct {
	fset    *token.FileSet
	imports types.Importer
	header  string
}

// New returns a Checker for code that uses the packages of paths, each under its own
// name or under the name written before it ("stinthttp github.com/…/std"). The working
// directory must be in a module that requires them.
func New(t testing.TB, paths ...string) *Checker {
	t.Helper()
	c := &Checker{fset: token.NewFileSet(), header: "package doc\n"}
	var all []string
	for _, p := range paths {
		name, path, named := strings.Cut(p, " ")
		if !named {
			name, path = "", p
		}
		all = append(all, path)
		c.header += fmt.Sprintf("import %s %q\n", name, path)
	}
	c.imports = Exported(t, c.fset, all...)
	return c
}

// Exported imports packages and their imports from the compiler's export data.
func Exported(t testing.TB, fset *token.FileSet, paths ...string) types.Importer {
	t.Helper()
	list := exec.Command("go",
		append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// Check compiles code beside the declarations that it assumes. The code is
// declarations, statements, or expressions separated by commas.
func (c *Checker) Check(declared, code string) error {
	before := c.header + declared + "\n"
	var unparsed, wrong error
	for _, code := range []string{code, "func list(...any)\nfunc _() { list(" + listed(code) + ") }",
		"func _() {\n" + code + "\n}"} {
		f, err := parser.ParseFile(c.fset, "doc.go", before+code, 0)
		if err != nil {
			unparsed = err // report the error of parsing as statements, which most code is
			continue
		}
		if wrong = c.compile(f); wrong == nil {
			return nil
		}
	}
	if wrong != nil {
		return wrong
	}
	return unparsed
}

// listed returns a list of expressions without the trailing comma or comment.
func listed(code string) string {
	code = strings.TrimSpace(code)
	last := strings.LastIndex(code, "\n") + 1
	line, _, _ := strings.Cut(code[last:], " //")
	return strings.TrimSuffix(code[:last]+strings.TrimSpace(line), ",")
}

// compile type-checks a file. It accepts unused variables, which the reader's program
// uses further on.
func (c *Checker) compile(f *ast.File) error {
	var wrong []string
	conf := types.Config{Importer: c.imports, Error: func(err error) {
		if e := err.(types.Error); !e.Soft {
			wrong = append(wrong, e.Msg)
		}
	}}
	_, _ = conf.Check("doc", c.fset, []*ast.File{f}, nil)
	if wrong != nil {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}

var block = regexp.MustCompile("(?sm)^```go([^\n]*)\n(.*?)^```")

// Blocks returns the blocks of Go code in a document that are parts of programs and
// belong to a module: "" for the root, or the directory that follows the word go.
func Blocks(text, module string) (all []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if strings.TrimSpace(m[1]) == module && !strings.HasPrefix(m[2], "package ") {
			all = append(all, m[2])
		}
	}
	return all
}

// Programs returns the blocks of Go code in a document that are whole programs and belong
// to a module.
func Programs(text, module string) (all []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if strings.TrimSpace(m[1]) == module && strings.HasPrefix(m[2], "package main\n") {
			all = append(all, m[2])
		}
	}
	return all
}

// Modules returns the modules, other than the root, that blocks of a document belong
// to.
func Modules(text string) (all []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if dir := strings.TrimSpace(m[1]); dir != "" && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return all
}

// Column returns the code in one column of the tables of a document, counted from 0.
func Column(text string, column int) (all []string) {
	span := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || column >= len(cells) {
			continue
		}
		for _, m := range span.FindAllStringSubmatch(cells[column], -1) {
			all = append(all, m[1])
		}
	}
	return all
}
