package stintecho

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint/internal/routetest"
)

// sites are the test site as echo routes it, by where the limiter is. With
// echo's own middleware, which needs more modules, they are in tests/routers.
func sites() map[string]http.Handler {
	all := map[string]http.Handler{}
	for name, use := range map[string]func(*echo.Echo, ...echo.MiddlewareFunc){
		"Use": (*echo.Echo).Use,
		"Pre": (*echo.Echo).Pre,
	} {
		e := echo.New()
		use(e, New(routetest.Limits()...))
		for _, r := range routetest.Routes {
			e.Add(r.Method, r.Syntax(":%s", "*"), echo.WrapHandler(r.Handler()))
		}
		all[name] = e
	}
	return all
}

func TestNoSpellingSlipsPast(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) { routetest.Run(t, site) })
	}
}

func FuzzSpellings(f *testing.F) { routetest.Fuzz(f, sites()) }
