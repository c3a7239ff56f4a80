package stint_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/adaptertest"
)

// One table says what requests get, whatever the router: that of internal/test/adaptertest. It
// runs here through net/http, and through gin and echo in the tests of their adapters: a
// test of this package that imports a framework brings it to the go.sum of every user.
func TestMiddleware(t *testing.T) {
	adaptertest.Test(t, adaptertest.Adapter{Name: "std", Build: build, Problems: true, Pattern: "/users/{id}"})
}

// build is a site on a http.ServeMux.
func build(s adaptertest.Site) http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.Routes {
		h := http.Handler(r.Handler())
		for _, l := range slices.Backward(r.Limits) {
			h = stinthttp.Middleware(l)(h)
		}
		if r.Path == "/" {
			r.Path = "/{$}" // the others have no catch-all
		}
		mux.Handle(r.Path, h)
	}
	h := http.Handler(mux)
	type user struct{}
	for _, l := range slices.Backward(s.Keyed(stint.KeyFunc(func(r *http.Request) (string, error) {
		return r.Context().Value(user{}).(string), nil
	}))) {
		h = stinthttp.Middleware(l)(h)
	}
	if next := h; s.ByUser != nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get("X-User"))))
		})
	}
	for _, l := range slices.Backward(s.Limits) {
		if s.Deny != nil {
			l = stint.Must(l.With(stint.WithDenyHandler(s.Deny)))
		}
		if s.Fail != nil {
			l = stint.Must(l.With(stint.WithErrorHandler(s.Fail)))
		}
		h = stinthttp.Middleware(l)(h)
	}
	return h
}

// No adapter goes without the table.
func TestMiddlewareOfEveryAdapter(t *testing.T) {
	all, err := filepath.Glob("adapters/*/middleware.go")
	if err != nil || len(all) < 3 {
		t.Fatal(all, err)
	}
	for _, source := range all {
		test := filepath.Join(filepath.Dir(source), "middleware_test.go")
		if filepath.Dir(source) == filepath.Join("adapters", "std") {
			test = "middleware_test.go"
		}
		text, err := os.ReadFile(test)
		if err != nil || !strings.Contains(string(text), "\tadaptertest.Test(t, ") {
			t.Errorf("%s doesn't run the table: %v", test, err)
		}
	}
}
