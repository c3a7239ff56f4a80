package routing

import (
	"bufio"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// named is a router whose patterns have names.
type named struct {
	*Router
	names []string
}

// router makes the router of routes, each a name and a pattern.
func router(t *testing.T, routes [][2]string) named {
	t.Helper()
	var n named
	var patterns []string
	for _, r := range routes {
		n.names, patterns = append(n.names, r[0]), append(patterns, r[1])
	}
	n.names = append(n.names, "base")
	var problems []Problem
	if n.Router, problems = New(patterns); problems != nil {
		t.Fatal(problems)
	}
	return n
}

// found are the names that a request finds, in order.
func (n named) found(r *http.Request) string {
	first, others := n.Find(r)
	var all []string
	for _, m := range append([]Match{first}, others...) {
		name := n.names[m.Pattern]
		if beside := n.names[m.Beside]; beside != "base" {
			name += "+" + beside
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// requested makes a request of "METHOD target host", as a server does.
func requested(t testing.TB, request string) *http.Request {
	t.Helper()
	f := strings.Fields(request)
	if f[1][0] == '%' {
		f[1] = "/" + f[1]
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(f[0] + " " + f[1] + " HTTP/1.1\r\nHost: " + f[2] + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFind(t *testing.T) {
	n := router(t, [][2]string{
		{"login", "POST /login"},
		{"files", "GET /files/"},
		{"users", "/users/{id}"},
		{"doc", "GET /docs"},
		{"docs", "GET /docs/{$}"},
		{"tree", "/tree/{path...}"},
		{"leaf", "/tree/{leaf}"},
		{"tunnel", "CONNECT /tunnel/{to}/"},
		{"api", "api.example.com/"},
		{"upper", "upper.example.com./"},
		{"six", "[::1]/"},
		{"book", "xn--bcher-kva.example/"},
		{"health", "GET /health"},
		{"icon", "/favicon.ico"},
		{"me", "/users/me"},
		{"version", "/v1.0/"},
	})
	for _, tt := range []struct{ request, want string }{
		{"GET / x", "base"},
		{"POST /login x", "login"},
		{"GET /login x", "base"},
		{"POST /login?x=//y x", "login"},
		{"POST http://x/login x", "login"},
		{"GET /files/a/b x", "files"},
		{"GET /files/.hidden x", "files"},
		{"GET /files/a.b/...c/..d x", "files"},
		{"GET /files/a%20b x", "files"},
		{"GET /files/a(b)!c x", "files"},
		{"HEAD /files/a x", "files"},
		{"GET /files x", "files"}, // a mux sends it to /files/
		{"PUT /files/a x", "base"},
		{"GET /users/7 x", "users"},
		{"GET /users/a%40b x", "users"},
		{"GET /users/7/posts x", "base"},
		{"GET /favicon.ico x", "icon"}, // the pattern names the suffix
		{"GET /favicon x", "base"},
		{"GET /users/a.b x", "users"},
		{"GET /files/a/app.min.js x", "files"},
		{"GET /robots.txt x", "base"},
		{"GET /v1.0/a.b x", "version"},
		{"GET /login.json x", "base"},
		{"GET /users/7;v=1 x", "users"},
		{"GET /health x", "health"},

		// As sent, it is none of the patterns'.
		{"POST //login x", "base login"},
		{"POST /./login x", "base login"},
		{"POST /a/../login x", "base login"},
		{"POST /../login x", "base login"},
		{"POST /%6cogin x", "base login"},
		{"POST /%2e/login x", "base login"},
		{"POST /a/%2e%2e/login x", "base login"},
		{"POST %2Flogin x", "base login"},
		{"POST /health/..%2flogin x", "base login"},
		{"POST /login;x x", "base"},
		{"POST /%5clogin x", "base"},
		{"POST /%252flogin x", "base"}, // no router decodes twice
		{"GET /users/a%2Fb x", "base users"},
		{"HEAD //health x", "base health"},
		{"GET /files/../health x", "files health"},
		{"GET /health/. x", "base health"},

		// Without its trailing slash.
		{"POST /login/ x", "base login"},
		{"POST /login// x", "base login"},
		{"POST //login/ x", "base login"},
		{"POST /login/. x", "base login"},
		{"POST /login/a/.. x", "base login"},
		{"GET /users/7/ x", "base users"},
		{"GET /files/ x", "files"},
		{"GET /files/a/ x", "files"},
		{"GET /docs/ x", "docs"},
		{"GET /docs x", "doc"},
		{"GET /docs// x", "base docs"},
		{"GET /tree/ x", "tree"},
		{"GET /tree x", "tree"},
		{"GET /tree/7/ x", "leaf tree"},
		{"GET /tree/7 x", "leaf"},
		{"GET /tree/7/8/9/10/11/ x", "tree"},

		// Without the suffix of its last segment.
		{"POST /login.json x", "base login"},
		{"POST /login. x", "base login"},
		{"POST /login.tar.gz x", "base"}, // only one is removed
		{"POST /%6cogin%2ejson x", "base login"},
		{"POST /login.json/ x", "base login"},
		{"POST /login/.json x", "base login"},
		{"POST //login.json x", "base login"},
		{"POST /login/x/...json x", "base login"}, // cleaned afterwards
		{"POST /login.json/x/.. x", "base login"},
		{"POST /login.json;x x", "base login"},
		{"POST /login;x.json x", "base"},
		{"POST /log.in/x x", "base"},
		{"GET /users/me.json x", "me users"},
		{"GET /docs.html x", "base doc"},
		{"GET /docs/.html x", "base doc docs"},
		{"GET /tree.html x", "base tree"},
		{"GET /favicon.ico.gz x", "base icon"},
		{"GET /favicon.ico/ x", "base icon"},
		{"GET /v1.0 x", "base version"},
		{"POST /login.json api.example.com", "api api+login"},
		{"POST /login.json api.example.com:", "api api+login"},

		// Of any host.
		{"GET /anything api.example.com", "api"},
		{"GET /anything api.example.com:8080", "api"},
		{"GET /anything api.example.com:", "api"},
		{"POST /login api.example.com", "api+login"}, // a pattern with a host is more specific, and the other matches, too
		{"POST /login API.example.com", "api+login login"},
		{"POST /login api.example.com.", "api+login login"},
		{"POST /login API.Example.COM.:443", "api+login login"},
		{"POST http://API.example.com/login x", "api+login login"},
		// Ports that some routers cut off and others don't.
		{"POST /login api.example.com:80:80", "api+login login"},
		{"POST /login api.example.com::", "api+login login"},
		{"POST /login api.example.com::80", "api+login login"},
		{"POST /login API.example.com.:80:80", "api+login login"},
		{"POST /login api.example.com..", "api+login login"},
		{"POST /login [api.example.com]", "api+login login"},
		{"POST /login [api.example.com]:80", "api+login login"},
		{"POST /login [api.example.com", "api+login login"},
		{"POST /login [api.example.com]x:80", "api+login login"},
		{"POST /login api.example.com]:80", "api+login login"},
		{"POST /login/ Api.example.com", "api api+login base login"},
		{"POST /login upper.example.com", "upper+login"},
		{"POST /login UPPER.example.com", "login upper+login"},
		{"GET / [::1]", "base six"},
		{"GET / [::1]:8080", "six"},
		{"GET / [::1]::", "base six"},
		{"GET / [::1]:", "six"},
		{"GET / xn--bcher-kva.example", "book"},
		{"GET / XN--BCHER-KVA.EXAMPLE", "base book"},
		{"GET / api.example.com.evil.org", "base"},

		{"OPTIONS * x", "base"},
		{"GET http://x x", "base"},
		{"CONNECT example.com:443 example.com:443", "base"},
		{"CONNECT api.example.com:443 api.example.com:443", "api base"},
		{"CONNECT /tunnel/7 x", "tunnel"},
		{"CONNECT //tunnel/7/ x", "base tunnel"},
	} {
		t.Run(tt.request, func(t *testing.T) {
			if got := n.found(requested(t, tt.request)); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// A usual request finds by its one lookup what it would find if all interpretations were looked up.
func TestUsualRequestsAreUnambiguous(t *testing.T) {
	segments := []string{"", "a", "a.b", "b", ".b", "a.", "a.b.c", "...b", "..b", "a b.c"}
	for _, patterns := range [][]string{
		{"/a"}, {"/a/"}, {"/a/{$}"}, {"/{x}"}, {"/a.b"}, {"/a.b/"}, {"/a/{x...}"}, {"/{x}/a"}, {"/a/a.b", "/a/{x}", "/a/"}, {"/{x}/", "/a.b"},
		{"h/a.b", "/a"}, {"/a%2eb", "/{x}"}, {"/{x}/{$}", "/a"}, {"/a%20b", "/a%20b.c/"}, {"POST /a.b", "/a"}, {"/a/b", "/a/{x}/"},
	} {
		rt, problems := New(patterns)
		if problems != nil {
			t.Fatal(problems)
		}
		for _, one := range segments {
			for _, two := range append(segments, "-") {
				path := "/" + one
				if two != "-" {
					path += "/" + two
				}
				r := &http.Request{Method: "GET", Host: "h", URL: &url.URL{Path: path}}
				first, others := rt.Find(r)
				got := append([]Match{first}, others...)
				rs := interpretations{Router: rt, method: r.Method, host: r.Host}
				for _, text := range textsOf(r.URL) {
					rs.text(text)
				}
				for _, m := range rs.matches {
					if !slices.Contains(got, m) {
						t.Errorf("%q: %s finds %v, and not %v", patterns, path, got, m)
					}
				}
			}
		}
	}
}

// A pattern other than "/" may match everything.
func TestRouteOfEverything(t *testing.T) {
	n := router(t, [][2]string{{"all", "/{all...}"}})
	for _, request := range []string{"GET / x", "GET /a/b x", "CONNECT x:1 x"} {
		if got := n.found(requested(t, request)); got != "all" {
			t.Errorf("%s: found %q, want all", request, got)
		}
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		patterns []string
		want     Problem
	}{
		{[]string{"/a", "/a"}, Problem{"/a", "given twice", "put both into one"}},
		{[]string{"GET /x/{a}", "GET /{a}/x"}, Problem{"GET /{a}/x", `pattern "GET /{a}/x" conflicts with pattern "GET /x/{a}"`, "make one of them more specific"}},
		// Hosts that only differ in their spelling are one.
		{[]string{"api.example.com/", "api.example.com./"}, Problem{"api.example.com./", `pattern "api.example.com./" conflicts with pattern "api.example.com/"`, "make one of them more specific"}},
	} {
		if _, got := New(tt.patterns); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%q: got %q, want %q", tt.patterns, got, tt.want)
		}
	}
}

// The usual request finds its pattern without an allocation.
func TestUsualRequestAllocatesNothing(t *testing.T) {
	rt, problems := New([]string{"POST /login", "GET /files/", "/favicon.ico", "/users/{id}", "api.example.com/"})
	if problems != nil {
		t.Fatal(problems)
	}
	for _, request := range []string{"GET / x", "POST /login x", "GET /files x", "GET /files/a/b x", "GET /files/app.min.css x", "GET /favicon.ico x",
		"GET /users/a%20b x", "GET /a api.example.com", "POST /login api.example.com"} {
		r := requested(t, request)
		if n := testing.AllocsPerRun(100, func() { rt.Find(r) }); n > 0 {
			t.Errorf("%s: %v allocations", request, n)
		}
	}
}

// The longest path that a server reads is copied a few times, not for every segment and
// interpretation.
func TestLongPaths(t *testing.T) {
	rt, _ := New([]string{"POST /api/auth/login", "api.example.com/{x...}"})
	for _, unit := range []string{"/", "/..", "/a%2f", "%2e%2f", "a", "%41"} {
		r := requested(t, "POST /"+strings.Repeat(unit, 1<<20/len(unit))+" API.example.com")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rt.Find(r)
		runtime.ReadMemStats(&after)
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 20 {
			t.Errorf("a path of 1 MB of %q took %d MB", unit, mb)
		}
	}
}

func TestChains(t *testing.T) {
	patterns := []string{
		"/", "/api/", "POST /api/export", "/api/{version}/", "GET /api/{version}/users/{id}", "GET /api/v1/users/{id}",
		"/files", "/files/", "/files/{$}", "/files/{a}/{b}", "/any/{x...}", "GET /api/{version}/",
		"api.test/", "GET api.test./api/", "GET /%61pi/{version}/users/",
	}
	rt, problems := New(patterns)
	if problems != nil {
		t.Fatal(problems)
	}
	for i, chain := range rt.Chains() {
		var got []string
		for _, n := range chain {
			got = append(got, patterns[n])
		}
		want := map[string]string{
			"/": "/", "/api/": "/api/ > /", "POST /api/export": "POST /api/export > /api/{version}/ > /api/ > /",
			"/api/{version}/":               "/api/{version}/ > /api/ > /",
			"GET /api/{version}/users/{id}": "GET /api/{version}/users/{id} > GET /%61pi/{version}/users/ > GET /api/{version}/ > /api/{version}/ > /api/ > /",
			"GET /api/v1/users/{id}":        "GET /api/v1/users/{id} > GET /api/{version}/users/{id} > GET /%61pi/{version}/users/ > GET /api/{version}/ > /api/{version}/ > /api/ > /",
			"/files":                        "/files > /files/{$} > /files/ > /",
			"/files/":                       "/files/ > /", "/files/{$}": "/files/{$} > /files/ > /", "/files/{a}/{b}": "/files/{a}/{b} > /files/ > /",
			"/any/{x...}":         "/any/{x...} > /",
			"GET /api/{version}/": "GET /api/{version}/ > /api/{version}/ > /api/ > /",
			"api.test/":           "api.test/", "GET api.test./api/": "GET api.test./api/ > api.test/",
			"GET /%61pi/{version}/users/": "GET /%61pi/{version}/users/ > GET /api/{version}/ > /api/{version}/ > /api/ > /",
		}[patterns[i]]
		if got := strings.Join(got, " > "); got != want {
			t.Errorf("%s: %s, want %s", patterns[i], got, want)
		}
	}
}
