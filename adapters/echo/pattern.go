package stintecho

import (
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/labstack/echo/v4"
)

// patterns remembers each route's pattern, which would otherwise be put
// together, and allocated, for every request. It is copied to be changed:
// there are as many changes as routes. One that is lost to another made at the
// same time is made again by a later request.
type patterns struct {
	known atomic.Pointer[map[[2]string]string]
}

// maxPatterns bounds what is remembered, should routes ever be without end.
const maxPatterns = 4096

// of is a route as http.ServeMux writes it. The path is also set where only
// another method has a route, or a group answers 404 for all of them: then the
// method can be anything a client thinks of, and must not become part of a
// key.
func (p *patterns) of(method, path string) string {
	if path == "" || !common(method) {
		return path
	}
	key := [2]string{method, path}
	var known map[[2]string]string
	if m := p.known.Load(); m != nil {
		known = *m
	}
	pattern, ok := known[key]
	if !ok {
		pattern = method + " " + path
		if len(known) < maxPatterns {
			more := make(map[[2]string]string, len(known)+1)
			maps.Copy(more, known)
			more[key] = pattern
			p.known.Store(&more)
		}
	}
	return pattern
}

// common reports whether method is one of those that echo has names for.
func common(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
		echo.PROPFIND, echo.REPORT:
		return true
	}
	return false
}
