// Package sitetest tests on a router that no spelling of a request slips past a route's limit: by one
// site of routes and limits, and the spellings that routers read in different ways.
package sitetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// A Route is a handler of the site, and the limit that must be charged when it runs.
// Patterns are those of http.ServeMux, as in the limits; Syntax translates them to
// another router's.
type Route struct{ Method, Path, Limit string }

// OnHost is the login of another site, for routers that distinguish hosts.
var OnHost = Route{"POST", "api.example.com/login", "host"}

// exempt is the Limit of a handler without limits.
const exempt = ""

// Two patterns conflict with others in one of the routers. They are needed in routers
// whose wildcards match more than those of the limits' patterns, because a handler of
// everything must not get what belongs to a route.
const (
	BelowAPI     = "/api/{rest...}"
	TwoWildcards = "/{a}/{b}"
)

// Routes are the routes of the site.
var Routes = []Route{
	{"POST", "/api/auth/login", "auth"},
	{"GET", "/api", "api"},
	{"POST", "/api", "api"},
	{"GET", "/api/{a}", "api"},
	{"POST", "/api/{a}", "api"},
	{"GET", "/api/{a}/{b}", "api"},
	{"POST", "/api/{a}/{b}", "api"},
	{"GET", BelowAPI, "api"},
	{"POST", BelowAPI, "api"},
	{"POST", "/login", "login"},
	{"GET", "/users/me", exempt},
	{"GET", "/users/{id}", "user"},
	{"GET", "/users/{id}/posts", "posts"},
	{"GET", "/files", "files"},
	{"GET", "/files/{path...}", "files"},
	{"GET", "/health", exempt},
	{"POST", "/health", exempt},
	{"GET", "/health/{check...}", exempt},
	{"POST", "/health/{check...}", exempt},
	{"CONNECT", "/tunnel/{to}", "tunnel"},
	{"GET", "/{a}", "base"},
	{"POST", "/{a}", "base"},
	{"GET", TwoWildcards, "base"},
	{"POST", TwoWildcards, "base"},
}

// Limits returns the limits of the site. Each has a name in Routes and is too large to
// deny. The tunnel's wildcard has three dots, because echo's :to, which nothing
// follows, matches the whole rest of a path.
func Limits() []stint.Option { return LimitsOf("GET /users/{id}") }

// LimitsOf are the limits if the route of a user has another pattern.
func LimitsOf(user string) []stint.Option {
	return []stint.Option{
		stint.WithKey(stint.Global()),
		limit("base"),
		stint.WithRoute("POST /api/auth/login", stint.Only(limit("auth"))),
		stint.WithRoute("/api/", stint.Only(limit("api"))),
		stint.WithRoute("POST /login", stint.Only(limit("login"))),
		stint.WithRoute("GET /users/me", stint.Exempt()),
		stint.WithRoute(user, stint.Only(limit("user"))),
		stint.WithRoute("GET /users/{id}/posts", stint.Only(limit("posts"))),
		stint.WithRoute("GET /files/{path...}", stint.Only(limit("files"))),
		stint.WithRoute("/health/", stint.Exempt()),
		stint.WithRoute("CONNECT /tunnel/{to...}", stint.Only(limit("tunnel"))),
	}
}

var wildcard = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// HostLimits returns Limits and the limit of OnHost.
func HostLimits() []stint.Option {
	return append(Limits(), stint.WithRoute("POST api.example.com/login", stint.Only(limit("host"))))
}

func limit(name string) stint.Limit { return stint.Rate(1e6, time.Second, stint.WithName(name)) }

// Syntax returns r's path with other wildcards: one is the format of a segment's
// wildcard, rest that of the rest of a path, as ":%s" and "*%s".
func (r Route) Syntax(one, rest string) string {
	return wildcard.ReplaceAllStringFunc(r.Path, func(w string) string {
		m := wildcard.FindStringSubmatch(w)
		format := one
		if m[2] != "" {
			format = rest
		}
		if !strings.Contains(format, "%") {
			return format
		}
		return fmt.Sprintf(format, m[1])
	})
}

