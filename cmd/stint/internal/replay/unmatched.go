package replay

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/read"
)

// Unmatched returns the routes that no request can match, and the routes and limits of the
// limiter that never apply because more specific routes with Only or Exempt match all of their
// requests.
//
// It tries a typical request for each pattern: for a wildcard, a segment that no other pattern
// names. If another route takes this request, it takes every request of the pattern.
func Unmatched(l *stint.Limiter) (all []Finding) {
	plans := plansOf(l)
	if plans.Router == nil {
		return nil
	}
	patterns := plans.Patterns()
	u := prober{plans, patterns, unusedText(patterns)}
	for i, pattern := range patterns {
		method, host, rest := splitPattern(pattern)
		if u.reaches(i, method, host, rest) {
			continue
		}
		all = append(all, Finding{Route: pattern, Text: u.explain(method, host, rest)})
	}
	if u.reaches(len(patterns), "", "", "/") {
		return all
	}
	_, by := u.matches("", "", "/")
	for _, e := range plans.Base.Entries {
		if !slices.ContainsFunc(plans.Routes, func(p *read.Plan) bool {
			return slices.ContainsFunc(p.Entries, func(o *read.Entry) bool { return o.StoreLimit == e.StoreLimit })
		}) {
			all = append(all, Finding{Limit: e.Name(),
				Text: fmt.Sprintf("it applies to no request: all requests match %s, with only or exempt: "+
					"move the limit there, or remove it", u.quoteNames(by))})
		}
	}
	return all
}

// prober looks for requests that match patterns.
type prober struct {
	plans    *read.Plans
	patterns []string
	fresh    string // a segment, and in upper case a method, that no pattern has
}

// unusedText returns a text that is in no pattern.
func unusedText(patterns []string) string {
	text := "any"
	for n := 2; slices.ContainsFunc(patterns,
		func(p string) bool { return strings.Contains(strings.ToLower(p), text) }); n++ {
		text = "any" + strconv.Itoa(n)
	}
	return text
}

// splitPattern splits a pattern.
func splitPattern(pattern string) (method, host, rest string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		method, pattern = pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	i := max(strings.IndexByte(pattern, '/'), 0)
	return method, pattern[:i], pattern[i:]
}

// reaches reports whether the limits of a pattern apply to some request. For the number behind the last
// pattern, it reports whether some request matches no pattern.
func (u *prober) reaches(pattern int, method, host, rest string) bool {
	found, _ := u.matches(method, host, rest)
	return slices.ContainsFunc(found, func(by int) bool {
		return by == pattern || by < len(u.patterns) && pattern < len(u.patterns) && u.plans.Holds(pattern, by)
	})
}

// matches tries requests that the pattern of these parts would match if it were alone. It returns the
// numbers of all patterns that match them, and of those that come first.
func (u *prober) matches(method, host, rest string) (all, first []int) {
	if method == "" {
		method = strings.ToUpper(u.fresh)
	}
	if host == "" {
		host = u.fresh + ".test"
	}
	begin, deepest := "", 0
	segments, open := strings.Split(rest[1:], "/"), false
	for _, s := range segments {
		switch {
		case s == "{$}", s == "":
			begin += "/"
		case strings.HasPrefix(s, "{") && strings.HasSuffix(s, "...}"):
			begin, open = begin+"/", true
		case strings.HasPrefix(s, "{"):
			begin += "/" + u.fresh
		default:
			if text, err := url.PathUnescape(s); err == nil {
				s = text
			}
			begin += "/" + url.PathEscape(s)
		}
	}
	open = open || strings.HasSuffix(rest, "/")
	targets := []string{begin}
	if open {
		for _, p := range u.patterns {
			deepest = max(deepest, strings.Count(p, "/"))
		}
		for depth := range deepest + 1 {
			deeper := begin + u.fresh + strings.Repeat("/"+u.fresh, depth)
			targets = append(targets, deeper, deeper+"/")
		}
	}
	for _, target := range targets {
		to, err := url.ParseRequestURI(target)
		if err != nil {
			continue // no client can ask for it
		}
		winner, others := u.plans.Router.Find(&http.Request{Method: method, Host: host, URL: to, RequestURI: target})
		first = append(first, winner.Pattern)
		for _, m := range append(others, winner) {
			all = append(all, m.Pattern)
			if m.Beside < len(u.patterns) {
				all = append(all, m.Beside)
			}
		}
	}
	return all, first
}

// explain returns why no request matches a pattern, and what to write.
func (u *prober) explain(method, host, rest string) string {
	_, by := u.matches(method, host, rest)
	if by = slices.DeleteFunc(by, func(i int) bool { return i == len(u.patterns) }); len(by) == 0 {
		return "it never matches: no request has such a method, host and path: remove it"
	}
	return "it never applies: all of its requests match " + u.quoteNames(by) +
		" first, with only or exempt: remove one of these routes"
}

// quoteNames names patterns, each once.
func (u *prober) quoteNames(numbers []int) string {
	slices.Sort(numbers)
	var names []string
	for _, i := range slices.Compact(numbers) {
		names = append(names, strconv.Quote(u.patterns[i]))
	}
	return strings.Join(names, " or ")
}
