package stintecho

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v5"
)

// patterns has the pattern of each route that was asked for, which would otherwise be put
// together, and allocated, for every request. There are as many as the application has routes.
type patterns struct{ known sync.Map } // route to string

type route struct{ method, path string }

// of returns the route of a request as http.ServeMux writes it. A route for any method is found
// under each of them: of those that echo has no name for, which clients make up, it is the path.
func (p *patterns) of(method, path string) string {
	if !common(method) {
		return path
	}
	if known, ok := p.known.Load(route{method, path}); ok {
		return known.(string)
	}
	pattern := method + " " + path
	p.known.Store(route{method, path}, pattern)
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
