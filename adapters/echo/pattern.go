package stintecho

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint/adapters/internal/pattern"
)

// patternOf is a route as http.ServeMux writes it. echo sets the path also
// where only another method has a route, or a group answers 404 for all of
// them: then the method can be anything a client thinks of, and must not
// become part of a key.
func patternOf(known *pattern.Cache, method, path string) string {
	if path == "" || !common(method) {
		return path
	}
	return known.Of(method, path)
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
