package routing

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// A request has readings: what routers and the middleware before them may take
// its path and host for. A client chooses the spelling and the application the
// router, so each reading selects a pattern, and the request is held to all of
// them. Over-charging a spelling that nobody needs is cheap; leaving one out is
// a way past a limit.
//
// A reading is written here as an escaped path, which http.ServeMux matches
// segment by segment. It stands for one of these texts:
//
//	as sent, %2F and all      chi, echo, gin with UseRawPath
//	decoded by segments       http.ServeMux
//	decoded                   gin, chi's StripSlashes
//
// either as it is or cleaned, and with the slash at its end or without.

// Find returns the patterns that the readings of a request select, each once: that
// of the first, and those of the others, which are nil for the usual request.
//
// The usual request has one reading, and the mux says so: what needs cleaning it
// redirects, as it does what lacks a slash at its end. But it doesn't clean for
// CONNECT, nor take the port off its host.
func (rt *Router) Find(r *http.Request) (first int, others []int) {
	if p := r.URL.Path; r.Method != http.MethodConnect &&
		(r.URL.RawPath == "" || r.URL.RawPath == p) && (!rt.hosts || usualHost(r.Host)) {
		h, _ := rt.mux.Handler(r)
		found, ok := h.(*target)
		if !ok && path.Clean("/"+p) == p {
			found, ok = rt.find(r.Method, r.Host, r.URL.EscapedPath()+"/"), true
		}
		if ok && (p == "/" || p[len(p)-1] != '/' || found.names(p)) {
			return found.number, nil
		}
	}
	rs := readings{Router: rt, method: r.Method}
	texts := textsOf(r.URL)
	for _, rs.host = range rt.hostsOf(r) {
		for _, text := range texts {
			rs.text(text)
		}
	}
	return rs.patterns[0], rs.patterns[1:]
}

// readings gathers the patterns that the readings of a request select.
type readings struct {
	*Router
	method, host string
	patterns     []int
}

// textsOf is a path decoded, decoded by segments and as sent, escaped.
func textsOf(u *url.URL) []string {
	decoded := (&url.URL{Path: u.Path}).EscapedPath()
	if u.RawPath == "" || u.RawPath == u.Path {
		return []string{decoded}
	}
	return []string{decoded, u.EscapedPath(), (&url.URL{Path: u.RawPath}).EscapedPath()}
}

// text reads a text as it is and cleaned. To some who clean, a path that ends in
// a dot segment has a slash at its end, to others not.
func (rs *readings) text(text string) {
	if text == "" || text[0] != '/' {
		text = "/" + text
	}
	rs.path(text)
	clean := path.Clean(text)
	if clean == text {
		return
	}
	dotted := strings.HasSuffix(text, "/.") || strings.HasSuffix(text, "/..")
	if dotted {
		rs.path(clean)
	}
	if dotted || strings.HasSuffix(text, "/") {
		clean = strings.TrimSuffix(clean, "/") + "/"
	}
	if clean != text {
		rs.path(clean)
	}
}

// path reads a path with the slash at its end, and without unless the pattern
// selected names it: then the path without is another's.
func (rs *readings) path(p string) {
	found := rs.find(rs.method, rs.host, rs.literally(p))
	rs.add(found.number)
	if short, ok := strings.CutSuffix(p, "/"); ok && short != "" && !found.names(p) {
		rs.add(rs.find(rs.method, rs.host, rs.literally(short)).number)
	}
}

func (rs *readings) add(pattern int) {
	if !slices.Contains(rs.patterns, pattern) {
		rs.patterns = append(rs.patterns, pattern)
	}
}

// literally writes a path so that a mux has nothing to clean: "." and ".." are
// escaped, and an empty segment is a NUL, which no pattern spells out. So is one
// that is too long to be in a pattern, and what is deeper than every pattern is
// left out: neither makes a difference, and a long path would be copied often.
func (rs *readings) literally(p string) string {
	var b strings.Builder
	for depth := 0; p != "" && depth <= rs.depth; depth++ {
		segment, rest := p[1:], "" // p begins with a slash
		if i := strings.IndexByte(segment, '/'); i >= 0 {
			segment, rest = segment[:i], segment[i:]
		}
		switch {
		case segment == "" && rest != "", len(segment) > rs.longest:
			segment = "%00"
		case segment == ".":
			segment = "%2E"
		case segment == "..":
			segment = "%2E%2E"
		}
		b.WriteByte('/')
		b.WriteString(segment)
		p = rest
	}
	return b.String()
}
