package stintecho_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
)

// A Bandwidth doesn't look at the response, so it leaves errors to those outside.
func TestBandwidthLeavesErrorsAlone(t *testing.T) {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := next(c); err != nil {
				return echo.NewHTTPError(503).SetInternal(err)
			}
			return nil
		}
	})
	e.Use(stintecho.New(stint.Bandwidth(1_000_000), stint.WithKey(stint.Global())))
	e.GET("/", func(echo.Context) error { return errors.New("busy") })
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
		{"an answer", func(c echo.Context) error { return c.String(201, "made") }, 201, 4},
		{"no content", func(c echo.Context) error { return c.NoContent(204) }, 204, 0},
		{"an error with a status", func(echo.Context) error { return echo.NewHTTPError(401, "who") }, 401, 18},
		{"any error", func(echo.Context) error { return errors.New("secret") }, 500, 36},
		{"an error after an answer", func(c echo.Context) error { _ = c.String(200, "x"); return errors.New("late") }, 200, 1},
	}
	for _, tt := range tests {
		var status, handled int
		var written int64
		var outside error
		e := echo.New()
		e.HTTPErrorHandler = func(err error, c echo.Context) {
			if !c.Response().Committed {
				handled++
			}
			e.DefaultHTTPErrorHandler(err, c)
		}
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				before := c.Response().Writer
				outside = next(c)
				if c.Response().Writer != before {
					t.Errorf("%s: the writer hasn't been put back", tt.name)
				}
				return outside
			}
		})
		e.Use(stintecho.New(stint.Rate(9, time.Minute), stint.WithKey(stint.Global()),
			stint.WithSettle(func(_ *http.Request, s int, n int64) int64 { status, written = s, n; return 0 })))
		want := error(nil)
		e.GET("/", func(c echo.Context) error { want = tt.do(c); return want })
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != tt.status || status != tt.status || written != tt.written || handled > 1 || outside != want {
			t.Errorf("%s: answered %d, settled by %d and %d bytes, want %d and %d; handled %d times, outside %v",
				tt.name, w.Code, status, written, tt.status, tt.written, handled, outside)
		}
	}
}

// A denial that a handler returns is answered like one of the middleware, unless the response has begun or the error
// has a status of its own. A limit that looks at the response sees that answer.
func TestDenialOfHandler(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("stream: %w", err) }
	const told = `{"message":"Too Many Requests: limit rate"}` + "\n"
	for _, tt := range []struct {
		name    string
		do      func(c echo.Context, denied error) error
		option  stint.Option
		status  int
		body    string
		settled int
	}{
		{"as it is", func(_ echo.Context, err error) error { return err }, nil, 429, told, 429},
		{"wrapped", func(_ echo.Context, err error) error { return wrapped(err) }, nil, 429, told, 429},
		{"by a handler of denials", func(_ echo.Context, err error) error { return wrapped(err) },
			stintecho.WithDenyHandler(func(c echo.Context) error { return c.String(418, "no") }), 418, "no", 418},
		{"with a status of its own", func(_ echo.Context, err error) error { return echo.NewHTTPError(503, "busy").SetInternal(err) },
			nil, 503, `{"message":"busy"}` + "\n", 503},
		{"after a beginning", func(c echo.Context, err error) error { _ = c.String(200, "so far"); return err }, nil, 200, "so far", 200},
	} {
		for _, looks := range []bool{false, true} {
			settled := 0
			opts := []stint.Option{stint.WithKey(stint.Global())}
			if tt.option != nil {
				opts = append(opts, tt.option)
			}
			if looks {
				opts = append(opts, stint.Rate(9, time.Hour, stint.WithSettle(func(_ *http.Request, status int, _ int64) int64 { settled = status; return 0 })))
			} else {
				opts = append(opts, stint.Rate(9, time.Hour))
			}
			outer := 0
			e := echo.New()
			e.Use(stintecho.New(stint.Concurrency(9), stint.WithKey(stint.Global()),
				stintecho.WithErrorHandler(func(echo.Context, error) error { outer++; return nil })))
			e.Use(stintecho.New(opts...))
			e.GET("/", func(c echo.Context) error {
				err := stint.FromContext(c.Request().Context()).Extend(c.Request().Context(), 10)
				if !errors.Is(err, stint.ErrDenied) {
					t.Fatalf("%v", err)
				}
				return tt.do(c, err)
			})
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != tt.status || w.Body.String() != tt.body || looks && settled != tt.settled || outer > 0 {
				t.Errorf("%s, observed %t: %d %q, settled by %d, answered outside %d times", tt.name, looks, w.Code, w.Body, settled, outer)
			}
			if retry := w.Header().Get("Retry-After"); (retry != "") != (tt.status == 429 || tt.status == 418) {
				t.Errorf("%s, observed %t: Retry-After is %q", tt.name, looks, retry)
			}
		}
	}
}
