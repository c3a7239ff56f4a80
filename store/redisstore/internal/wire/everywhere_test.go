package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
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

// spot is a place in a file that has something for each algorithm, or for each field of a Spec. Places that only few
// algorithms need aren't listed here: CONTRIBUTING.md marks them with a †.
type spot struct {
	file   string   // of this repository
	in     string   // the function or variable, or the head of the table; "" for the whole file
	what   string   // matches what the file has; NAME stands for the algorithm or the field
	except []string // which aren't there
}

const (
	named  = `\b(store|stint)\.NAME\b`
	listed = `(?m)^\| .*\bNAMEs?\b`
)

var (
	noRate = []string{"Concurrency", "Ban"}
	silent = append(noRate, "TokenBucket") // a Spec without an algorithm is a TokenBucket
)

// algorithmPlaces are the places of each algorithm.
var algorithmPlaces = []spot{
	// What counts.
	{"limits.go", "", `\bstore\.NAME\b`, nil},
	{"internal/limit/kind.go", "HasUse", named, noRate},
	{"internal/near/near.go", "UseKnown", named, append(noRate, "WarmUp")},
	{"internal/near/near.go", "inWindows", named, append(noRate, "WarmUp")},
	{"internal/near/near.go", "startsAnew", named, append(noRate, "WarmUp")},
	{"internal/lines/supply.go", "SupplyOf", named, nil},

	// Tests of the steps.
	{"store/model_test.go", "newModel", named, []string{"Ban"}},
	{"store/differential_test.go", "drawRule", named, []string{"Ban"}},
	{"store/span_test.go", "allowed", named, noRate},
	{"store/fuzz_test.go", "readRule", named, []string{"Ban"}},
	{"store/largest_test.go", "largest", named, []string{"TokenBucket", "Ban"}},
	{"store/clock_test.go", "TestClockSetBack", named, noRate},
	{"store/future_test.go", "minuteLimits", named, noRate},
	{"store/refund_test.go", "tightRule", named, noRate},
	{"store/settle_test.go", "TestSettledOftenIsSettledOnce", named, []string{"TokenBucket", "Ban"}},
	{"internal/test/versionstest/versionstest.go", "Kinds", named, []string{"TokenBucket"}},
	{"internal/test/versionstest/versionstest.go", "version", named, []string{"Concurrency"}},
	{"internal/test/versionstest/bounds.go", "bound", named, []string{"Concurrency"}},

	// Tests of the stores.
	{"internal/memory/inplace_test.go", "TestStatesInPlace", named, nil},
	{"internal/memory/expiry_test.go", "TestExpiryIsLossless", named, []string{"TokenBucket"}},
	{"internal/memory/store_test.go", "TestExactUnderConcurrency", named, []string{"WarmUp", "Ban"}},
	{"store/redisstore/internal/wire/differential_test.go", "spec", named, nil},
	{"store/redisstore/internal/wire/largest_test.go", "TestTwinsAtTheLargest", named, []string{"TokenBucket", "Ban"}},
	{"store/redisstore/internal/wire/malformed_test.go", "TestTwinsOnMalformedStates", named,
		[]string{"LeakyBucket", "Concurrency"}},
	{"store/redisstore/rights_test.go", "everyKind", named, []string{"TokenBucket"}},
	{"store/redisstore/clients_test.go", "versioned", named, []string{"TokenBucket"}},
	{"store/redisstore/lifetime_test.go", "TestLifetimes", named, append(silent, "LeakyBucket")},
	{"store/redisstore/fleet_test.go", "TestServersRollingDeploy", named, []string{"Ban"}},
	{"store/failover/part_test.go", "TestProcessesShareALimit", named, append(silent, "LeakyBucket", "WarmUp")},
	{"store/storetest/retry.go", "kinds", `\bNAME\b`, noRate},
	{"store/storetest/exact.go", "days", `\bNAME\b`, append(noRate, "SlidingCounter", "WarmUp")},
	{"store/storetest/atleast.go", "", `\bNAME\b`, nil},
	{"store/storetest/versions.go", "isWindow", named, noRate},
	{"store/storetest/several.go", "allOrNone", named, []string{"TokenBucket", "SlidingCounter", "Ban"}},

	// Tests of limiters.
	{"limits_near_test.go", "nearLimits", named, append(noRate, "WarmUp")},
	{"limits_lines_test.go", "TestRefundBesideWaiters", named, append(noRate, "LeakyBucket", "WarmUp")},
	{"resume_test.go", "slowLimits", `\bNAME\b`, noRate},

	// Documents.
	{"docs/algorithms.md", "", `(?m)^## NAMEs?\b`, nil},
	{"docs/algorithms.md", "limit | write | state per key", listed, nil},
	{"docs/algorithms.md", "limit | if its numbers change", listed, []string{"Concurrency"}},
	{"docs/choosing.md", "algorithm | at once | then", listed, []string{"Ban"}},
	{"docs/guarantees.md", "limit | admits at most", listed, nil},
	{"docs/guarantees.md", "limit | admits at least", listed, nil},
	{"docs/redis.md", "algorithm | after one request", listed, []string{"Ban"}},
	{"docs/plots/main.go", "rates", `\bNAME\b`, noRate},
	{"docs/plots/timeline.go", "rows", `\bNAME\b`, []string{"Ban"}},
}

