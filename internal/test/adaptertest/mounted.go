package adaptertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// A Mounting is the row of a router in the table of docs/routers.md.
type Mounting struct {
	Router string
	// Site serves GET /api/users/{id}, on a group of routes or a router below /api, with limiters in
	// front of all requests, on the group and on the route.
	Site func(front, group, route *stint.Limiter) http.Handler
	// Stripped: the group's limiters get the path without its prefix.
	Stripped bool
	// Redirects: no limiter sees a request that the router redirects.
	Redirects bool
	// Middleware of the router, or that is usual there.
	Recovery, CORS, Timeout Around
}

// An Around serves do on / behind a limiter and a middleware, which is outside the limiter or inside.
type Around = func(l *stint.Limiter, outside bool, do http.HandlerFunc) http.Handler

// TestMounting tests that the row is true.
func TestMounting(t *testing.T, m Mounting) {
	t.Run("patterns", func(t *testing.T) {
		cells := row(t, m.Router)
		if got := m.patterns(t); !strings.HasPrefix(cells[4], got+". ") {
			t.Errorf("Pattern() is %s, and the table has %q", got, cells)
		}
	})
	for what, f := range map[string]struct {
		site Around
		test func(*testing.T, Around)
	}{
		"recovery": {m.Recovery, testRecovery}, "CORS": {m.CORS, testCORS}, "timeout": {m.Timeout, testTimeout},
	} {
		if f.site != nil {
			t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f.test(t, f.site) }) })
		}
	}
}

// row returns the cells of a row of the table.
func row(t *testing.T, router string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/routers.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "| "+router+" | "); ok {
			return append([]string{router}, strings.Split(strings.TrimSuffix(strings.TrimSpace(rest), " |"), " | ")...)
		}
	}
	t.Fatalf("docs/routers.md has no row for %s", router)
	return nil
}

// patterns are what stint.Pattern has for the limiters of the site, as the table writes it. The limiter
// in front sees every request, also those without a route.
func (m Mounting) patterns(t *testing.T) string {
	var seen, paths []string
	limiter := func() *stint.Limiter {
		i := len(seen)
		seen, paths = append(seen, ""), append(paths, "")
		return compiled(t, ample(), stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			paths[i] = r.URL.Path
			if seen[i] = "none"; r.Pattern != "" {
				seen[i] = "`" + r.Pattern + "`"
			}
			return "k", nil
		})))
	}
	h := m.Site(limiter(), limiter(), limiter())
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, get("/api/users/7")); w.Code != 200 || w.Body.String() != "served" {
		t.Fatalf("got %d %q", w.Code, w.Body)
	}
	within := "/api/users/7"
	if m.Stripped {
		within = "/users/7"
	}
	if want := []string{"/api/users/7", within, within}; !slices.Equal(paths, want) {
		t.Errorf("the limiters see the paths %q, want %q", paths, want)
	}
	patterns := fmt.Sprintf("front: %s; group: %s; route: %s", seen[0], seen[1], seen[2])
	for _, r := range []*http.Request{get("/nowhere"), get("/api/users/7/"),
		httptest.NewRequest("DELETE", "/api/users/7", nil), httptest.NewRequest("OPTIONS", "/api/users/7", nil)} {
		path := r.URL.Path
		seen[0] = ""
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if redirected := w.Code/100 == 3; (seen[0] == "") != (redirected && m.Redirects) || !redirected &&
			path == "/api/users/7/" && m.Redirects {
			t.Errorf("%s %s, answered with %d: the limiter in front saw %q", r.Method, path, w.Code, seen[0])
		}
	}
	return patterns
}

// Middleware that recovers from panics finds the slot given back on either side. Outside it also
// recovers from panics of the limiter's functions.
func testRecovery(t *testing.T, site Around) {
	for _, outside := range []bool{true, false} {
		h := site(compiled(t, stint.Concurrency(1), byAll), outside,
			func(http.ResponseWriter, *http.Request) { panic("a bug") })
		for range 3 {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, get("/")); w.Code != 500 {
				t.Errorf("outside: %v: %d, want 500", outside, w.Code)
			}
		}
		key := stint.KeyFunc(func(*http.Request) (string, error) { panic("a bug") })
		h = site(compiled(t, ample(), stint.WithKey(key)), outside, nil)
		func() {
			defer func() {
				if recovered := recover() == nil; recovered != outside {
					t.Errorf("outside: %v, recovered from the panic of a key: %v", outside, recovered)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), get("/"))
		}()
	}
}

// Outside, CORS lets a page read denials, and a preflight costs nothing.
func testCORS(t *testing.T, site Around) {
	const origin = "https://app.example"
	for _, outside := range []bool{true, false} {
		h := site(compiled(t, stint.Rate(2, time.Hour), byAll), outside, answering(200, "served"))
		ask := func(method string, fields ...string) *httptest.ResponseRecorder {
			r, w := httptest.NewRequest(method, "/", nil), httptest.NewRecorder()
			r.Header.Set("Origin", origin)
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			h.ServeHTTP(w, r)
			return w
		}
		preflight := ask("OPTIONS", "Access-Control-Request-Method", "GET")
		if got := preflight.Header().Get("Access-Control-Allow-Origin"); got == "" || preflight.Code >= 300 {
			t.Errorf("outside: %v: preflight: %d %v", outside, preflight.Code, preflight.Header())
		}
		if charged := preflight.Header().Get("RateLimit") != ""; charged == outside {
			t.Errorf("outside: %v: the preflight was charged: %v", outside, charged)
		}
		ask("GET")
		ask("GET")
		denial := ask("GET")
		if readable := denial.Header().Get("Access-Control-Allow-Origin") != ""; denial.Code != 429 || readable != outside {
			t.Errorf("outside: %v: %d, a page can read it: %v", outside, denial.Code, readable)
		}
	}
}

// Outside, a timeout of a second bounds the wait for a turn.
func testTimeout(t *testing.T, site Around) {
	for _, outside := range []bool{true, false} {
		h := site(compiled(t, stint.Rate(1, time.Minute, stint.WithMaxWait(time.Minute)), byAll), outside,
			answering(200, "served"))
		start, codes := time.Now(), []int{}
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/"))
			codes = append(codes, w.Code)
		}
		switch took := time.Since(start); {
		case codes[0] != 200:
			t.Errorf("outside: %v: %v", outside, codes)
		case outside && (codes[1] == 200 || took > time.Second):
			t.Errorf("outside: %v after %v", codes, took)
		case !outside && (codes[1] != 200 || took < time.Minute):
			t.Errorf("inside: %v after %v", codes, took)
		}
	}
}
