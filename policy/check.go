package policy

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// probe is a valid limit: beside it, what stint.Check says about one other option is
// about that option alone.
var probe = stint.Rate(1<<40, time.Second, stint.WithAlgorithm(stint.FixedWindow), stint.WithName("probe"),
	stint.WithKey(stint.Global()))

// problemsOf returns the problems stint.Check finds with options.
func problemsOf(opts ...stint.Option) (all []stint.OptionError) {
	joined, _ := stint.Check(opts...).(interface{ Unwrap() []error })
	if joined == nil {
		return nil
	}
	for _, err := range joined.Unwrap() {
		var e *stint.OptionError
		if errors.As(err, &e) {
			all = append(all, *e)
		}
	}
	return all
}

// rejects asks stint.Check about options, reports its problems at n, the value of
// field, and returns whether there were any.
func (d *decoder) rejects(n *yaml.Node, field string, opts ...stint.Option) bool {
	all := problemsOf(opts...)
	for _, e := range all {
		d.bad(n, "%s", inFileWords(field+" "+n.Value, e))
	}
	return len(all) > 0
}

// inFileWords describes a problem in the words of a file. written is the file's text for the option.
func inFileWords(written string, e stint.OptionError) string {
	problem, write := e.Problem, e.Write
	if names := e.Names(); len(names) > 0 {
		const between = "\x00"
		problem, write, _ = strings.Cut(replaceNames(problem+between+write, names), between)
	}
	if strings.HasSuffix(write, "a number without a unit is in nanoseconds") { // a file's durations have units
		write = "use 1ms or more"
	}
	if problem = cmp.Or(problem, written); problem != "" {
		problem += ": "
	}
	return problem + write
}

// replaceNames replaces names in a text, which has them in that order, by a file's words.
func replaceNames(text string, names []string) string {
	var b strings.Builder
	for _, name := range names {
		before, after, _ := strings.Cut(text, name)
		b.WriteString(before)
		b.WriteString(cmp.Or(fileWords[name], name))
		text = after
	}
	return b.String() + text
}

// fileWords are a file's words for the names of Go's in problems.
var fileWords = map[string]string{
	"Period": "rate", "Window": "quota",
	"Hourly": "hourly", "Daily": "daily", "Weekly": "weekly", "Monthly": "monthly", "Yearly": "yearly", "From": "from",
	"In": "in", "Every": "every", "a Rate or a Quota": "a rate or a quota",
	"a Rate, a Quota or a Concurrency": "a rate, a quota or a concurrency",
	"GivenKey()":                       "given", "stint.RemoteIP()": "remote-ip", "RemoteIP()": "remote-ip", "Pattern()": "pattern",
	"Method()": "method", "Global()": "global", `netip.MustParsePrefix("10.0.0.0/8")`: "10.0.0.0/8",
	"time.Second": "1s", "WithQueue(0)": "queue: 0", "stint.WithQueue": "queue", "stint.WithMaxWait": "max-wait",
	"stint.WithBurst": "burst", "WithShare": "shares", "WithDebt": "debt: true", "WithWarmUp": "warm-up",
	"WithAlgorithm": "algorithm", "WithNearLimit": "near-limit",
}

func init() {
	for _, a := range algorithms {
		fileWords[a.alg.String()] = a.name
	}
	fileWords["WarmUp"] = "warm-up" // an option
}

// algorithms are a file's words for algorithms.
var algorithms = []struct {
	name string
	alg  stint.Algorithm
}{
	{"token-bucket", stint.TokenBucket},
	{"interval-bucket", stint.IntervalBucket},
	{"leaky-bucket", stint.LeakyBucket},
	{"fixed-window", stint.FixedWindow},
	{"sliding-window", stint.SlidingWindow},
	{"sliding-counter", stint.SlidingCounter},
	{"sliding-log", stint.SlidingLog},
}

// reportProblems reports the problems that stint.Check finds with a whole policy, each at
// the limit or route it is about, or at the document.
func (d *decoder) reportProblems(doc *document, all []stint.OptionError) {
	routes, limits := map[string]*yaml.Node{}, map[string]*yaml.Node{}
	if len(all) > 0 {
		for _, r := range doc.routes {
			routes[r.pattern] = r.node
		}
		for _, l := range doc.staticLimits() {
			limits[l.name] = l.node
		}
	}
	for _, e := range all {
		d.bad(cmp.Or(limits[e.Limit], routes[e.Route], doc.node), "%s", inFileWords("", e))
	}
}
