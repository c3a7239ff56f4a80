// Package routing finds the patterns that a request selects, whichever way a router may
// read its path and host. Patterns and their precedence are those of http.ServeMux, which the tests
// compare with this package. A ServeMux isn't used: to add patterns to it takes quadratic time, and
// GODEBUG=httpmuxgo121=1 changes what they mean.
package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem describes a mistake in a pattern, and what to write instead.
type Problem struct{ Pattern, What, Write string }

// Router finds patterns. It is immutable and safe for concurrent use.
type Router struct {
	patterns []pattern
	any      *node            // of patterns without a host
	hosts    map[string]*node // of the others; nil without
	rest     *target          // for what no pattern matches
	// No segment of a pattern is longer than longest bytes.
	longest int
	// ends has the last segments of the patterns, decoded, as far as they are text.
	ends map[string]bool
}

// pattern is a parsed pattern.
type pattern struct {
	text, method, host string
	path               []string // see segmentsOf
}

// target is a pattern as requests select it.
type target struct {
	number int
	method string
	host   bool // the pattern has one
	// slashes is the number of slashes in the pattern's path if it ends in a slash,
	// otherwise 0.
	slashes int
	file    bool // the pattern's last segment is text with a dot
}

// names reports whether the pattern ends where path does, in a slash: it is then the
// pattern of the path with the trailing slash.
func (t *target) names(path string) bool {
	return t.slashes > 0 && strings.Count(path, "/") == t.slashes
}

// New returns the router of patterns. A pattern is identified by its index in the list;
// what matches none of them, by the length of the list. If there are problems, the
// Router can't be used.
func New(patterns []string) (*Router, []Problem) {
	rt := &Router{any: &node{}, rest: &target{number: len(patterns)}, ends: map[string]bool{}}
	var problems []Problem
	given := make(map[string]bool, len(patterns))
	for _, text := range patterns {
		if given[text] {
			problems = append(problems, Problem{text, "given twice", "put both into one"})
			continue
		}
		given[text] = true
		if what, write := correct(text); write != "" {
			problems = append(problems, Problem{text, what, write})
			continue
		}
		method, host, path := split(text)
		p := pattern{text, method, plainHost(host), segmentsOf(path)}
		if other := rt.add(p); other >= 0 {
			problems = append(problems,
				Problem{text, fmt.Sprintf("pattern %q conflicts with pattern %q", text, rt.patterns[other].text),
					"make one of them more specific"})
		}
	}
	return rt, problems
}

// add adds a pattern. If it conflicts with another, add returns the number of that, otherwise -1.
func (rt *Router) add(p pattern) (conflict int) {
	t := &target{number: len(rt.patterns), method: p.method, host: p.host != ""}
	last := p.path[len(p.path)-1]
	t.file = last[0] == '=' && strings.Contains(last, ".")
	if last == allFurther || last == noFurther {
		t.slashes = len(p.path)
		if t.slashes > 1 { // /a is sent to /a/
			last = p.path[t.slashes-2]
		}
	}
	if text, ok := strings.CutPrefix(last, "="); ok {
		rt.ends[text] = true
	}
	for _, s := range p.path {
		rt.longest = max(rt.longest, len(s))
	}
	n := rt.any
	if t.host {
		if rt.hosts == nil {
			rt.hosts = map[string]*node{}
		}
		if rt.hosts[p.host] == nil {
			rt.hosts[p.host] = &node{}
		}
		n = rt.hosts[p.host]
	}
	conflict = -1
	o := overlapping{general: t.method != "", found: func(other *target, specific, general bool) {
		method := compareMethods(t.method, other.method)
		specific, general = specific || method == moreSpecific, general || method == moreGeneral
		if method != disjoint && specific == general && (conflict < 0 || other.number < conflict) {
			conflict = other.number
		}
	}}
	o.below(n, p.path, false, false)
	rt.patterns = append(rt.patterns, p)
	if conflict < 0 {
		n.add(p.path, t)
	}
	return conflict
}

type relation int

const (
	equal relation = iota
	moreSpecific
	moreGeneral
	disjoint
)

// compareMethods compares the methods of two patterns: none is any, and GET includes HEAD.
func compareMethods(method, other string) relation {
	switch {
	case method == other:
		return equal
	case method == "", method == "GET" && other == "HEAD":
		return moreGeneral
	case other == "", method == "HEAD" && other == "GET":
		return moreSpecific
	}
	return disjoint
}

// Chains returns, for each pattern, the numbers of those that match all of its requests, too:
// itself, then the others that are for the same host, from the most specific to the least. No two
// patterns of one host overlap unless one is the more specific, so patterns of a host that match one
// request are always such a chain.
func (rt *Router) Chains() [][]int {
	chains := make([][]int, len(rt.patterns))
	for i, p := range rt.patterns {
		chains[i] = []int{i}
		n := rt.any
		if p.host != "" {
			n = rt.hosts[p.host]
		}
		n.containing(p.path, func(t *target) {
			if method := compareMethods(p.method, t.method); t.number != i && (method == equal || method == moreSpecific) {
				chains[i] = append(chains[i], t.number)
			}
		})
	}
	// The more specific of two has more patterns that match all that it matches.
	for _, chain := range chains {
		slices.SortFunc(chain[1:], func(a, b int) int { return cmp.Compare(len(chains[b]), len(chains[a])) })
	}
	return chains
}

// find returns the target of the most specific pattern that matches a path. One with a host is more specific
// than those without.
func (rt *Router) find(method, host, path string, escaped bool) *target {
	s := search{method, escaped, rt.longest}
	trees := [2]*node{nil, rt.any}
	if rt.hosts != nil {
		trees[0] = rt.hosts[host]
	}
	return cmp.Or(s.find(trees, path), rt.rest)
}

// beside returns the number of the most specific pattern without a host, if found has one.
func (rt *Router) beside(found *target, method, path string, escaped bool) int {
	if !found.host {
		return rt.rest.number
	}
	s := search{method, escaped, rt.longest}
	return cmp.Or(s.find([2]*node{rt.any}, path), rt.rest).number
}

// split splits a pattern.
func split(pattern string) (method, host, path string) {
	rest := pattern
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		method, rest = pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return method, rest[:i], rest[i:]
	}
	return method, rest, ""
}

// The kinds of segments that aren't text.
const (
	oneSegment = "{}"
	allFurther = "..."
	noFurther  = "$"
)

// segmentsOf returns the segments of a pattern's path; text is decoded and begins with an =.
func segmentsOf(path string) (all []string) {
	parts := strings.Split(path[1:], "/")
	for i, s := range parts {
		switch {
		case s == "" && i == len(parts)-1, strings.HasPrefix(s, "{") && strings.HasSuffix(s, "...}"):
			all = append(all, allFurther)
		case s == "{$}":
			all = append(all, noFurther)
		case strings.HasPrefix(s, "{"):
			all = append(all, oneSegment)
		default:
			all = append(all, "="+unescape(s))
		}
	}
	return all
}
