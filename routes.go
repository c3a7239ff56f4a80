package stint

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// route is one WithRoute, compiled. Its plan's entries don't include those that
// a limiter derived later adds.
type route struct {
	pattern string
	plan    *plan
	// slashes is how many slashes a path has whose last one the pattern names;
	// 0 if the pattern doesn't end in one.
	slashes int
}

// ServeHTTP makes a route what a ServeMux finds for a request. Nobody calls it.
func (*route) ServeHTTP(http.ResponseWriter, *http.Request) {}

// names reports whether the pattern ends where path does, and in a slash: the
// route is then that of the path with the slash.
func (r *route) names(path string) bool {
	return r.slashes > 0 && strings.Count(path, "/") == r.slashes
}

// router finds the plan of a request. http.ServeMux does the matching, so that
// patterns mean what they mean everywhere else.
type router struct {
	mux    *http.ServeMux
	routes []*route
	rest   *route // of what no other route matches
	hosts  bool   // some pattern has a host
	// No pattern has more slashes, and none a segment that takes more bytes,
	// escaped.
	depth, longest int
}

// rest matches what no other pattern does.
const rest = "/"

// newRouter makes the router of routes; base is the plan of all requests that
// match none of them.
func newRouter(routes []*route, base *plan) (*router, mistakes) {
	if len(routes) == 0 {
		return nil, nil
	}
	rt := &router{mux: http.NewServeMux(), routes: routes, rest: &route{pattern: rest, plan: base}}
	given := map[string]bool{}
	var errs mistakes
	for _, r := range routes {
		if given[r.pattern] {
			errs = append(errs, &OptionError{Route: r.pattern, Problem: "given twice", Write: "put all its limits into one"})
			continue
		}
		given[r.pattern] = true
		if wrong := rt.add(r); wrong != nil {
			wrong.Route = r.pattern
			errs = append(errs, wrong)
		}
	}
	// Without it the mux works out the methods allowed for everything else. It
	// only conflicts with a pattern that matches everything as well.
	_ = handle(rt.mux, rest, rt.rest)
	return rt, errs
}

// add registers a route. Hosts have no case and may end in a dot, so the mux
// gets them in one spelling.
func (rt *router) add(r *route) *OptionError {
	method, host, path := splitPattern(r.pattern)
	rt.hosts = rt.hosts || host != ""
	slashes := strings.Count(path, "/")
	rt.depth, rt.longest = max(rt.depth, slashes), max(rt.longest, 3*len(path))
	if strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/{$}") || strings.HasSuffix(path, "...}") {
		r.slashes = slashes
	}
	return handle(rt.mux, method+plainHost(host)+path, r)
}

// splitPattern takes a pattern of http.ServeMux apart; the method keeps the
// space behind it.
func splitPattern(pattern string) (method, host, path string) {
	rest := pattern
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		rest = strings.TrimLeft(pattern[i:], " \t")
		method = pattern[:len(pattern)-len(rest)]
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return method, rest[:i], rest[i:]
	}
	return method, "", rest // not a pattern, as the mux will say
}

// withoutPlaces is what the mux says, without the places where patterns were
// registered: those in this package's source say nothing to who wrote a pattern.
func withoutPlaces(text string) string {
	for {
		before, place, found := strings.Cut(text, " (registered at ")
		_, after, ends := strings.Cut(place, ")")
		if !found || !ends {
			return text
		}
		text = before + after
	}
}

// handle registers a pattern; http.ServeMux panics on a bad one.
func handle(mux *http.ServeMux, pattern string, r *route) (wrong *OptionError) {
	defer func() {
		if p := recover(); p != nil {
			text, _, conflict := strings.Cut(fmt.Sprint(p), ":\n")
			if conflict {
				wrong = &OptionError{Problem: withoutPlaces(text), Write: "write one that is more specific or less"}
				return
			}
			wrong = &OptionError{Problem: text, Write: "write a pattern of http.ServeMux, such as \"POST /login\""}
		}
	}()
	mux.Handle(pattern, r)
	return nil
}

// find returns the route of the most specific pattern that matches an escaped
// path with nothing to clean. The mux has no route at hand only where it would
// redirect to the path with a slash at its end.
func (rt *router) find(method, host, path string) *route {
	u := &url.URL{Host: host, RawPath: path}
	u.Path, _ = url.PathUnescape(path)
	h, _ := rt.mux.Handler(&http.Request{Method: method, Host: host, URL: u})
	if found, ok := h.(*route); ok {
		return found
	}
	if strings.HasSuffix(path, "/") {
		return rt.rest
	}
	return rt.find(method, host, path+"/")
}

// plan returns the plan of a request.
func (v *version) plan(r *http.Request) *plan {
	if v.router == nil {
		return v.base
	}
	return v.router.plan(r)
}

// withoutPort is what http.ServeMux makes of a request's host.
func withoutPort(host string) string {
	if !strings.Contains(host, ":") {
		return host
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

// plainHost is a host without port in the spelling that routes are found by: in
// lower case, without a dot at its end or brackets around an address.
func plainHost(host string) string {
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
