package stintecho_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echov5"
)

// A Bandwidth doesn't look at the response, so it leaves errors to those outside.
func TestBandwidthLeavesErrorsAlone(t *testing.T) {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if err := next(c); err != nil {
				return echo.ErrServiceUnavailable.Wrap(err)
			}
			return nil
		}
	})
	e.Use(stintecho.New(stint.Bandwidth(1_000_000), stint.WithKey(stint.Global())))
	e.GET("/", func(*echo.Context) error { return errors.New("busy") })
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 503 {
		t.Errorf("answered %d, want 503", w.Code)
	}
}

// An error that a handler returns is answered before limits look at the
// response, once, and what is mounted outside still sees it.
func TestSettleByEchosError(t *testing.T) {
	tests := []struct {
		name    string
		do      echo.HandlerFunc
		status  int
		written int64
	}{
		{"an answer", func(c *echo.Context) error { return c.String(201, "made") }, 201, 4},
		{"no content", func(c *echo.Context) error { return c.NoContent(204) }, 204, 0},
		{"an error with a status", func(*echo.Context) error { return echo.NewHTTPError(401, "who") }, 401, 18},
		{"any error", func(*echo.Context) error { return errors.New("secret") }, 500, 36},
		{"an error after an answer", func(c *echo.Context) error { _ = c.String(200, "x"); return errors.New("late") }, 200, 1},
	}
	for _, tt := range tests {
		var status, handled int
		var written int64
		var outside error
		e := echo.New()
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			if res, _ := echo.UnwrapResponse(c.Response()); !res.Committed {
				handled++
			}
			echo.DefaultHTTPErrorHandler(false)(c, err)
		}
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				before := c.Response()
				outside = next(c)
				if c.Response() != before {
					t.Errorf("%s: the writer hasn't been put back", tt.name)
				}
				return outside
			}
		})
		e.Use(stintecho.New(stint.Rate(9, time.Minute), stint.WithKey(stint.Global()),
			stint.WithSettle(func(_ *http.Request, s int, n int64) int64 { status, written = s, n; return 0 })))
		want := error(nil)
		e.GET("/", func(c *echo.Context) error { want = tt.do(c); return want })
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != tt.status || status != tt.status || written != tt.written || handled > 1 || outside != want {
			t.Errorf("%s: answered %d, settled by %d and %d bytes, want %d and %d; handled %d times, outside %v",
				tt.name, w.Code, status, written, tt.status, tt.written, handled, outside)
		}
	}
}
