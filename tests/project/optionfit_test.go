package project

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/tests/doctest"
)

// fits are the options there are, and what takes each.
var fits = []struct{ option, takes string }{
	{"Rate(1, time.Second)", "New WithRoute"},
	{"Only()", "New WithRoute"}, // New rejects it
	{"Exempt()", "New WithRoute"},
	{"WithName(`a`)", "Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithHidden()", "Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithAlgorithm(stint.TokenBucket)", "Rate Quota"},
	{"WithBurst(1)", "Rate Quota Bandwidth"},
	{"WithQueue(1)", "Rate Concurrency AdaptiveConcurrency"},
	{"WithWarmUp(1)", "Rate"},
	{"WithDebt()", "Rate"},
	{"WithBuckets(1)", "Rate"},
	{"WithShare(1, 1)", "Concurrency AdaptiveConcurrency"},
	{"WithAdaptation(stint.Vegas())", "AdaptiveConcurrency"},
	{"WithInitialLimit(1)", "AdaptiveConcurrency"},
	{"WithSampleWindow(1)", "AdaptiveConcurrency"},
	{"WithDirection(stint.Both)", "Bandwidth"},

	{"WithKey(stint.RemoteIP())", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithDryRun(true)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithFailurePolicy(stint.FailOpen)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithBanFor(1)", "Ban"},
	{"WithCost(nil)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency"},
	{"WithFixedCost(1)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency"},
	{"WithMaxWait(1)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency"},
	{"WithSettle(nil)", "New WithRoute Rate Quota"},

	{"WithStore(nil)", "New"},
	{"WithRoute(``)", "New"},
	{"WithLimitFunc(nil)", "New"},
	{"WithLimitSource(stint.RemoteIP(), nil)", "New"},
	{"WithSkip(stint.Preflight)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithBlock(nil)", "New"},
	{"WithDenyHandler(nil)", "New"},
	{"WithErrorHandler(nil)", "New"},
	{"WithProblem()", "New"},
	{"WithHeaders()", "New"},
	{"WithRetryJitter(0)", "New"},
	{"WithObserver(nil)", "New"},
	{"WithLimiterName(`api`)", "New"},
	{"WithoutWarnings()", "New"},
	{"WithLogger(nil)", "New"},
	{"WithLogKeys()", "New"},
	{"WithEmptyKey(stint.DenyEmptyKey)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithPriority(nil)", "New"},
	{"WithoutPermit()", "New"},
	{"WithoutRoutes()", "New"},
	{"WithoutLimitFuncs()", "New"},
}

var takers = []struct{ name, call string }{
	{"New", "stint.Check(%s)"},
	{"WithRoute", "stint.WithRoute(``, %s)"},
	{"Rate", "stint.Rate(1, time.Second, %s)"},
	{"Quota", "stint.Quota(1, stint.Daily, %s)"},
	{"Concurrency", "stint.Concurrency(1, %s)"},
	{"AdaptiveConcurrency", "stint.AdaptiveConcurrency(1, 2, %s)"},
	{"Bandwidth", "stint.Bandwidth(1, %s)"},
	{"Ban", "stint.Ban(1, time.Second, stint.WithBanFor(time.Second), %s)"},
}

// An option compiles on the kinds of limit that it applies to, and on no others.
func TestOptionsFit(t *testing.T) {
	fset := token.NewFileSet()
	packages := doctest.Exported(t, fset, module, "time")
	compiles := func(call string) error {
		text := "package p; import (\"time\"; \"github.com/stint-go/stint\"); var _ time.Duration; func _() { _, _ = " + call + ", stint.Never }"
		f, err := parser.ParseFile(fset, "p.go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		var wrong error
		config := types.Config{Importer: packages, Error: func(err error) { wrong = err }}
		_, _ = config.Check("p", fset, []*ast.File{f}, nil)
		return wrong
	}

	known := map[string]bool{}
	for _, f := range fits {
		name, _, _ := strings.Cut(f.option, "(")
		known[name] = true
		for _, taker := range takers {
			err := compiles(fmt.Sprintf(taker.call, "stint."+f.option))
			fits := slices.Contains(strings.Fields(f.takes), taker.name)
			if fits != (err == nil) {
				t.Errorf("%s in %s: %v, want it to compile: %v", f.option, taker.name, err, fits)
			}
			if err != nil && !strings.Contains(err.Error(), "cannot use stint."+name) {
				t.Errorf("%s in %s: %v", f.option, taker.name, err)
			}
		}
	}
	stint, err := packages.Import(module)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stint.Scope().Names() {
		if strings.HasPrefix(name, "With") && !known[name] {
			t.Errorf("%s isn't in the table", name)
		}
	}
}
