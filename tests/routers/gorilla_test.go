package routers

import (
	"net/http"

	"github.com/gorilla/mux"

	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/sitetest"
)

// withTemplate gives a request the pattern of gorilla/mux's route, for stint.Pattern.
func withTemplate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern, _ = mux.CurrentRoute(r).GetPathTemplate()
		next.ServeHTTP(w, r)
	})
}

// gorillaSites are the site as gorilla/mux routes it, by what is set on its router. It takes the
// first route that matches.
func gorillaSites() map[string]http.Handler {
	all := map[string]http.Handler{}
	limit := stinthttp.New(sitetest.HostLimits()...)
	for name, m := range map[string]*mux.Router{
		"default":                      mux.NewRouter(),
		"StrictSlash":                  mux.NewRouter().StrictSlash(true),
		"SkipClean":                    mux.NewRouter().SkipClean(true),
		"UseEncodedPath":               mux.NewRouter().UseEncodedPath(),
		"UseEncodedPath and SkipClean": mux.NewRouter().UseEncodedPath().SkipClean(true),
	} {
		api := m.Host("api.example.com").Subrouter()
		api.Methods("POST").Path("/login").Handler(sitetest.OnHost.Handler())
		for _, r := range sitetest.Routes {
			m.Methods(r.Method).Path(r.Syntax("{%s}", "{%s:.*}")).Handler(r.Handler())
		}
		m.Use(mux.MiddlewareFunc(limit))
		all["gorilla/mux "+name] = m
	}
	return all
}
