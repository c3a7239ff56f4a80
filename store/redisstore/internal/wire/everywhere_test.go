package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

const root = "../../../../"

// Every constant of store.Algorithm is in each table and document that has a place for each algorithm. What
// it is missing in is what CONTRIBUTING.md lists for a new one. policy and cmd/stint have a test of theirs.
func TestEveryAlgorithmIsEverywhere(t *testing.T) {
	names := constants(t, "store/algorithm.go")
	steps := constants(t, "internal/algorithm/algorithm.go")
	letters := map[string]string{}
	for i, name := range names {
		a := store.Algorithm(i)
		var missing []string
		check := func(there bool, where string) {
			if !there {
				missing = append(missing, where)
			}
		}
		check(i < len(steps) && steps[i] == name, "internal/algorithm/algorithm.go: the constant, at the same place")
		check(a.String() == name, "internal/algorithm/algorithm.go: its line in algorithms")
		l := limitOf(t, a)
		check(l != nil, "internal/test/versionstest/versionstest.go: Kinds")
		if l != nil {
			for _, panicked := range steplessFunctions(l) {
				check(false, "internal/algorithm/algorithm.go: its case in "+panicked)
			}
			_, letter, _ := strings.Cut(l.StateName(), "/")
			letter, _, _ = strings.Cut(letter, ":")
			check(letter != "" && letters[letter] == "", "internal/algorithm/algorithm.go: a letter of its own")
			letters[letter] = name
		}
		var c codec
		if i < len(codecs) {
			c = codecs[i]
		}
		check(c.set != 0 && c.letter != 0 && c.arguments != nil && c.vary != nil && c.state != nil,
			"store/redisstore/internal/wire/codecs.go: its line in codecs")
		set := slices.IndexFunc(scripts.Names(), func(file string) bool { return scripts.Named(file) == c.set })
		check(set >= 0, "internal/scripts/scripts.go: its line in algorithms, for a file in lua")
		lower := strings.ToLower(name)
		check(a == store.Ban || exists("store/storetest/testdata/"+lower+".trace"),
			"store/storetest/testdata/"+lower+".trace")
		for _, in := range []struct{ files, what string }{
			{"limits.go", `\bstore\.NAME\b`},
			{"docs/algorithms.md", `(?m)^## NAMEs?\b`},
			{"docs/choosing.md", `\bNAME\b`},
			{"store/*_test.go", `\b(store\.NAME|Algorithm: NAME)\b`},
			{"internal/test/versionstest/*.go", `\bstore\.NAME\b`},
		} {
			found := mentions(t, in.files, strings.ReplaceAll(in.what, "NAME", name))
			check(found, in.files)
		}
		if missing != nil {
			t.Errorf("%s is missing in\n\t%s", name, strings.Join(missing, "\n\t"))
		}
	}
	if len(steps) != len(names) || len(codecs) != len(names) {
		t.Errorf("%d constants in package store, %d in internal/algorithm, %d codecs", len(names), len(steps), len(codecs))
	}
}

// limitOf returns a limit of the algorithm with the numbers that versionstest has for it, or nil.
func limitOf(t *testing.T, a store.Algorithm) *store.Limit {
	for _, s := range versionstest.Kinds(t) {
		if s.Algorithm == a {
			s.Name = "a"
			l, err := store.NewLimit(s)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
	}
	return nil
}

// steplessFunctions returns the functions of internal/algorithm that panic for a limit.
func steplessFunctions(limit *store.Limit) (names []string) {
	l, now, receipt := inside.Limit(limit), algorithm.Now{}, algorithm.Receipt{Cost: 1}
	for name, call := range map[string]func(s *algorithm.State, r *algorithm.Result){
		"Step": func(s *algorithm.State, r *algorithm.Result) {
			l.Step(&now, algorithm.Charge{Cost: 1, MaxWait: time.Second}, s, r)
		},
		"Rebase": func(s *algorithm.State, r *algorithm.Result) { l.Rebase(&now, s) },
		"Amend": func(s *algorithm.State, r *algorithm.Result) {
			l.Amend(&now, &algorithm.Settlement{Cost: 2, Receipt: receipt}, s, r)
		},
		"Lifetime": func(s *algorithm.State, r *algorithm.Result) { l.Lifetime(&now, s, r) },
		"validFor": func(s *algorithm.State, r *algorithm.Result) { s.Read = true; l.Accept(s) },
	} {
		func() {
			defer func() {
				if recover() != nil {
					names = append(names, name)
				}
			}()
			var s algorithm.State
			var r algorithm.Result
			l.Step(&now, algorithm.Charge{Cost: 1}, &s, &r)
			s.Live = true
			call(&s, &r)
		}()
	}
	slices.Sort(names)
	return names
}

// constants returns the names of a file's constants of the type Algorithm, in order.
func constants(t *testing.T, file string) (names []string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), root+file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		first := group.Specs[0].(*ast.ValueSpec)
		if fmt.Sprint(first.Type) != "Algorithm" {
			continue
		}
		for _, s := range group.Specs {
			names = append(names, s.(*ast.ValueSpec).Names[0].Name)
		}
	}
	return names
}

func exists(file string) bool {
	_, err := os.Stat(root + file)
	return err == nil
}

// mentions reports whether one of some files has what an expression matches.
func mentions(t *testing.T, files, expression string) bool {
	all, err := filepath.Glob(root + files)
	if err != nil || len(all) == 0 {
		t.Fatal(files, err)
	}
	found := regexp.MustCompile(expression)
	return slices.ContainsFunc(all, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && found.Match(text)
	})
}
