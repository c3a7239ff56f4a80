package stintecho

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
)

// What a handler of echo's kind may do, and what outer middleware gets.
func TestHandlers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(c *echo.Context, err error) error
		status int
		body   string
	}{
		{"answers", func(c *echo.Context, err error) error { return c.String(http.StatusTeapot, "own") }, 418, "own"},
		{"answers with the denial's status", func(c *echo.Context, err error) error {
			return c.String(echo.StatusCode(err), "own")
		}, 429, "own"},
		{"returns an error of echo's", func(c *echo.Context, err error) error { return echo.NewHTTPError(http.StatusConflict, "busy") }, 409, `{"message":"busy"}` + "\n"},
		{"returns an error that has no status", func(c *echo.Context, err error) error { return errors.New("mallory") }, 500, `{"message":"Internal Server Error"}` + "\n"},
		{"answers and returns an error", func(c *echo.Context, err error) error {
			_ = c.String(http.StatusTeapot, "own")
			return errors.New("logged")
		}, 418, "own"},
		{"flushes", func(c *echo.Context, err error) error { return http.NewResponseController(c.Response()).Flush() }, 429, ""},
		{"has no content", func(c *echo.Context, err error) error { return c.NoContent(http.StatusNoContent) }, 204, ""},
	} {
		for kind, option := range map[string]stint.Option{
			"deny":  WithDenyHandler(func(c *echo.Context) error { return tt.answer(c, stint.DeniedFromContext(c.Request().Context())) }),
			"error": WithErrorHandler(tt.answer),
		} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				e := echo.New()
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c *echo.Context) error {
						response := c.Response().(*echo.Response)
						before := 0
						response.Before(func() { before++ })
						err := next(c)
						if err != nil || c.Response() != response || !response.Committed || before != 1 || response.Status != tt.status {
							t.Errorf("outside: error %v, another response: %v, committed: %v with %d, %d hooks", err, c.Response() != response, response.Committed, response.Status, before)
						}
						if stint.DeniedFromContext(c.Request().Context()) != nil {
							t.Error("the denial is still in the request when it has been answered")
						}
						return err
					}
				})
				never := stint.WithCost(func(*http.Request) int64 { return 2 })
				e.GET("/", func(*echo.Context) error { t.Error("served"); return nil }, New(stint.Rate(1, time.Hour), byAll, never, option))
				w := ask(e, "GET", "/")
				if w.Code != tt.status || w.Body.String() != tt.body || w.Header().Get("RateLimit") == "" {
					t.Errorf("got %d %q with %v, want %d %q", w.Code, w.Body, w.Header(), tt.status, tt.body)
				}
			})
		}
	}
}

// Without an echo.Context there still is an answer: the limiter's.
func TestHandlersElsewhere(t *testing.T) {
	l, err := stint.New(stint.Rate(1, time.Hour), byAll, WithDenyHandler(func(*echo.Context) error { t.Error("ran"); return nil }))
	if err != nil {
		t.Fatal(err)
	}
	var w *httptest.ResponseRecorder
	for range 2 {
		w = httptest.NewRecorder()
		l.Serve(w, httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) {})
	}
	if w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

func TestHandlersNil(t *testing.T) {
	_, err := stint.New(stint.Rate(1, time.Hour), byAll, WithDenyHandler(nil), WithErrorHandler(nil))
	if err == nil || !strings.Contains(err.Error(), "WithDenyHandler(nil): pass") || !strings.Contains(err.Error(), "WithErrorHandler(nil): pass") {
		t.Errorf("got %v", err)
	}
}

// A route has a handler of its own, which gets the echo context.
func TestDenyHandlerOfRoute(t *testing.T) {
	text := func(s string) stint.RouteOption {
		return WithDenyHandler(func(c *echo.Context) error { return c.String(http.StatusTeapot, s+" "+c.Path()) })
	}
	e := echo.New()
	e.Use(New(stint.Rate(1, 1000*time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 })), stint.WithKey(stint.Global()), text("all"),
		stint.WithRoute("GET /stock/{id}", text("stock"))))
	admitted := func(*echo.Context) error {
		t.Error("it was admitted")
		return nil
	}
	e.GET("/stock/:id", admitted)
	e.GET("/other", admitted)
	for target, want := range map[string]string{"/stock/7": "stock /stock/:id", "/other": "all /other"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		if w.Code != http.StatusTeapot || w.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", target, w.Code, w.Body, want)
		}
	}
}
