package stint_test

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

func TestRoutes(t *testing.T) {
	minute := time.Minute
	l := limiter(t, everybody,
		stint.Rate(1000, minute, stint.WithName("base")),
		stint.WithRoute("POST /login", stint.Rate(1000, minute, stint.WithName("login"))),
		stint.WithRoute("GET /files/", stint.Rate(1000, minute, stint.WithName("files"))),
		stint.WithRoute("/users/{id}", stint.Rate(1000, minute, stint.WithName("users"))),
		stint.WithRoute("GET /docs", stint.Rate(1000, minute, stint.WithName("doc"))),
		stint.WithRoute("GET /docs/{$}", stint.Rate(1000, minute, stint.WithName("docs"))),
		stint.WithRoute("/tree/{path...}", stint.Rate(1000, minute, stint.WithName("tree"))),
		stint.WithRoute("/tree/{leaf}", stint.Rate(1000, minute, stint.WithName("leaf"))),
		stint.WithRoute("CONNECT /tunnel/{to}/", stint.Rate(1000, minute, stint.WithName("tunnel"))),
		stint.WithRoute("api.example.com/", stint.Rate(1000, minute, stint.WithName("api"))),
		stint.WithRoute("Upper.Example.com./", stint.Rate(1000, minute, stint.WithName("upper"))),
		stint.WithRoute("[::1]/", stint.Rate(1000, minute, stint.WithName("six"))),
		stint.WithRoute("xn--bcher-kva.example/", stint.Rate(1000, minute, stint.WithName("book"))),
		stint.WithRoute("GET /health"),
	)
	// All limits that are charged, in any order.
	tests := []struct{ request, want string }{
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
		{"GET /users/7;v=1 x", "users"},
		{"GET /health x", ""},

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
		{"POST /%252flogin x", "base"}, // nobody decodes twice
		{"GET /users/a%2Fb x", "base users"},
		{"HEAD //health x", "base"},
		{"GET /files/../health x", "files"},
		{"GET /health/. x", "base"},

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

		// Of any host.
		{"GET /anything api.example.com", "api"},
		{"GET /anything api.example.com:8080", "api"},
		{"GET /anything api.example.com:", "api"},
		{"POST /login api.example.com", "api"}, // a pattern with a host is more specific
		{"POST /login API.example.com", "api login"},
		{"POST /login api.example.com.", "api login"},
		{"POST /login API.Example.COM.:443", "api login"},
		{"POST http://API.example.com/login x", "api login"},
		{"POST /login/ Api.example.com", "api base login"},
		{"POST /login upper.example.com", "upper"},
		{"POST /login UPPER.example.com", "login upper"},
		{"GET / [::1]", "base six"},
		{"GET / [::1]:8080", "six"},
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
	}
	for _, tt := range tests {
		t.Run(tt.request, func(t *testing.T) {
			if got := charged(t, l, tt.request); got != tt.want {
				t.Errorf("limited by %q, want %q", got, tt.want)
			}
		})
	}
}

// requested makes a request of "METHOD target host", as a server does.
func requested(t *testing.T, request string) *http.Request {
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

// charged names the limits that a request is charged, in order of their names.
func charged(t *testing.T, l *stint.Limiter, request string) string {
	t.Helper()
	names := strings.Fields(strip(through(l, requested(t, request), nil).Header().Get("RateLimit")))
	slices.Sort(names)
	return strings.ReplaceAll(strings.Join(names, " "), `"`, "")
}

func TestRouteDefaults(t *testing.T) {
	var called []string
	key := func(name string) stint.SharedOption {
		return stint.WithKey(func(r *http.Request) (string, error) {
			if r.Method == "POST" {
				called = append(called, name)
			}
			return name, nil
		})
	}
	l := limiter(t, key("limiter"), stint.Rate(1, time.Second),
		stint.WithRoute("/a", key("route"), stint.Rate(1, time.Second), stint.Quota(9, stint.Daily), stint.Concurrency(1, key("limit"))),
		stint.WithRoute("/b", stint.Rate(1, time.Second), stint.Quota(9, stint.Daily)),
	)
	for path, want := range map[string]string{"/": "limiter", "/a": "route limit", "/b": "limiter"} {
		called = nil
		codes(l, "POST", path, 1)
		if got := strings.Join(called, " "); got != want {
			t.Errorf("%s: key functions called: %q, want %q", path, got, want)
		}
	}
}

func TestWithAddsToRoutes(t *testing.T) {
	base := limiter(t, everybody, stint.Rate(9, time.Minute, stint.WithName("base")),
		stint.WithRoute("/a", stint.Rate(9, time.Minute, stint.WithName("a"))),
		stint.WithRoute("/b", stint.Rate(9, time.Minute, stint.WithName("b"))),
		stint.WithRoute("/free"))
	l, err := base.With(stint.Rate(9, time.Minute, stint.WithName("more")),
		stint.WithRoute("/b", stint.Rate(9, time.Minute, stint.WithName("own"))))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"/":     `"base";r=8;t=7, "more";r=8;t=7`,
		"/a":    `"a";r=8;t=7, "more";r=8;t=7`,
		"/b":    `"own";r=8;t=7`,
		"/free": `"more";r=7;t=7`,
	}
	for _, path := range []string{"/", "/a", "/b", "/free"} {
		w := through(l, get(path), nil)
		if got := strip(w.Header().Get("RateLimit")); got != strip(tests[path]) {
			t.Errorf("%s: %s, want the limits of %s", path, got, tests[path])
		}
	}
}

// strip leaves only the names of a RateLimit field.
func strip(field string) string {
	var names []string
	for item := range strings.SplitSeq(field, ", ") {
		name, _, _ := strings.Cut(item, ";")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