// ran is the header field in which a handler of the site says which one it is.
const ran = "X-Ran"

// Handler returns the handler of a route.
func (r Route) Handler() http.HandlerFunc {
	name := r.Method + " " + r.Path
	return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(ran, name) }
}

// Mux returns the site as an http.ServeMux.
func Mux() *http.ServeMux {
	m := http.NewServeMux()
	for _, r := range Routes {
		if r.Path != TwoWildcards {
			m.Handle(r.Method+" "+r.Path, r.Handler())
		}
	}
	return m
}

// item matches the name of a limit in a RateLimit field.
var item = regexp.MustCompile(`"([^"]*)";r=`)

// slipped says which handler ran without its limit, or returns "".
func slipped(h http.Header) string {
	name := h.Get(ran)
	if name == "" {
		return ""
	}
	all := append(Routes[:len(Routes):len(Routes)], OnHost)
	i := slices.IndexFunc(all, func(r Route) bool { return r.Method+" "+r.Path == name })
	if i < 0 {
		return "an unknown handler ran: " + name
	}
	charged := []string{}
	for _, m := range item.FindAllStringSubmatch(strings.Join(h.Values("RateLimit"), ", "), -1) {
		charged = append(charged, m[1])
	}
	if want := all[i].Limit; want != exempt && !slices.Contains(charged, want) {
		return fmt.Sprintf("%s ran, charged %q, want %q among them", name, charged, want)
	}
	return ""
}

// NothingSlipsPast sends every spelling to the site over a connection of its own, and fails if a
// handler ran without its limit.
func NothingSlipsPast(t *testing.T, site http.Handler) {
	t.Helper()
	server := httptest.NewServer(site)
	defer server.Close()
	seen := map[string]int{}
	for _, s := range allSpellings {
		h, err := send(server.Listener.Addr().String(), s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		seen[h.Get(ran)]++
		if wrong := slipped(h); wrong != "" {
			t.Errorf("%s: %s", s, wrong)
		}
	}
	if len(seen) < 8 {
		t.Errorf("only these handlers ran: %v", seen)
	}
}

// send writes a request line unchanged; an http.Client would clean it.
func send(addr string, s spelling) (http.Header, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, s.text()); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	return res.Header, res.Body.Close()
}

// pieces replace the bytes from 0x80 on in fuzzed targets: differences between routers
// are found sooner with words than with letters.
var pieces = []string{
	"/", "//", "/.", "/..", "/../", "/./", "%2f", "%2F", "%2e", "%2e%2e", "%5c", "%25", "%252f", "%00", ";", "?", "*", ":",
	"/api", "/auth", "/login", "/users", "/me", "/posts", "/files", "/health", "/tunnel", "/x", "api", "login", "me",
	"%6cogin", "%61pi", "%6de", "..%2f", "%2f..", "http://example.com",
}

func expand(target string) string {
	var b strings.Builder
	for i := 0; i < len(target); i++ {
		if c := target[i]; c >= 0x80 {
			b.WriteString(pieces[int(c-0x80)%len(pieces)])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Fuzz sends spellings to the sites without a connection.
func Fuzz(f *testing.F, sites map[string]http.Handler) {
	for _, s := range allSpellings {
		f.Add(s.Method, s.Target, s.Host)
	}
	f.Fuzz(func(t *testing.T, method, target, host string) {
		s := spelling{method, expand(target), host}
		for name, site := range sites {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(s.text())))
			if err != nil {
				return
			}
			w := httptest.NewRecorder()
			site.ServeHTTP(w, r)
			if wrong := slipped(w.Header()); wrong != "" {
				t.Errorf("%s: %s: %s", name, s, wrong)
			}
		}
	})
}
