package policy

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// probe is a limit nobody can object to: with it one other option can be shown
// to stint.Check alone, so that what New says is about that option.
var probe = stint.Rate(1, time.Second, stint.WithName("probe"), stint.WithKey(stint.Global()))

// problems is what stint.Check has against options.
func problems(opts ...stint.Option) []string {
	err := stint.Check(opts...)
	if err == nil {
		return nil
	}
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	var texts []string
	for _, e := range errs {
		texts = append(texts, strings.TrimPrefix(e.Error(), "stint: "))
	}
	return texts
}

// reports reports at n what stint.Check has against options, if anything.
func (d *decoder) reports(n *yaml.Node, opts ...stint.Option) bool {
	texts := problems(opts...)
	for _, text := range texts {
		d.bad(n, "%s", inFile(text))
	}
	return len(texts) > 0
}

// origin is where an error says that it comes from. In a file that is its
// place.
var origin = regexp.MustCompile(`^(WithShare\(\d+, \d+\): |(limit|WithRoute|WithKey|WithSkip|WithBlock|IP|FromCIDR|Header|Cookie)(\(| |:)("(\\.|[^"\\])*"\)?:?|) ?(\)?: )?)`)

// inFile is text as it is said to somebody who writes a file and not Go.
func inFile(text string) string {
	for {
		rest := strings.TrimPrefix(text, origin.FindString(text))
		if rest == text {
			return beside.ReplaceAllString(fileWords.Replace(text), "algorithm: $1")
		}
		text = rest
	}
}

// fileWords are a file's words for those of the Go API.
var fileWords = strings.NewReplacer(append([]string{
	"the WarmUp algorithm", "algorithm: warm-up",
	"WarmUp without a warm-up period", "algorithm: warm-up without the field warm-up",
	"Every is aligned", "a window of that length is aligned",
	"WithWarmUp", "warm-up",
	"WithBuckets", "buckets",
	"WithMaxWait", "max-wait",
	"WithAging", "aging",
	"WithTolerance", "tolerance",
	"WithInitialLimit", "initial-limit",
	"WithSampleWindow", "sample-window",
	"AdaptiveConcurrency", "adaptive-concurrency",
	"WithBurst", "burst",
	"Bandwidth", "bandwidth",
	"WithCost", "cost",
	"WithSettle", "settle",
	"a Rate, a Quota or a Concurrency that nobody waits for beside the Ban", "a rate, a quota or a concurrency that nobody waits for beside it",
	"another stint.WithName", "another name",
	`netip.MustParsePrefix("10.0.0.0/8")`, "10.0.0.0/8",
	"stint.RemoteIP()", "remote-ip",
	"Join: GivenKey()", "given",
	"Hash: GivenKey()", "given",
	"4*time.Second", "4s",
	"time.Second", "1s",
	"Hourly, Daily, Weekly or Monthly.In(location)", "hourly, daily, weekly or monthly",
	"or a Period", "or a rate",
	"or a calendar window", "or a quota",
}, algorithmPairs()...)...)

var beside = regexp.MustCompile(`WithAlgorithm\(([a-z-]+)\)`)

// algorithms are the words for algorithms.
var algorithms = []struct {
	name string
	alg  stint.Algorithm
}{
	{"token-bucket", stint.TokenBucket},
	{"interval-bucket", stint.IntervalBucket},
	{"leaky-bucket", stint.LeakyBucket},
	{"fixed-window", stint.FixedWindow},
	{"sliding-window", stint.SlidingWindow},
	{"sliding-log", stint.SlidingLog},
	{"warm-up", stint.WarmUp},
}

func algorithmPairs() (pairs []string) {
	for _, a := range algorithms {
		pairs = append(pairs, a.alg.String(), a.name)
	}
	return pairs
}

// attribute reports what stint.Check has against a whole policy, each problem at
// the route or the limit that it names, or else at the document.
func (d *decoder) attribute(doc *document, texts []string) {
	for _, text := range texts {
		at := doc.node
		for _, r := range doc.routes {
			if strings.HasPrefix(text, fmt.Sprintf("WithRoute(%q)", r.pattern)) {
				at = r.node
			}
		}
		for _, l := range doc.static() {
			if strings.Contains(text, fmt.Sprintf("limit %.80q", l.name)) {
				at = l.node
			}
		}
		d.bad(at, "%s", inFile(text))
	}
}
