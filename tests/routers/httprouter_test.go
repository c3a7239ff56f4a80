package routers

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/sitetest"
)

// limited is an adapter of httprouter. The pattern is for stint.Pattern.
func limited(lim *stint.Limiter, pattern string, next httprouter.Handle) httprouter.Handle {
	if err := lim.Mount("httprouter"); err != nil {
		panic(err) // a key that requests through this router don't have
	}
	return func(w http.ResponseWriter, r *http.Request, params httprouter.Params) {
		r.Pattern = pattern
		lim.Serve(w, r, func(w http.ResponseWriter, r *http.Request) { next(w, r, params) })
	}
}

// The handler gets the parameters and the permit's request, and the slot comes back when it
// panics.
func TestAdapterOfARouterOutside(t *testing.T) {
	lim := stint.Must(stint.New(stint.Rate(3, time.Hour), stint.Concurrency(1), stint.WithKey(stint.Global())))
	r := httprouter.New()
	r.PanicHandler = func(w http.ResponseWriter, _ *http.Request, _ any) { w.WriteHeader(http.StatusInternalServerError) }
	users := ""
	r.GET("/users/:id", limited(lim, "GET /users/:id", func(_ http.ResponseWriter, r *http.Request, params httprouter.Params) {
		if stint.FromContext(r.Context()) == nil {
			t.Error("no permit")
		}
		users += params.ByName("id")
		panic("a bug")
	}))
	if n := passing(r, 5, "GET", "/users/a"); n != 3 || users != "aaa" {
		t.Errorf("%d passed: %q, want 3", n, users)
	}
	defer func() {
		if recover() == nil {
			t.Error("a limiter was mounted with a key that requests don't have")
		}
	}()
	limited(stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.GivenKey()))), "", nil)
}

// httprouterSites are the site as httprouter routes it, which has no two routes for one path.
func httprouterSites() map[string]http.Handler {
	all := map[string]http.Handler{}
	lim := stint.Must(stint.New(sitetest.Limits()...))
	for name, set := range map[string]func(*httprouter.Router){
		"default":   func(*httprouter.Router) {},
		"unchanged": func(m *httprouter.Router) { m.RedirectTrailingSlash, m.RedirectFixedPath = false, false },
	} {
		m := httprouter.New()
		set(m)
		for _, r := range sitetest.Routes {
			if slices.Contains([]string{"/users/me", "/users/{id}", "/api/{a}", "/api/{a}/{b}", sitetest.BelowAPI, "/{a}", sitetest.TwoWildcards}, r.Path) {
				continue
			}
			pattern := r.Syntax(":%s", "*%s")
			m.Handle(r.Method, pattern, limited(lim, pattern, func(w http.ResponseWriter, req *http.Request, _ httprouter.Params) { r.Handler()(w, req) }))
		}
		all["httprouter "+name] = m
	}
	return all
}
