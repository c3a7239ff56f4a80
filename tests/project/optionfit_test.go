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
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/tests/doctest"
)

// fits are the options there are, and what takes each.
// What compiles and is rejected stands behind a slash.
var fits = []struct{ option, takes string }{
	{"Rate(1, time.Second)", "New WithRoute"},
	{"Only()", "New WithRoute"}, // New rejects it
	{"Exempt()", "New WithRoute"},
	{"WithName(`a`)", "Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithHidden()", "Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithAlgorithm(stint.TokenBucket)", "Rate Quota"},
	{"WithBurst(1)", "Rate Quota Bandwidth / Concurrency AdaptiveConcurrency Ban"},
	{"WithQueue(1)", "Rate Concurrency AdaptiveConcurrency / Quota Bandwidth Ban"},
	{"WithWarmUp(time.Second)", "Rate / Quota"},
	{"WithDebt()", "Rate / Quota"},
	{"WithBuckets(1)", "Rate / Quota"},
	{"WithShare(1, 1)", "Concurrency AdaptiveConcurrency"},
	{"WithFairQueue(stint.GivenKey())", "Concurrency / AdaptiveConcurrency"},
	{"WithAdaptation(stint.Vegas())", "AdaptiveConcurrency / Concurrency"},
	{"WithInitialLimit(1)", "AdaptiveConcurrency / Concurrency"},
	{"WithSampleWindow(time.Second)", "AdaptiveConcurrency / Concurrency"},
	{"WithDirection(stint.Both)", "Bandwidth"},

	{"WithKey(stint.RemoteIP())", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithDryRun(true)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithFailurePolicy(stint.FailOpen)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithBanFor(1)", "Ban"},
	{"WithCost(nil)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency"},
	{"WithFixedCost(1)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency"},
	{"WithMaxWait(1)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency"},
	{"WithSettle(stint.FailedOnly)", "New WithRoute Rate Quota / Concurrency AdaptiveConcurrency"},
	{"WithNearLimit(80)", "New WithRoute Rate Quota / Concurrency AdaptiveConcurrency"},

	{"WithStore(nil)", "New"},
	{"WithRoute(``)", "New"},
	{"WithLimitFunc(nil)", "New"},
	{"WithLimitSource(stint.RemoteIP(), nil)", "New"},
	{"WithSkip(stint.Preflight)", "New WithRoute Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban"},
	{"WithBlock(nil)", "New"},
	{"WithDenyHandler(nil)", "New WithRoute"},
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

// An option compiles on the kinds of limit that it applies to, and on those whose options have the
// same interface; see TestOptionsThatNewRejects.
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
			fits := slices.Contains(strings.Fields(f.takes), taker.name) // one that is rejected, too
			if fits != (err == nil) {
				t.Errorf("%s in %s: %v, want it to compile: %v", f.option, taker.name, err, fits)
			}
			if err != nil && !strings.Contains(err.Error(), "cannot use stint."+name) {
				t.Errorf("%s in %s: %v", f.option, taker.name, err)
			}
		}
	}
	all, err := packages.Import(module)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all.Scope().Names() {
		if strings.HasPrefix(name, "With") && !known[name] {
			t.Errorf("%s isn't in the table", name)
		}
	}
}

// An option that compiles on a kind of limit that doesn't take it is rejected, with words.
func TestOptionsThatNewRejects(t *testing.T) {
	burst, queue := stint.WithBurst(1), stint.WithQueue(1)
	rates := []stint.RateOption{queue, stint.WithWarmUp(time.Second), stint.WithDebt(), stint.WithBuckets(1)}
	slots := []stint.SlotOption{stint.WithAdaptation(stint.Vegas()), stint.WithInitialLimit(1), stint.WithSampleWindow(time.Second)}
	settle := stint.WithSettle(stint.FailedOnly)
	const (
		noBurst   = "WithBurst: this option doesn't apply to %s: leave it out, or use it in a Rate, Quota or Bandwidth"
		noQueue   = "WithQueue: this option doesn't apply to %s: leave it out, or use it in a Rate, Concurrency or AdaptiveConcurrency"
		noSettle  = "WithSettle: this option doesn't apply to %s: leave it out, or use it in a Rate or Quota"
		noNear    = "WithNearLimit: this option doesn't apply to %s: leave it out, or use it in a Rate or Quota"
		rateOnly  = "%s: this option doesn't apply to a Quota: leave it out, or use it in a Rate"
		slotsOnly = "%s: this option doesn't apply to an AdaptiveConcurrency: leave it out, or use it in a Concurrency"
		adaptive  = "%s: this option doesn't apply to a Concurrency: leave it out, or use it in an AdaptiveConcurrency"
	)
	words := map[string]stint.Limit{
		fmt.Sprintf(noBurst, "a Concurrency"):           stint.Concurrency(1, burst),
		fmt.Sprintf(noBurst, "an AdaptiveConcurrency"):  stint.AdaptiveConcurrency(1, 2, burst),
		fmt.Sprintf(noBurst, "a Ban"):                   stint.Ban(1, time.Second, stint.WithBanFor(time.Second), burst),
		fmt.Sprintf(noQueue, "a Quota"):                 stint.Quota(1, stint.Daily, rates[0]),
		fmt.Sprintf(noQueue, "a Bandwidth"):             stint.Bandwidth(5000, queue),
		fmt.Sprintf(noQueue, "a Ban"):                   stint.Ban(1, time.Second, stint.WithBanFor(time.Second), queue),
		fmt.Sprintf(rateOnly, "WithWarmUp"):             stint.Quota(1, stint.Daily, rates[1]),
		fmt.Sprintf(rateOnly, "WithDebt"):               stint.Quota(1, stint.Daily, rates[2]),
		fmt.Sprintf(rateOnly, "WithBuckets"):            stint.Quota(1, stint.Daily, rates[3]),
		fmt.Sprintf(adaptive, "WithAdaptation"):         stint.Concurrency(1, slots[0]),
		fmt.Sprintf(adaptive, "WithInitialLimit"):       stint.Concurrency(1, slots[1]),
		fmt.Sprintf(adaptive, "WithSampleWindow"):       stint.Concurrency(1, slots[2]),
		fmt.Sprintf(slotsOnly, "WithFairQueue"):         stint.AdaptiveConcurrency(1, 2, queue, stint.WithFairQueue(stint.GivenKey())),
		fmt.Sprintf(noSettle, "a Concurrency"):          stint.Concurrency(1, settle),
		fmt.Sprintf(noSettle, "an AdaptiveConcurrency"): stint.AdaptiveConcurrency(1, 2, settle),
		fmt.Sprintf(noNear, "a Concurrency"):            stint.Concurrency(1, stint.WithNearLimit(80)),
		fmt.Sprintf(noNear, "an AdaptiveConcurrency"):   stint.AdaptiveConcurrency(1, 2, stint.WithNearLimit(80)),
	}
	rejected := 0
	for _, f := range fits {
		if _, not, some := strings.Cut(f.takes, " / "); some {
			rejected += len(strings.Fields(not))
		}
	}
	if rejected != len(words) {
		t.Errorf("%d combinations are rejected, %d are tried", rejected, len(words))
	}
	for want, limit := range words {
		err := stint.Check(stint.Rate(1, time.Second, stint.WithName("beside")), stint.WithKey(stint.RemoteIP()), limit)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q alone", err, want)
		}
	}
}
