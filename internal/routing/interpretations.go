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
// An interpretation is represented by an escaped path, whose segments are decoded one by one. It stands
// for one of these texts:
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
// The usual request has one interpretation: its path is clean, has no escapes that routers read in
// different ways, and selects no other pattern without its trailing slash or suffix.
func (rt *Router) Find(r *http.Request) (first Match, others []Match) {
	if p := r.URL.Path; r.Method != http.MethodConnect && isClean(p) &&
		(r.URL.RawPath == "" || r.URL.RawPath == p) && (rt.hosts == nil || usualHost(r.Host)) {
		host := withoutPort(r.Host)
		found := rt.find(r.Method, host, p, false)
		if (p == "/" || p[len(p)-1] != '/' || found.names(p)) && (found.file || !rt.suffixMatters(p)) {
			return Match{found.number, rt.beside(found, r.Method, p, false)}, nil
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

// isClean reports whether a path has no empty segment and no dot segment.
func isClean(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for i := 0; i < len(p); i++ {
		if p[i] != '/' {
			continue
		}
		switch rest := p[i+1:]; {
		case rest == "":
		case rest[0] == '/', rest == ".", rest == "..", strings.HasPrefix(rest, "./"), strings.HasPrefix(rest, "../"):
			return false
		}
	}
	return true
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
	found := rs.find(rs.method, rs.host, p, true)
	m := Match{found.number, rs.beside(found, rs.method, p, true)}
	if !slices.Contains(rs.matches, m) {
		rs.matches = append(rs.matches, m)
	}
	return found
}
