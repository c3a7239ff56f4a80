package routing

import (
	"net/http"
	"net/url"
	"strings"
)

// node is a node of the tree of the patterns of one host: what follows a path's first segments. A tree finds
// the pattern that http.ServeMux would find, and takes the same time for few patterns as for many.
type node struct {
	text map[string]*node // by the next segment
	one  *node            // of a wildcard for one segment

	ends  byMethod // of patterns that end here
	slash byMethod // of patterns that end in {$} after the next slash
	rest  byMethod // of patterns that end in a slash or {name...}
}

// byMethod are the targets of patterns that differ only in their methods.
type byMethod struct {
	any   *target
	named map[string]*target
}

func (m *byMethod) set(t *target) {
	if t.method == "" {
		m.any = t
		return
	}
	if m.named == nil {
		m.named = map[string]*target{}
	}
	m.named[t.method] = t
}

// find returns the target for a method, or nil.
func (m *byMethod) find(method string) *target {
	if t := m.named[method]; t != nil {
		return t
	}
	if method == http.MethodHead {
		if t := m.named[http.MethodGet]; t != nil {
			return t
		}
	}
	return m.any
}

func (m *byMethod) each(f func(*target)) {
	if m.any != nil {
		f(m.any)
	}
	for _, t := range m.named {
		f(t)
	}
}

// add adds a target below the segments of its pattern's path.
func (n *node) add(path []string, t *target) {
	for _, s := range path {
		switch s {
		case allFurther:
			n.rest.set(t)
			return
		case noFurther:
			n.slash.set(t)
			return
		case oneSegment:
			if n.one == nil {
				n.one = &node{}
			}
			n = n.one
		default:
			if n.text == nil {
				n.text = map[string]*node{}
			}
			if n.text[s[1:]] == nil {
				n.text[s[1:]] = &node{}
			}
			n = n.text[s[1:]]
		}
	}
	n.ends.set(t)
}

// search is the search of a tree for a request's pattern.
type search struct {
	method  string
	escaped bool // the path is
	longest int  // no segment of a pattern is longer
}

// find returns the pattern that matches a path in the first of the trees that has one, or nil. As a mux sends /a
// to /a/ if only a pattern of that ends there, such a pattern is preferred to one of everything below /.
func (s *search) find(trees [2]*node, path string) (found *target) {
	slash := strings.HasSuffix(path, "/")
	asked := 0
	for found == nil && asked < len(trees) {
		found = s.match(trees[asked], path)
		asked++
	}
	if slash || found != nil && found.slashes == 0 {
		return found
	}
	for _, n := range trees[:asked] {
		if t := s.matchSlash(n, path); t != nil {
			return t
		}
	}
	return found
}

func (s *search) match(n *node, path string) *target {
	switch {
	case n == nil:
		return nil
	case path == "":
		return n.ends.find(s.method)
	case path == "/":
		if t := n.slash.find(s.method); t != nil {
			return t
		}
		return n.rest.find(s.method)
	}
	segment, rest := s.next(path)
	if t := s.match(n.text[segment], rest); t != nil {
		return t
	}
	if t := s.match(n.one, rest); t != nil {
		return t
	}
	return n.rest.find(s.method)
}

// matchSlash returns the pattern that ends exactly where a path does once a slash is added.
func (s *search) matchSlash(n *node, path string) *target {
	switch {
	case n == nil:
		return nil
	case path == "":
		return s.match(n, "/")
	}
	segment, rest := s.next(path)
	if t := s.matchSlash(n.text[segment], rest); t != nil {
		return t
	}
	return s.matchSlash(n.one, rest)
}

// next returns the first segment of a path, decoded, and what follows.
func (s *search) next(path string) (segment, rest string) {
	segment = path[1:] // it begins with a slash
	if i := strings.IndexByte(segment, '/'); i >= 0 {
		segment, rest = segment[:i], segment[i:]
	}
	if s.escaped && len(segment) <= 3*s.longest { // a longer one is no pattern's
		segment = unescape(segment)
	}
	return segment, rest
}

// unescape decodes a segment. A mux takes one with wrong escapes as it is.
func unescape(segment string) string {
	if text, err := url.PathUnescape(segment); err == nil {
		return text
	}
	return segment
}

// containing calls f with the targets of the patterns that match every path of a pattern.
func (n *node) containing(path []string, f func(*target)) {
	if n == nil {
		return
	}
	n.rest.each(f)
	if len(path) == 0 {
		n.ends.each(f)
		n.slash.each(f) // a mux sends the path there
		return
	}
	switch first, rest := path[0], path[1:]; first {
	case allFurther:
	case noFurther:
		n.slash.each(f)
	case oneSegment:
		n.one.containing(rest, f)
	default:
		n.text[first[1:]].containing(rest, f)
		n.one.containing(rest, f)
	}
}

// overlapping is a search for the patterns that match some path of a new pattern.
type overlapping struct {
	// found is called with each, and whether the new pattern's path is in some segment more specific, and in some
	// more general.
	found func(t *target, specific, general bool)
	// general: patterns are searched for of which the new pattern is more general, too.
	general bool
}

func (o *overlapping) below(n *node, path []string, specific, general bool) {
	if n == nil {
		return
	}
	report := func(m *byMethod, specific, general bool) {
		m.each(func(t *target) { o.found(t, specific, general) })
	}
	if len(path) == 0 {
		report(&n.ends, specific, general)
		return
	}
	first, rest := path[0], path[1:]
	report(&n.rest, specific || first != allFurther, general)
	switch first {
	case allFurther:
		if specific || o.general {
			n.deeper(func(t *target) { o.found(t, specific, true) })
		}
	case noFurther:
		report(&n.slash, specific, general)
	case oneSegment:
		o.below(n.one, rest, specific, general)
		for _, next := range n.text {
			o.below(next, rest, specific, true)
		}
	default:
		o.below(n.text[first[1:]], rest, specific, general)
		o.below(n.one, rest, true, general)
	}
}

// deeper calls f with the targets of all patterns that n.rest contains.
func (n *node) deeper(f func(*target)) {
	n.slash.each(f)
	next := func(n *node) {
		n.ends.each(f)
		n.rest.each(f)
		n.deeper(f)
	}
	for _, n := range n.text {
		next(n)
	}
	if n.one != nil {
		next(n.one)
	}
}
