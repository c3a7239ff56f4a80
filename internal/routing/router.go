// Package routing finds the patterns that a request selects, whichever way a router may
// read its path and host. http.ServeMux does the matching, so patterns mean what they
// mean everywhere else.
package routing

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Problem describes a mistake in a pattern, and what to write instead.
type Problem struct{ Pattern, What, Write string }

// Router finds patterns. It is immutable and safe for concurrent use.
type Router struct {
	mux   *http.ServeMux
	rest  *target // for what no pattern matches
	hosts bool    // some pattern has a host
	// plain is the router of the patterns without a host, where some have one. A mux prefers those
	// with a host to all others, also to more specific ones.
	plain *Router
	// No pattern has more slashes than depth, nor a segment of more than longest bytes,
	// escaped.
	depth, longest int
	// ends has the last segments of the patterns, decoded, as far as they are text.
	ends map[string]bool
}

// target is the handler that the mux finds: a pattern.
type target struct {
	number int
	host   bool // the pattern has one
	// slashes is the number of slashes in the pattern's path if it ends in a slash,
	// otherwise 0.
	slashes int
	file    bool // the pattern's last segment is text with a dot
}

// ServeHTTP makes a target what a ServeMux finds for a request. It is never called.
func (*target) ServeHTTP(http.ResponseWriter, *http.Request) {}

// names reports whether the pattern ends where path does, in a slash: it is then the
// pattern of the path with the trailing slash.
func (t *target) names(path string) bool {
	return t.slashes > 0 && strings.Count(path, "/") == t.slashes
}

// everything is the pattern for what no other pattern matches.
const everything = "/"

// New returns the router of patterns. A pattern is identified by its index in the list;
// what matches none of them, by the length of the list. If there are problems, the
// Router can't be used.
func New(patterns []string) (*Router, []Problem) {
	rt := newRouter(len(patterns))
	var problems []Problem
	for i, p := range patterns {
		if slices.Contains(patterns[:i], p) {
			problems = append(problems, Problem{p, "given twice", "put both into one"})
		} else if what, write := rt.add(i, p); write != "" {
			problems = append(problems, Problem{p, what, write})
		}
	}
	if rt.hosts && problems == nil {
		rt.plain = newRouter(len(patterns))
		for i, p := range patterns {
			if _, host, _ := split(p); host == "" {
				rt.plain.add(i, p)
			}
		}
		rt.plain.close()
	}
	rt.close()
	return rt, problems
}

func newRouter(rest int) *Router {
	return &Router{mux: http.NewServeMux(), rest: &target{number: rest}, ends: map[string]bool{}}
}

// close adds a pattern without which the mux would compute the allowed methods for everything that
// matches no other. It conflicts only with another pattern that matches everything.
func (rt *Router) close() { _, _ = handle(rt.mux, everything, rt.rest) }

// add registers a pattern. Hosts ignore case and may end in a dot, so the mux gets them
// in a single spelling.
func (rt *Router) add(number int, pattern string) (what, write string) {
	method, host, path := split(pattern)
	if upper := strings.ToUpper(method); method != upper {
		return "a method in lower case, which no request has", fmt.Sprintf("write %q", upper+host+path)
	}
	if what, meant := foreign(method, host, path); meant != "" {
		return what, fmt.Sprintf("write %q", meant)
	}
	if meant := wildcards(path); meant != path {
		return "segments that begin with : or * mean those characters here", fmt.Sprintf("write %q", method+host+meant)
	}
	rt.hosts = rt.hosts || host != ""
	slashes := strings.Count(path, "/")
	rt.depth, rt.longest = max(rt.depth, slashes), max(rt.longest, 3*len(path))
	t := &target{number: number, host: host != ""}
	if strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/{$}") || strings.HasSuffix(path, "...}") {
		t.slashes = slashes
	}
	what, write = handle(rt.mux, method+plainHost(host)+path, t)
	if write == "" {
		segments := segmentsOf(pattern)
		last := segments[len(segments)-1]
		t.file = last[0] == '=' && strings.Contains(last, ".")
		if (last == allFurther || last == noFurther) && len(segments) > 1 { // a mux sends /a to /a/
			last = segments[len(segments)-2]
		}
		if text, ok := strings.CutPrefix(last, "="); ok {
			rt.ends[text] = true
		}
	}
	return what, write
}

// foreign returns the pattern that is meant by one with a part of a URL that no pattern has, so that
// it would match no request, and what that part is.
func foreign(method, host, path string) (what, meant string) {
	name, _, port := strings.Cut(host, ":")
	switch i := strings.IndexAny(path, "?#"); {
	case i >= 0:
		return "a pattern is compared with the path alone, without a query or a fragment", method + host + path[:i]
	case port && strings.HasPrefix(path, "//"):
		return "a pattern has no scheme", method + path[2:]
	case port && !strings.HasPrefix(host, "["):
		return "a pattern's host has no port", method + name + path
	}
	return "", ""
}

// wildcards returns path with the wildcards of other routers (:id, *rest) rewritten as
// http.ServeMux writes them.
func wildcards(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if s == "" || s[0] != ':' && s[0] != '*' {
			continue
		}
		name := s[1:]
		if !isName(name) {
			name = "rest"
			if s[0] == ':' {
				name = "name"
			}
		}
		if s[0] == '*' && i == len(segments)-1 {
			name += "..."
		}
		segments[i] = "{" + name + "}"
	}
	return strings.Join(segments, "/")
}

// isName reports whether a wildcard can have that name, as far as ASCII goes.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// split splits a pattern; the method keeps the space after it.
func split(pattern string) (method, host, path string) {
	rest := pattern
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		rest = strings.TrimLeft(pattern[i:], " \t")
		method = pattern[:len(pattern)-len(rest)]
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return method, rest[:i], rest[i:]
	}
	return method, "", rest // not a pattern: the mux will report it
}

// handle registers a pattern. It recovers the panic of http.ServeMux on an invalid one.
func handle(mux *http.ServeMux, pattern string, h http.Handler) (what, write string) {
	defer func() {
		if p := recover(); p != nil {
			text, _, conflict := strings.Cut(fmt.Sprint(p), ":\n")
			if conflict {
				what, write = withoutPlaces(text), "write one that is more specific or less"
				return
			}
			what, write = text, "write a pattern of http.ServeMux, such as \"POST /login\""
		}
	}()
	mux.Handle(pattern, h)
	return "", ""
}

// withoutPlaces removes from the mux's message the places where patterns were
// registered: they are in this package's source and mean nothing to the author of a
// pattern.
func withoutPlaces(text string) string {
	for {
		before, place, found := strings.Cut(text, " (registered at ")
		_, after, ends := strings.Cut(place, ")")
		if !found || !ends {
			return text
		}
		text = before + after
	}
}

// find returns the target of the most specific pattern that matches an escaped path
// that needs no cleaning. The mux returns no target only if it would redirect to the
// path with a trailing slash.
func (rt *Router) find(method, host, path string) *target {
	u := &url.URL{Host: host, RawPath: path}
	u.Path, _ = url.PathUnescape(path)
	h, _ := rt.mux.Handler(&http.Request{Method: method, Host: host, URL: u})
	if found, ok := h.(*target); ok {
		return found
	}
	if strings.HasSuffix(path, "/") {
		return rt.rest
	}
	return rt.find(method, host, path+"/")
}
