package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
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

// Every constant of store.Algorithm is in each switch, table and document that has a place for each algorithm.
// policy and cmd/stint have a test of theirs. CONTRIBUTING.md lists a few places more, which few algorithms need.
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
		l, lacks := limitOf(t, a)
		check(l != nil || lacks != "", "internal/test/versionstest/versionstest.go: Kinds")
		check(lacks == "", "internal/algorithm/algorithm.go: its case in fillDefaults, workOut or Step: "+lacks)
		if l != nil {
			for _, function := range functionsWithout(l) {
				check(false, "internal/algorithm/algorithm.go: its case in "+function)
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
		for _, in := range []struct {
			file, what string
			except     []store.Algorithm // which have no place there
		}{
			{"limits.go", `\bstore\.NAME\b`, nil},
			{"internal/lines/supply.go", `\bstore\.NAME\b`, nil},
			{"internal/test/versionstest/versionstest.go", `\bstore\.NAME\b`, nil},
			{"internal/test/versionstest/bounds.go", `\bstore\.NAME\b`, []store.Algorithm{store.Concurrency}},
			{"internal/memory/inplace_test.go", `\bstore\.NAME\b`, nil},
			{"store/redisstore/internal/wire/differential_test.go", `\bstore\.NAME\b`, nil},
			{"store/model_test.go", `\bstore\.NAME\b`, []store.Algorithm{store.Ban}},
			{"store/storetest/testdata/" + lower + ".trace", `(?m) take `, []store.Algorithm{store.Ban}},
			{"store/storetest/atleast.go", `\bNAME\b`, nil},
			{"store/storetest/retry.go", `\bNAME\b`, []store.Algorithm{store.Concurrency, store.Ban}},
			{"store/storetest/versions.go", `\bNAME\b`, []store.Algorithm{store.Concurrency}},
			{"docs/algorithms.md", `(?m)^## NAMEs?\b`, nil},
			{"docs/choosing.md", `\bNAME\b`, nil},
			{"docs/guarantees.md", `\bNAME\b`, nil},
			{"docs/plots/main.go", `\bNAME\b`, []store.Algorithm{store.Ban}},
			{"docs/plots/timeline.go", `\bNAME\b`, []store.Algorithm{store.Ban}},
		} {
			found := mentions(t, in.file, strings.ReplaceAll(in.what, "NAME", name))
			check(found || slices.Contains(in.except, a), in.file)
		}
		if missing != nil {
			t.Errorf("%s is missing in\n\t%s", name, strings.Join(missing, "\n\t"))
		}
	}
	if len(steps) != len(names) || len(codecs) != len(names) {
		t.Errorf("%d constants in package store, %d in internal/algorithm, %d codecs", len(names), len(steps), len(codecs))
	}
}

// limitOf returns a limit of the algorithm with the numbers that versionstest has for it, or nil, and with
// what NewLimit panicked.
func limitOf(t *testing.T, a store.Algorithm) (l *store.Limit, panicked string) {
	defer func() {
		if p := recover(); p != nil {
			panicked = fmt.Sprint(p)
		}
	}()
	for _, s := range versionstest.Kinds(t) {
		if s.Algorithm == a {
			s.Name = "a"
			l, err := store.NewLimit(s)
			if err != nil {
				t.Fatal(err)
			}
			return l, ""
		}
	}
	return nil, ""
}

// functionsWithout returns the functions of internal/algorithm that have no case for the limit's algorithm,
// and those that panic for another reason, with that reason.
func functionsWithout(limit *store.Limit) (names []string) {
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
				switch p := recover(); p {
				case nil:
				case limit.Spec().Algorithm.String():
					names = append(names, name)
				default:
					names = append(names, fmt.Sprintf("%s, or in what that calls: %v", name, p))
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

var comment = regexp.MustCompile(`//.*`)

// mentions reports whether a file has what an expression matches, in Go outside comments.
func mentions(t *testing.T, file, expression string) bool {
	text, err := os.ReadFile(root + file)
	if err != nil && !strings.HasSuffix(file, ".trace") {
		t.Fatal(err)
	}
	if strings.HasSuffix(file, ".go") {
		text = comment.ReplaceAll(text, nil)
	}
	return regexp.MustCompile(expression).Match(text)
}
