// Package pattern writes the routes of other routers as http.ServeMux would, for
// Request.Pattern.
package pattern

import (
	"maps"
	"sync/atomic"
)

// Cache remembers the pattern of each route, which would otherwise be put together, and
// allocated, for every request. Each change copies it, which happens once per route. A
// change lost to a concurrent one is made again by a later request. The zero Cache is
// empty. It is safe for concurrent use.
type Cache struct {
	known atomic.Pointer[map[route]string]
}

type route struct{ method, path string }

// most bounds what is remembered, in case there is no end of routes.
const most = 1024

// Of returns the pattern of a route. Neither argument may be chosen by a client.
func (c *Cache) Of(method, path string) string {
	key := route{method, path}
	var known map[route]string
	if m := c.known.Load(); m != nil {
		known = *m
	}
	pattern, ok := known[key]
	if !ok {
		pattern = method + " " + path
		if len(known) < most {
			more := make(map[route]string, len(known)+1)
			maps.Copy(more, known)
			more[key] = pattern
			c.known.Store(&more)
		}
	}
	return pattern
}
