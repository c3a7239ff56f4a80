// Package routetest holds routers to the promise that no spelling of a request
// slips past a route's limit: it has a site, a table of spellings, and sends
// one through the other.
package routetest

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

// Route is a handler of the site, and the limit that has to be charged when it
// runs. Patterns are those of http.ServeMux, as in the limits; Syntax turns them
// into another router's.
type Route struct{ Method, Path, Limit string }

// OnHost is another site's login, for routers that know hosts.
var OnHost = Route{"POST", "api.example.com/login", "host"}

// Exempt is the Limit of a handler that nothing limits.
const Exempt = ""

// Two patterns conflict with others in one of the routers, and are needed in
// those where wildcards match more than in the limits' patterns: a handler of
// everything may not get what belongs to a route.
const (
	BelowAPI     = "/api/{rest...}"
	TwoWildcards = "/{a}/{b}"
)

// Routes are the site.
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
	{"GET", "/users/me", Exempt},
	{"GET", "/users/{id}", "user"},
	{"GET", "/users/{id}/posts", "posts"},
	{"GET", "/files", "files"},
	{"GET", "/files/{path...}", "files"},
	{"GET", "/health", Exempt},
	{"POST", "/health", Exempt},
	{"GET", "/health/{check...}", Exempt},
	{"POST", "/health/{check...}", Exempt},
	{"CONNECT", "/tunnel/{to}", "tunnel"},
	{"GET", "/{a}", "base"},
	{"POST", "/{a}", "base"},
	{"GET", TwoWildcards, "base"},
	{"POST", TwoWildcards, "base"},
}

// Limits are the site's, each of a name in Routes and too large to refuse. The
// tunnel's wildcard has three dots since echo's :to, which nothing follows,
// matches all the rest of a path.
func Limits() []stint.Option {
	return []stint.Option{
		stint.WithKey(stint.Global()),
		limit("base"),
		stint.WithRoute("POST /api/auth/login", limit("auth")),
		stint.WithRoute("/api/", limit("api")),
		stint.WithRoute("POST /login", limit("login")),
		stint.WithRoute("GET /users/me"),
		stint.WithRoute("GET /users/{id}", limit("user")),
		stint.WithRoute("GET /users/{id}/posts", limit("posts")),
		stint.WithRoute("GET /files/{path...}", limit("files")),
		stint.WithRoute("/health/"),
		stint.WithRoute("CONNECT /tunnel/{to...}", limit("tunnel")),
	}
}

var wildcard = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// HostLimits are Limits and that of OnHost.
func HostLimits() []stint.Option {
	return append(Limits(), stint.WithRoute("POST api.example.com/login", limit("host")))
}

func limit(name string) stint.Limit { return stint.Rate(1e6, time.Second, stint.WithName(name)) }

// Syntax writes r's path with other wildcards: one is the format of a segment's,
// rest that of the rest of a path, as ":%s" and "*%s".
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

// ran is the field in which a handler of the site says which one it is.
const ran = "X-Ran"

// Handler is the handler of a route.
func (r Route) Handler() http.HandlerFunc {
	name := r.Method + " " + r.Path
	return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(ran, name) }
}

// Mux is the site as an http.ServeMux.
func Mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range Routes {
		if r.Path != TwoWildcards {
			mux.Handle(r.Method+" "+r.Path, r.Handler())
		}
	}
	return mux
}

// item is the name of a limit in a RateLimit field.
var item = regexp.MustCompile(`"([^"]*)";r=`)

// slipped says what handler ran without its limit, or nothing.
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
	if want := all[i].Limit; want != Exempt && !slices.Contains(charged, want) {
		return fmt.Sprintf("%s ran, charged %q, want %q among them", name, charged, want)
	}
	return ""
}

// Run sends every spelling to the site over a connection of its own, and fails
// where a handler ran without its limit.
func Run(t *testing.T, site http.Handler) {
	t.Helper()
	server := httptest.NewServer(site)
	defer server.Close()
	seen := map[string]int{}
	for _, s := range Spellings {
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

// send writes a request line as it is, which an http.Client would clean.
func send(addr string, s Spelling) (http.Header, error) {
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

// pieces stand for the bytes from 0x80 on in fuzzed targets: what routers differ
// about is found sooner by words than by letters.
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

// Fuzz sends spellings to the sites, without a connection.
func Fuzz(f *testing.F, sites map[string]http.Handler) {
	for _, s := range Spellings {
		f.Add(s.Method, s.Target, s.Host)
	}
	f.Fuzz(func(t *testing.T, method, target, host string) {
		s := Spelling{method, expand(target), host}
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
