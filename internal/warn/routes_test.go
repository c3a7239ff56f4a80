package warn

import (
	"net/http/httptest"
	"testing"
)

// A pattern that none of the first requests matches is found if many seem to be for it.
func TestMissedRoutes(t *testing.T) {
	for _, tt := range []struct {
		name, pattern, method, sent, path, want string
	}{
		{"inside StripPrefix", "POST /api/login", "POST", "/api/login?a=b", "/login", "POST /login"},
		{"inside StripPrefix, with a wildcard", "GET example.com/v1/users/{id}", "GET", "/v1/users/7", "/users/7", "GET example.com/users/{id}"},
		{"a prefix that isn't stripped", "/login", "POST", "/api/login", "/api/login", "/api/login"},
		{"a letter less", "GET /users/{id}", "GET", "/user/7", "/user/7", "GET /user/{id}"},
		{"a letter more", "GET /user/{id}", "GET", "/users/7", "/users/7", "GET /users/{id}"},
		{"another letter", "GET /search", "GET", "/seerch", "/seerch", "GET /seerch"},
		{"another method", "DELETE /users/{id}", "GET", "/users/7", "/users/7", ""},
		{"another version", "GET /v1/users", "GET", "/v2/users", "/v2/users", ""},
		{"a short word", "GET /a/cat", "GET", "/a/bat", "/a/bat", ""},
		{"two letters", "GET /search", "GET", "/church", "/church", ""},
		{"two prefixes", "/login", "GET", "/a/b/login", "/a/b/login", ""},
		{"something else", "POST /admin/reset", "POST", "/orders", "/orders", ""},
		{"another path that is stripped", "POST /api/login", "POST", "/api/orders", "/orders", ""},
	} {
		asked := make(chan struct{})
		w := NewRoutes([]string{tt.pattern, "GET /else"}, func() { close(asked) })
		r := httptest.NewRequest(tt.method, tt.sent, nil)
		r.URL.Path = tt.path
		for !w.Over() {
			w.Look(r, "")
		}
		<-asked
		if got := w.Missed()[tt.pattern]; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What a request has matched isn't missed, nor what only few seem to be for.
func TestRoutesThatAreNotMissed(t *testing.T) {
	near := httptest.NewRequest("GET", "/users/7", nil)
	for name, look := range map[string]func(*Routes, int){
		"matched once":                  func(w *Routes, i int) { w.Look(near, map[bool]string{true: "GET /user/{id}"}[i == 5000]) },
		"matched together with another": func(w *Routes, i int) { w.Look(near, map[bool]string{true: "GET /, GET /user/{id}"}[i == 5000]) },
		"few": func(w *Routes, i int) {
			if r := httptest.NewRequest("GET", "/", nil); i%1000 != 0 {
				w.Look(r, "GET /")
				return
			}
			w.Look(near, "")
		},
	} {
		w := NewRoutes([]string{"GET /user/{id}", "GET /"}, func() {})
		for i := 0; !w.Over(); i++ {
			look(w, i)
		}
		if got := w.Missed(); len(got) > 0 {
			t.Errorf("%s: missed %v", name, got)
		}
	}
}
