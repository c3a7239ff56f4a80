package stintecho_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
)

func ExampleNew() {
	e := echo.New()
	e.Use(stintecho.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))
	e.GET("/", func(c echo.Context) error {
		return c.String(http.StatusOK, fmt.Sprint("left: ", stint.FromContext(c.Request().Context()).Decision().Remaining))
	})
	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 left: 0
	// 429 {"message":"Too Many Requests: limit rate"}
}

// An application that answers errors in its own way, but whose refusals are to be
// problem+json.
func ExampleMiddleware_problem() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))

	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		_ = c.String(http.StatusTeapot, "the application's own")
	}
	e.Use(stintecho.Middleware(lim, stint.WithProblem()))
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Content-Type"), " ", w.Body)))
	}
	// Output:
	// 204
	// 429 application/problem+json {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}
}

// An application's HTTPErrorHandler may hand refusals to the limiter.
func ExampleMiddleware() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))

	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if denied := (*stint.DeniedError)(nil); errors.As(err, &denied) {
			lim.Deny(c.Response(), c.Request(), err)
			return
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
	e.Use(stintecho.Middleware(lim))
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		var body struct {
			Violated []string `json:"violated-policies"`
		}
		_ = json.Unmarshal(w.Body.Bytes(), &body)
		fmt.Println(w.Code, w.Header().Get("Content-Type"), body.Violated)
	}
	// Output:
	// 204  []
	// 429 application/problem+json [rate]
}
