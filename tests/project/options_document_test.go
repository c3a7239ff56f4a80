package project

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const optionsFile = "docs/options.md"

// optionsHead is the beginning of the document.
const optionsHead = `# Options

This page lists every option with its default, its values and where it is allowed. ` + "`make api`" + ` writes this page from
the doc comments of the functions. For the full text on an option, run ` + "`go doc github.com/stint-go/stint.WithBurst`" + `.

If an option is given in several places, the option of a limit takes precedence over the option of the limit's route.
The option of the route takes precedence over the option of the limiter. An option that is allowed in ` + "`New`" + ` is also
allowed in ` + "`With` and `Update`" + `. Durations are values of type time.Duration, such as 5*time.Second. Positive durations
below a millisecond are errors.
`

// An optionGroup is a table of docs/options.md.
type optionGroup struct {
	title, dir string
	results    string // the types of its options
	in         string // where they stand, unless fits says it
}

var optionGroups = []optionGroup{
	{"Options of a limit", ".", "LimitOption RateOption SlotOption BandwidthOption BanOption", ""},
	{"Options of a limit, a route or a limiter", ".", "SharedOption ChargeOption", ""},
	{"Options of a route or a limiter", ".", "RouteOption", ""},
	{"Options of a limiter", ".", "Option", ""},
	{"Gin", "adapters/gin", "stint.Option stint.RouteOption Option", "`New`, `Middleware`"},
	{"Echo v4", "adapters/echo", "stint.Option stint.RouteOption Option", "`New`, `Middleware`"},
	{"Outgoing requests", "adapters/std", "TransportOption", "`NewTransport`"},
	{"Redis", "store/redisstore", "Option", "`redisstore.New`"},
	{"Failover", "store/failover", "Option", "`failover.New`"},
	{"Memory", "store/memstore", "Option", "`memstore.New`"},
	{"Tenants", "tenants", "Option", "`tenants.New`"},
	{"Policy files", "policy", "Option", "`policy.Parse`, `Load`, `Watch`"},
	{"Live page", "console", "Option", "`console.New`"},
	{"OpenTelemetry", "observe/otel", "Option", "`stintotel.Observe`"},
}

// docs/options.md is what the doc comments of the options say: make api writes it.
func TestOptionsDocument(t *testing.T) {
	var text strings.Builder
	text.WriteString(optionsHead)
	for _, g := range optionGroups {
		options := optionsOf(t, g)
		if len(options) == 0 {
			t.Errorf("no options: %s", g.title)
		}
		fmt.Fprintf(&text, "\n## %s\n\n| option | does | default | values | allowed in |\n| --- | --- | --- | --- | --- |\n", g.title)
		for _, f := range options {
			text.WriteString(optionRow(t, g, f))
		}
	}
	if *updateAPI {
		write(t, optionsFile, text.String(), 0o644)
	}
	if read(t, optionsFile) != text.String() {
		t.Errorf("%s isn't what the doc comments say: make api", optionsFile)
	}
}

// optionsOf returns a group's functions, in alphabetical order.
func optionsOf(t *testing.T, g optionGroup) (all []*doc.Func) {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(g.dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, module+"/"+g.dir)
	if err != nil {
		t.Fatal(err)
	}
	functions := p.Funcs
	for _, kind := range p.Types {
		functions = append(functions, kind.Funcs...)
	}
	for _, f := range functions {
		if r := f.Decl.Type.Results; r != nil && len(r.List) == 1 &&
			slices.Contains(strings.Fields(g.results), types.ExprString(r.List[0].Type)) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *doc.Func) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// optionRow is the row of an option.
func optionRow(t *testing.T, g optionGroup, f *doc.Func) string {
	t.Helper()
	var names, parameters []string
	for _, p := range f.Decl.Type.Params.List {
		kind := types.ExprString(p.Type)
		if _, isFunc := p.Type.(*ast.FuncType); isFunc {
			kind = "func"
		}
		for _, n := range p.Names {
			names = append(names, n.Name)
			parameters = append(parameters, n.Name+" "+kind)
		}
	}
	argument := regexp.MustCompile(`^(` + strings.Join(append(names, "Both", "A name"), "|") + `)( and \w+)? (is|are|has|have|must) `)
	var does string
	var defaults, values []string
	for i, s := range sentences(f.Doc) {
		switch {
		case i == 0:
			does = strings.TrimSuffix(strings.TrimPrefix(s, f.Name+" "), ":")
			if as := likeStint.FindString(does); as != "" {
				defaults = append(defaults, "as in package stint")
			}
		case saysDefault.MatchString(s):
			defaults = append(defaults, s)
		case argument.MatchString(s), regexp.MustCompile(`\b(returns an error|panics)\b`).MatchString(s) && !strings.HasPrefix(s, "If "):
			values = append(values, s)
		}
	}
	if len(names) > 0 && defaults == nil && strings.HasPrefix(f.Name, "With") && !strings.HasPrefix(does, "lets a file use ") {
		t.Errorf("%s.%s: the doc comment doesn't say the default", g.dir, f.Name)
	}
	in := standsIn(g, f.Name)
	if in == "" {
		t.Errorf("%s isn't in the table fits", f.Name)
	}
	call := f.Name + "(" + strings.Join(parameters, ", ") + ")"
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", call, does, strings.Join(defaults, " "), strings.Join(values, " "), in)
}

// saysDefault matches the sentences that say what holds without the option.
var (
	saysDefault = regexp.MustCompile(
		`\b[Tt]he default( \w+)?(, also for nil,)? (is|depends)\b|^By default|^Without (it|this option|With\w+)\b|^There is no .*default|no default|needs this option`)
	likeStint = regexp.MustCompile(`^is (like )?stint\.`)
)

// onlyIn has the places of options that also compile in New, which rejects or ignores them.
var onlyIn = map[string]string{"Complete": "`Update`", "WithoutRoutes": "`Update`", "WithoutLimitFuncs": "`Update`", "Only": "`WithRoute`"}

// standsIn says where an option may stand.
func standsIn(g optionGroup, name string) string {
	if g.in != "" {
		return g.in
	}
	if place := onlyIn[name]; place != "" {
		return place
	}
	for _, f := range fits {
		if option, _, _ := strings.Cut(f.option, "("); option == name {
			takes, _, _ := strings.Cut(f.takes, " / ")
			takes = strings.Replace(takes, "Rate Quota Concurrency AdaptiveConcurrency Bandwidth Ban", "any_limit", 1)
			places := "`" + strings.Join(strings.Fields(takes), "`, `") + "`"
			return strings.Replace(places, "`any_limit`", "any limit", 1)
		}
	}
	return ""
}

// sentences returns the sentences of a doc comment, without its code. An item of a list is one.
func sentences(text string) (all []string) {
	text = regexp.MustCompile(`\[([\w.]+)\]`).ReplaceAllString(text, "$1")
	for _, paragraph := range strings.Split(strings.ReplaceAll(text, "\n  - ", "\n\n  - "), "\n\n") {
		if strings.HasPrefix(paragraph, "\t") {
			continue
		}
		item, isItem := strings.CutPrefix(strings.TrimPrefix(paragraph, "\n"), "  - ")
		words := strings.ReplaceAll(strings.Join(strings.Fields(item), " "), "|", `\|`)
		if isItem {
			all = append(all, words)
			continue
		}
		for {
			end := regexp.MustCompile(`\. [a-zA-Z]`).FindStringIndex(words)
			if end == nil {
				all = append(all, words)
				break
			}
			all, words = append(all, words[:end[0]+1]), words[end[0]+2:]
		}
	}
	return all
}
