package routing

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Pattern is the pattern that mux is going to match for r, or "".
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

// redirects reports whether what a mux calls its pattern may be a path instead: it
// is the target where a path is redirected to the one with a slash at its end,
// for CONNECT and in some releases for every method. "/users/7/" for
// "/users/{id}/" would be a key of the client's own making. The path may end in
// decoded slashes already.
func redirects(pattern, requested string) bool {
	if !strings.HasSuffix(pattern, "/") {
		return false
	}
	more, ok := strings.CutPrefix(pattern, path.Clean("/"+requested))
	return ok && more != "" && strings.Trim(more, "/") == ""
}
