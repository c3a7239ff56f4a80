package routing

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Chains returns, for each of patterns, the numbers of those that match all of its requests, too:
// itself, then the others that are for the same host, from the most specific to the least. A mux
// takes no two patterns of one host that overlap and of which neither is the more specific, so
// patterns of a host that match one request are always such a chain. The patterns are those of a
// Router without problems.
//
// Which patterns these are is what muxes say: another pattern alone has to match a request of the
// pattern whose wildcards stand for words that no pattern has, and a mux of both has to prefer the
// pattern.
func Chains(patterns []string) [][]int {
	word := unused(patterns)
	alone := make([]*Router, len(patterns))
	for i, p := range patterns {
		alone[i] = newRouter(len(patterns))
		alone[i].add(i, p)
	}
	near := &segments{}
	for i, p := range patterns {
		near.add(i, p)
	}
	chains := make([][]int, len(patterns))
	for i, p := range patterns {
		method, host, path := witness(p, word)
		chains[i] = []int{i}
		for _, j := range near.of(p) {
			if j == i || alone[j].hosts != alone[i].hosts || alone[j].find(method, host, path).number != j {
				continue
			}
			both := newRouter(len(patterns))
			both.add(i, p)
			both.add(j, patterns[j])
			if both.find(method, host, path).number == i {
				chains[i] = append(chains[i], j)
			}
		}
	}
	// The more specific of two has more patterns that match all that it matches.
	for _, chain := range chains {
		slices.SortFunc(chain[1:], func(a, b int) int { return cmp.Compare(len(chains[b]), len(chains[a])) })
	}
	return chains
}

// unused returns a word that is in no pattern.
func unused(patterns []string) string {
	word := "any"
	for n := 2; slices.ContainsFunc(patterns, func(p string) bool { return strings.Contains(strings.ToLower(p), word) }); n++ {
		word = "any" + strconv.Itoa(n)
	}
	return word
}

// witness returns a request that a pattern matches, with a word for what it leaves open.
func witness(pattern, word string) (method, host, path string) {
	method, host, rest := split(pattern)
	if method = strings.TrimSpace(method); method == "" {
		method = strings.ToUpper(word)
	}
	if host = plainHost(host); host == "" {
		host = word
	}
	for s := range strings.SplitSeq(rest[1:], "/") {
		path += "/"
		switch {
		case s == "{$}":
		case strings.HasSuffix(s, "...}"):
			path += word + "/" + word
		case strings.HasPrefix(s, "{"):
			path += word
		default:
			if text, err := url.PathUnescape(s); err == nil {
				s = url.PathEscape(text)
			}
			path += s
		}
	}
	if strings.HasSuffix(rest, "/") {
		path += word + "/" + word
	}
	return method, host, path
}

// segments finds patterns whose paths may contain another's, so that muxes are asked about few. It is
// a tree of the segments of paths.
type segments struct {
	next map[string]*segments
	ends []int
}

// The kinds of segments that aren't text.
const (
	oneSegment = "{}"
	allFurther = "..."
	noFurther  = "$"
)

// segmentsOf returns the segments of a pattern's path; text begins with an =.
func segmentsOf(pattern string) (all []string) {
	_, _, path := split(pattern)
	parts := strings.Split(path[1:], "/")
	for i, s := range parts {
		switch {
		case s == "" && i == len(parts)-1, strings.HasSuffix(s, "...}"):
			all = append(all, allFurther)
		case s == "{$}":
			all = append(all, noFurther)
		case strings.HasPrefix(s, "{"):
			all = append(all, oneSegment)
		default:
			if text, err := url.PathUnescape(s); err == nil {
				s = text
			}
			all = append(all, "="+s)
		}
	}
	return all
}

func (n *segments) add(number int, pattern string) {
	for _, s := range segmentsOf(pattern) {
		if n.next == nil {
			n.next = map[string]*segments{}
		}
		if n.next[s] == nil {
			n.next[s] = &segments{}
		}
		n = n.next[s]
	}
	n.ends = append(n.ends, number)
}

// of returns the patterns whose paths may contain that of a pattern.
func (n *segments) of(pattern string) []int { return n.below(segmentsOf(pattern), nil) }

func (n *segments) below(path []string, found []int) []int {
	if n == nil {
		return found
	}
	if all := n.next[allFurther]; all != nil {
		found = append(found, all.ends...)
	}
	if len(path) == 0 {
		found = append(found, n.ends...)
		if none := n.next[noFurther]; none != nil { // a mux sends the path there
			found = append(found, none.ends...)
		}
		return found
	}
	first, rest := path[0], path[1:]
	if first == allFurther {
		return found
	}
	if first != oneSegment {
		found = n.next[first].below(rest, found)
	}
	if first != noFurther {
		found = n.next[oneSegment].below(rest, found)
	}
	return found
}
