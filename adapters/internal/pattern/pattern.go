// Package pattern writes the routes of other routers as http.ServeMux would,
// for Request.Pattern.
package pattern

import (
	"maps"
	"sync/atomic"
)

// Cache remembers each route's pattern, which would otherwise be put together,
// and allocated, for every request. It is copied to be changed: there are as
// many changes as routes. One that is lost to another made at the same time is
// made again by a later request. The zero Cache is empty, and safe for
// concurrent use.
type Cache struct {
	known atomic.Pointer[map[route]string]
}

type route struct{ method, path string }

// most bounds what is remembered, should routes ever be without end.
const most = 1024

// Of is the pattern of a route. Neither word may be the client's to choose.
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
