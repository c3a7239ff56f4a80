package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// corrections has the functions that record a problem with options, and which argument says what to write
// instead. -1: the function is called in several ways, so its corrections are only listed.
var corrections = map[string]int{
	"Add": 2, "require": 2, "checkedOption": 2, "checkedRuleOption": 2, "checkedSetting": 2, "configures": 2,
	"CheckDuration": 2, "NewSpecError": 2, "bad": -1, "problem": -1, "meant": -1,
}

// A correction begins with what the reader does.
var verbs = regexp.MustCompile(`^(use|pass|add|leave|give|put|raise|set|check|return|make|lower|mount|join|hash)\b`)

// riddles are phrases that readers who don't know the library didn't understand, and the word "write".
var riddles = regexp.MustCompile(`(^|: |, |or )write |takes it|it exempts|goes by the name|beside it|those who|` +
	`those that|those of|(lets|let) nobody|none hold|may stand|inherited already|what a key has|saves? up no|` +
	`shares? states|limits anew|has no (scheme|wildcard|port)|mean those|stint: .*stint: `)

// The messages about options, the warnings and the lines of the log say what to do in plain words. With -v the test
// lists them all.
func TestMessages(t *testing.T) {
	list := func(path string, e ast.Expr, correction bool) int {
		n := 0
		for _, text := range texts(e) {
			n++
			t.Logf("%s: %s", path, text)
			if m := riddles.FindString(text); m != "" {
				t.Errorf("%s: %q has %q", path, text, m)
			}
			if correction && n == 1 && !verbs.MatchString(text) {
				t.Errorf("%s: %q doesn't begin with a verb", path, text)
			}
		}
		return n
	}
	found := 0
	for _, dir := range []string{".", "internal", "store", "tenants", "adapters/std"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && dir == "." && path != ".", d.IsDir() && (d.Name() == "testdata" || d.Name() == "test"):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			name := path
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					at, is := corrections[calledName(n)]
					for i := range n.Args {
						if is && (at < 0 || i == at || i == at-1) {
							found += list(name, n.Args[i], i == at)
						}
					}
				case *ast.KeyValueExpr:
					key, _ := n.Key.(*ast.Ident)
					if key != nil && slices.Contains([]string{"What", "what", "Write", "Problem", "text"}, key.Name) {
						found += list(name, n.Value, key.Name == "Write")
					}
					if c, is := n.Value.(*ast.CompositeLit); is && strings.HasSuffix(name, "mistakes/kinds.go") {
						for _, e := range c.Elts {
							found += list(name, e, false)
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 200 {
		t.Errorf("%d messages found", found)
	}
}

// calledName returns the name of the function or method that a call has.
func calledName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// texts returns the string constants of an expression that have a space. Constants that are added up are one.
func texts(e ast.Expr) (all []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if s := joined(n); s != "" {
				all = append(all, s)
			}
			return false
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && strings.Contains(s, " ") {
				all = append(all, s)
			}
		case *ast.FuncLit:
			return false
		}
		return true
	})
	return all
}

// joined returns the constants of a sum, one behind the other.
func joined(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return joined(e.X) + joined(e.Y)
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return s
		}
	}
	return ""
}
