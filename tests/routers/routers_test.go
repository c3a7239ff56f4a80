// Package routers tests on real routers, and on middleware that changes paths before or
// after the limiter, that no spelling of a request slips past a route's limit.
package routers

import (
	"maps"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"

	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/sitetest"
)

// chiSites are the site as chi routes it, by what runs before the router.
func chiSites() map[string]http.Handler {
	all := map[string]http.Handler{}
	limit := stinthttp.New(sitetest.Limits()...)
	for name, before := range map[string][]func(http.Handler) http.Handler{
		"default":                    {limit},
		"StripSlashes":               {limit, chimw.StripSlashes},
		"after StripSlashes":         {chimw.StripSlashes, limit},
		"CleanPath":                  {limit, chimw.CleanPath},
		"CleanPath and StripSlashes": {limit, chimw.CleanPath, chimw.StripSlashes},
		"StripSlashes and CleanPath": {limit, chimw.StripSlashes, chimw.CleanPath},
		"GetHead":                    {limit, chimw.GetHead},
		"URLFormat":                  {limit, chimw.URLFormat},
		"after URLFormat":            {chimw.URLFormat, limit},
		"URLFormat and CleanPath":    {limit, chimw.URLFormat, chimw.CleanPath},
		"CleanPath and URLFormat":    {limit, chimw.CleanPath, chimw.URLFormat},
		"URLFormat and StripSlashes": {limit, chimw.URLFormat, chimw.StripSlashes},
		"StripSlashes and URLFormat": {limit, chimw.StripSlashes, chimw.URLFormat},
	} {
		m := chi.NewRouter()
		m.Use(before...)
		for _, r := range sitetest.Routes {
			m.Method(r.Method, r.Syntax("{%s}", "*"), r.Handler())
		}
		all["chi "+name] = m
	}
	return all
}

func sites() map[string]http.Handler {
	all := muxSites()
	for _, more := range []map[string]http.Handler{ginSites(), echoSites(), chiSites(), gorillaSites(), httprouterSites(), bunSites()} {
		maps.Copy(all, more)
	}
	return all
}

func TestNoSpellingSlipsPast(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) { sitetest.NothingSlipsPast(t, site) })
	}
}

func FuzzSpellings(f *testing.F) { sitetest.Fuzz(f, sites()) }
