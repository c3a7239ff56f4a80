// Package pattern writes the routes of other routers as http.ServeMux would, for
// Request.Pattern.
package pattern

import (
	"sync"
	"sync/atomic"
)

// Cache remembers the pattern of each route, which would otherwise be put together, and
// allocated, for every request. The zero Cache is empty. It is safe for concurrent use.
type Cache struct {
	known sync.Map // route to string
	n     atomic.Int64
}

type route struct{ method, path string }

// most bounds what is remembered, in case there is no end of routes.
const most = 1024

// Of returns the pattern of a route. Neither argument may be chosen by a client.
func (c *Cache) Of(method, path string) string {
	key := route{method, path}
	if pattern, ok := c.known.Load(key); ok {
		return pattern.(string)
	}
	pattern := method + " " + path
	if c.n.Add(1) <= most { // counted again if a concurrent request adds it, too
		c.known.Store(key, pattern)
	}
	return pattern
}
