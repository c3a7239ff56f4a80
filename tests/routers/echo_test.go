package routers

import (
	"net/http"

	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"

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
