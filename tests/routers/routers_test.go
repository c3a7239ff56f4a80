// Package routers tests the promise of internal/routetest on routers and
// middleware that the library doesn't need.
package routers

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"

	stintecho "github.com/stint-go/stint/adapters/echo"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/routetest"
)

// chiSites are the test site as chi routes it, by what runs before the router.
func chiSites() map[string]http.Handler {
	all := map[string]http.Handler{}
	limit := stinthttp.New(routetest.Limits()...)
	for name, before := range map[string][]func(http.Handler) http.Handler{
		"default":                    {limit},
		"StripSlashes":               {limit, chimw.StripSlashes},
		"after StripSlashes":         {chimw.StripSlashes, limit},
		"CleanPath":                  {limit, chimw.CleanPath},
		"CleanPath and StripSlashes": {limit, chimw.CleanPath, chimw.StripSlashes},
		"StripSlashes and CleanPath": {limit, chimw.StripSlashes, chimw.CleanPath},
		"GetHead":                    {limit, chimw.GetHead},
	} {
		m := chi.NewRouter()
		m.Use(before...)
		for _, r := range routetest.Routes {
			m.Method(r.Method, r.Syntax("{%s}", "*"), r.Handler())
		}
		all["chi "+name] = m
	}
	return all
}

// echoSites are the test site as echo routes it without trailing slashes, by
// when the limiter sees the request.
func echoSites() map[string]http.Handler {
	all := map[string]http.Handler{}
	limit, strip := stintecho.New(routetest.Limits()...), echomw.RemoveTrailingSlash()
	for name, set := range map[string]func(*echo.Echo){
		"before RemoveTrailingSlash": func(e *echo.Echo) { e.Pre(limit, strip) },
		"after RemoveTrailingSlash":  func(e *echo.Echo) { e.Pre(strip); e.Use(limit) },
	} {
		e := echo.New()
		set(e)
		for _, r := range routetest.Routes {
			e.Add(r.Method, r.Syntax(":%s", "*"), echo.WrapHandler(r.Handler()))
		}
		all["echo "+name] = e
	}
	return all
}

func sites() map[string]http.Handler {
	all := chiSites()
	for name, site := range echoSites() {
		all[name] = site
	}
	return all
}

func TestNoSpellingSlipsPast(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) { routetest.Run(t, site) })
	}
}

func FuzzSpellings(f *testing.F) { routetest.Fuzz(f, sites()) }
