package stint_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

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

// Events name the route, also of a limiter that has inherited it.
func TestWithKeepsRoutesNames(t *testing.T) {
	base := limiter(t, everybody, stint.Rate(9, time.Minute), stint.WithRoute("/a", stint.Rate(9, time.Minute)))
	seen := &events{}
	l := stint.Must(base.With(stint.Rate(9, time.Minute, stint.WithName("more")), seen.option()))
	codes(l, "GET", "/a", 1)
	for _, e := range seen.all {
		if e.Route != "/a" {
			t.Errorf("%v of route %q, want /a", e.Kind, e.Route)
		}
	}
	if len(seen.all) == 0 {
		t.Error("no events")
	}
}

// A limit that With adds, and that an inherited route has already, is charged once there.
func TestWithALimitOfARoute(t *testing.T) {
	login := stint.Rate(2, time.Minute, stint.WithName("login"))
	base := limiter(t, everybody, stint.Rate(9, time.Minute), stint.WithRoute("/a", login))
	l := stint.Must(base.With(login))
	l = stint.Must(l.With(stint.Rate(9, time.Minute, stint.WithName("more"))))
	if got := codes(l, "GET", "/a", 3); got != "200 200 429" {
		t.Errorf("got %s, want 200 200 429", got)
	}
}