// fieldPlaces are the places of each field of a store.Spec that only some algorithms have.
var fieldPlaces = []spot{
	{"internal/algorithm/spec.go", "checkExtras", `\bs\.NAME\b`, nil},
	{"internal/optionerror/optionerror.go", "options", `"NAME"`, nil},
	{"internal/compile/describe.go", "describe", `\bs\.NAME\b`, nil},
	{"cmd/stint/internal/serve/token.go", "", `(&s|k\.Spec)\.NAME\b`, nil},
	{"store/storetest/trace.go", "setOption", `\bs\.NAME\b`, []string{"Ban"}},
	{"store/differential_test.go", "drawRule", `\bs\.NAME\b`, []string{"Ban"}},
	{"internal/test/versionstest/versionstest.go", "version", `\bs\.NAME\b`, nil},
	{"store/redisstore/internal/wire/differential_test.go", "spec", `\bs\.NAME\b`, nil},
	{"store/redisstore/internal/wire/differential_test.go", "another", `\bs\.NAME\b`, nil},
}

// Each number of a Spec that only some algorithms have is in each of fieldPlaces.
func TestEveryNumberIsEverywhere(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[store.Spec]()) {
		if slices.Contains([]string{"Name", "Algorithm", "Units", "Period", "Window"}, f.Name) {
			continue
		}
		if missing := missingIn(t, fieldPlaces, f.Name); missing != nil {
			t.Errorf("Spec.%s is missing in\n\t%s", f.Name, strings.Join(missing, "\n\t"))
		}
	}
}

// The READMEs say how many algorithms a Rate or a Quota may have.
func TestNumberOfAlgorithms(t *testing.T) {
	n := len(constants(t, "store/algorithm.go")) - len(noRate)
	words := [...][2]string{
		8: {"Eight", "八"}, 9: {"Nine", "九"}, 10: {"Ten", "十"}, 11: {"Eleven", "十一"}, 12: {"Twelve", "十二"},
	}
	if n >= len(words) {
		t.Fatalf("no word for %d", n)
	}
	for _, p := range []spot{
		{"README.md", "", `\*\*` + words[n][0] + ` \[algorithms\]`, nil},
		{"README.zh-CN.md", "", `\*\*` + words[n][1] + `种\[算法\]`, nil},
	} {
		if !mentions(t, p, "") {
			t.Errorf("%s doesn't say that there are %d algorithms", p.file, n)
		}
	}
}

// Every constant of store.Algorithm has its cases in internal/algorithm, its scripts, its trace and a place in each of
// algorithmPlaces. policy and cmd/stint have a test of theirs.
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
		trace := mentions(t, spot{"store/storetest/testdata/" + strings.ToLower(name) + ".trace", "", `(?m) take `, nil}, "")
		check(trace || a == store.Ban, "store/storetest/testdata: its trace")
		missing = append(missing, missingIn(t, algorithmPlaces, name)...)
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

// missingIn returns the places that don't have an algorithm or a field of a Spec.
func missingIn(t *testing.T, places []spot, name string) (missing []string) {
	for _, p := range places {
		if slices.Contains(p.except, name) || mentions(t, p, name) {
			continue
		}
		where := p.file
		if p.in != "" {
			where += ": " + p.in
		}
		missing = append(missing, where)
	}
	return missing
}

var comment = regexp.MustCompile(`//.*`)

// mentions reports whether a place has a name, in Go outside comments.
func mentions(t *testing.T, p spot, name string) bool {
	t.Helper()
	return regexp.MustCompile(strings.ReplaceAll(p.what, "NAME", name)).MatchString(textOf(t, p))
}

// textOf returns the text of a place.
func textOf(t *testing.T, p spot) string {
	t.Helper()
	data, err := os.ReadFile(root + p.file)
	if err != nil && !strings.HasSuffix(p.file, ".trace") {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.HasSuffix(p.file, ".go") {
		if p.in == "" {
			return text
		}
		_, table, found := strings.Cut(text, "\n| "+p.in+" |")
		if !found {
			t.Fatalf("%s has no table | %s |", p.file, p.in)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		return table
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), "", data, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p.in != "" {
		at := declaration(parsed, p.in)
		if at == nil {
			t.Fatalf("%s has no %s", p.file, p.in)
		}
		text = text[at.Pos()-parsed.FileStart : at.End()-parsed.FileStart]
	}
	return comment.ReplaceAllString(text, "")
}

// declaration returns the first declaration of a function, variable or constant in a file, or nil.
func declaration(f *ast.File, name string) ast.Node {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name {
				return d
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && v.Names[0].Name == name {
					return v
				}
			}
		}
	}
	return nil
}
