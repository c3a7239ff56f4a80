package stintecho

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint/adapters/internal/pattern"
)

// patternOf returns a route as http.ServeMux writes it. echo also sets the path if only
// another method has a route, or if a group answers 404 for all methods. Then the
// client chooses the method, which must not become part of a key.
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
