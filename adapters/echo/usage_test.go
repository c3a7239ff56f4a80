package stintecho_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// A page of an account. It is mounted behind the limiter, so that the key finds what the
// authentication has set, and is exempt from it.
func Example_usage() {
	user := stintecho.Key(func(c echo.Context) (string, error) {
		user, _ := c.Get("user").(string)
		return user, nil
	})
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Hour, stint.WithName("calls"), stint.WithKey(user)),
		stint.WithRoute("GET /account/usage", stint.Exempt()),
	))

	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // the authentication
		return func(c echo.Context) error {
			c.Set("user", c.Request().Header.Get("X-User"))
			return next(c)
		}
	})
	e.Use(stintecho.Middleware(lim))
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	e.GET("/account/usage", echo.WrapHandler(stinthttp.Usage(lim)))

	for _, path := range []string{"/", "/account/usage"} {
		w, req := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
		req.Header.Set("X-User", "ada")
		e.ServeHTTP(w, req)
		fmt.Print(w.Body)
	}
	// Output:
	// {"limits":[{"limit":"calls","capacity":100,"used":1,"remaining":99,"reset_after":36}]}
}

// A page outside the middleware of its limiter can't read the keys, and says so.
func TestUsageOutsideTheMiddleware(t *testing.T) {
	user := stintecho.Key(func(echo.Context) (string, error) { return "ada", nil })
	var log bytes.Buffer
	lim := stint.Must(stint.New(stint.Rate(100, time.Minute), stint.WithKey(user),
		stint.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
	e := echo.New()
	e.GET("/usage", echo.WrapHandler(stinthttp.Usage(lim)))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/usage", nil))
	if w.Code != 500 || !strings.Contains(log.String(), "mount the limiter with stintecho") {
		t.Errorf("got %d %s, log %s", w.Code, w.Body, &log)
	}
}
