package routers

import (
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	"github.com/stint-go/stint/internal/test/sitetest"
)

// echoSites are the site as echo routes it, by when the limiter sees the request.
func echoSites() map[string]http.Handler {
	all := map[string]http.Handler{}
	limit, strip := stintecho.New(sitetest.Limits()...), echomw.RemoveTrailingSlash()
	for name, set := range map[string]func(*echo.Echo){
		"Use":                        func(e *echo.Echo) { e.Use(limit) },
		"Pre":                        func(e *echo.Echo) { e.Pre(limit) },
		"before RemoveTrailingSlash": func(e *echo.Echo) { e.Pre(limit, strip) },
		"after RemoveTrailingSlash":  func(e *echo.Echo) { e.Pre(strip); e.Use(limit) },
	} {
		e := echo.New()
		set(e)
		for _, r := range sitetest.Routes {
			e.Add(r.Method, r.Syntax(":%s", "*"), echo.WrapHandler(r.Handler()))
		}
		all["echo "+name] = e
	}
	return all
}

// Rewrite changes the path before the router. A limiter by Use has the new path, one by Pre before
// Rewrite has the old one.
func TestEchoRewrite(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(e *echo.Echo, limit, rewrite echo.MiddlewareFunc)
		want int // of 50
	}{
		"by Use":             {func(e *echo.Echo, limit, rewrite echo.MiddlewareFunc) { e.Pre(rewrite); e.Use(limit) }, 5},
		"by Pre, behind it":  {func(e *echo.Echo, limit, rewrite echo.MiddlewareFunc) { e.Pre(rewrite, limit) }, 5},
		"by Pre, before it":  {func(e *echo.Echo, limit, rewrite echo.MiddlewareFunc) { e.Pre(limit, rewrite) }, 50},
		"by the route alone": {func(e *echo.Echo, limit, rewrite echo.MiddlewareFunc) { e.Pre(rewrite); e.POST("/login", ok, limit) }, 5},
	} {
		e := echo.New()
		e.POST("/login", ok)
		tt.set(e, stintecho.New(
			stint.WithRoute("POST /login", stint.Rate(5, time.Hour, stint.WithName("login"))),
			stint.WithKey(stint.RemoteIP())),
			echomw.Rewrite(map[string]string{"/v1/*": "/$1"}))
		if got := passing(e, 50, "POST", "/v1/login"); got != tt.want {
			t.Errorf("%s: %d of 50 pass, want %d", name, got, tt.want)
		}
	}
}

func ok(c echo.Context) error { return c.NoContent(http.StatusOK) }
