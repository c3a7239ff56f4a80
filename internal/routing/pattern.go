package routing

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Pattern returns the pattern that mux will match for r, or "".
func Pattern(mux *http.ServeMux, r *http.Request) string {
	_, pattern := mux.Handler(r)
	if !redirects(pattern, r.URL.Path) {
		return pattern
	}
	target := *r
	target.URL = &url.URL{Host: r.URL.Host, RawPath: r.URL.EscapedPath() + "/", Path: r.URL.Path + "/"}
	_, pattern = mux.Handler(&target)
	return pattern
}

// redirects reports whether what a mux calls its pattern may be a path instead. If a
// path is redirected to the one with a trailing slash, it is the target: for CONNECT,
// and in some releases for every method. "/users/7/" for "/users/{id}/" would be a key
// that the client chooses. The path may already end in decoded slashes.
func redirects(pattern, requested string) bool {
	if !strings.HasSuffix(pattern, "/") {
		return false
	}
	more, ok := strings.CutPrefix(pattern, path.Clean("/"+requested))
	return ok && more != "" && strings.Trim(more, "/") == ""
}
