package routing

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// A request has interpretations: the paths and hosts that routers, and the middleware before
// them, may read it as. The client chooses the spelling and the application chooses the
// router. So each interpretation selects a pattern, and the request is held to all of them.
// Charging too much for a spelling that no client needs is cheap; leaving one out is a way
// past a limit.
//
// An interpretation is represented by an escaped path, which http.ServeMux matches segment by
// segment. It stands for one of these texts:
//
//	as sent, %2F and all      chi, echo, bunrouter, gin with UseRawPath
//	decoded by segments       http.ServeMux
//	decoded                   gin, gorilla/mux, httprouter, chi's StripSlashes
//
// either as it is or cleaned, with or without the trailing slash, and with or without the suffix of
// its last segment: chi's URLFormat routes /login.json to /login.

// Match is what one interpretation of a request selects: the most specific pattern, and, if that has a
// host, the most specific of those without one. Both are the number for no pattern where there
// is none.
type Match struct{ Pattern, Beside int }

// Find returns the matches of the interpretations of a request, each once: that of
// the first interpretation, and those of the others, which are nil for the usual request.
//
// The usual request has one interpretation, and the mux shows it: it redirects a path that
// needs cleaning or lacks a trailing slash. But it doesn't clean for CONNECT, nor
// remove the port from the host then.
func (rt *Router) Find(r *http.Request) (first Match, others []Match) {
	if p := r.URL.Path; r.Method != http.MethodConnect &&
		(r.URL.RawPath == "" || r.URL.RawPath == p) && (!rt.hosts || usualHost(r.Host)) {
		h, _ := rt.mux.Handler(r)
		found, ok := h.(*target)
		if !ok && path.Clean("/"+p) == p {
			found, ok = rt.find(r.Method, r.Host, r.URL.EscapedPath()+"/"), true
		}
		if ok && (p == "/" || p[len(p)-1] != '/' || found.names(p)) && (found.file || !rt.suffixMatters(p)) {
			m := Match{found.number, rt.rest.number}
			if found.host {
				h, _ := rt.plain.mux.Handler(r)
				beside, ok := h.(*target)
				if !ok {
					beside = rt.plain.find(r.Method, "", r.URL.EscapedPath()+"/")
				}
				m.Beside = beside.number
			}
			return m, nil
		}
	}
	rs := interpretations{Router: rt, method: r.Method}
	texts := textsOf(r.URL)
	for _, rs.host = range rt.hostsOf(r) {
		for _, text := range texts {
			rs.text(text)
		}
	}
	return rs.matches[0], rs.matches[1:]
}

// interpretations collects the matches of the interpretations of a request.
type interpretations struct {
	*Router
	method, host string
	matches      []Match
	shortened    bool // the text being read has lost its suffix
}

// textsOf returns a path decoded, decoded by segments, and as sent, each escaped.
func textsOf(u *url.URL) []string {
	decoded := (&url.URL{Path: u.Path}).EscapedPath()
	if u.RawPath == "" || u.RawPath == u.Path {
		return []string{decoded}
	}
	return []string{decoded, u.EscapedPath(), (&url.URL{Path: u.RawPath}).EscapedPath()}
}

// text reads a text with its suffix and without it. The suffix may be removed before the path is
// cleaned, or afterwards.
func (rs *interpretations) text(text string) {
	if text == "" || text[0] != '/' {
		text = "/" + text
	}
	found := rs.cleaned(text)
	if short, ok := withoutSuffix(text); ok && !found.file {
		rs.shortened = true
		rs.cleaned(short)
		rs.shortened = false
	}
}

// cleaned reads a text as it is and cleaned. Some routers that clean give a path that ends
// in a dot segment a trailing slash, others don't. cleaned returns what the text as it is selects.
func (rs *interpretations) cleaned(text string) *target {
	found := rs.path(text)
	clean := path.Clean(text)
	if clean == text {
		return found
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
	return found
}

// path reads a path with its trailing slash, and without it unless the selected pattern
// names the slash: the path without is then a different resource. It returns what the path selects.
func (rs *interpretations) path(p string) *target {
	found := rs.suffixed(p)
	if short, ok := strings.CutSuffix(p, "/"); ok && short != "" && !found.names(p) {
		rs.suffixed(short)
	}
	return found
}

// suffixed reads a path with the suffix of its last segment, and without it unless the selected pattern
// names the segment: the path without is then a different resource. It returns what the path selects.
func (rs *interpretations) suffixed(p string) *target {
	found := rs.add(p)
	if short, ok := withoutSuffix(p); ok && !found.file && !rs.shortened {
		rs.add(short)
		if shorter, ok := strings.CutSuffix(short, "/"); ok && shorter != "" {
			rs.add(shorter)
		}
	}
	return found
}

// withoutSuffix returns a path without the last dot of its last segment and what follows the dot. ok
// reports whether there is one.
func withoutSuffix(p string) (short string, ok bool) {
	segment := strings.LastIndexByte(p, '/') + 1
	i := strings.LastIndexByte(p[segment:], '.')
	if i < 0 {
		return p, false
	}
	return p[:segment+i], true
}

// suffixMatters reports whether a clean path may select another pattern without its suffix: some pattern
// ends in the last segment with or without the suffix, or nothing or only dots are left of the segment.
func (rt *Router) suffixMatters(p string) bool {
	short, ok := withoutSuffix(p)
	if !ok {
		return false
	}
	segment := strings.LastIndexByte(p, '/') + 1
	return strings.Trim(short[segment:], ".") == "" || rt.ends[p[segment:]] || rt.ends[short[segment:]]
}

// add adds the match of a path.
func (rs *interpretations) add(p string) *target {
	p = rs.literally(p)
	found := rs.find(rs.method, rs.host, p)
	m := Match{found.number, rs.rest.number}
	if found.host {
		m.Beside = rs.plain.find(rs.method, "", p).number
	}
	if !slices.Contains(rs.matches, m) {
		rs.matches = append(rs.matches, m)
	}
	return found
}

// literally escapes a path so that a mux finds nothing to clean: "." and ".." are
// escaped, and an empty segment becomes a NUL, which no pattern contains. A segment too
// long for any pattern also becomes a NUL, and what is deeper than every pattern is
// left out: that makes no difference to the match, and a long path would otherwise be
// copied often.
func (rs *interpretations) literally(p string) string {
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
