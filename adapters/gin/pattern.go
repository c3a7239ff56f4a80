package stintgin

import (
	"maps"
	"sync/atomic"
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

// of is a route as http.ServeMux writes it. gin knows a route only together
// with its method, so neither is the client's to choose.
func (p *patterns) of(method, path string) string {
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
