package stintecho_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echov5"
)

func ExampleNew() {
	e := echo.New()
	e.Use(stintecho.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))
	e.GET("/", func(c *echo.Context) error {
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

// Each user has a limit, whatever the address: the authentication, which runs first,
// has told echo who is asking.
func ExampleKey() {
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			user, password, _ := c.Request().BasicAuth()
			if password != user+"'s secret" {
				return echo.ErrUnauthorized
			}
			c.Set("user", user)
			return next(c)
		}
	}
	user := stintecho.Key(func(c *echo.Context) (string, error) {
		user, _ := c.Get("user").(string)
		return user, nil
	})

	e := echo.New()
	e.Use(authenticate)
	e.Use(stintecho.New(stint.Rate(1, time.Minute), stint.WithKey(user)))
	e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })

	for _, user := range []string{"ada", "bob", "ada"} {
		req := httptest.NewRequest("GET", "/", nil)
		req.SetBasicAuth(user, user+"'s secret")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
		fmt.Println(user, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// ada 204 "rate";r=0;t=60
	// bob 204 "rate";r=0;t=60
	// ada 429 "rate";r=0;t=60
}

// Denials in the application's own words.
func ExampleWithDenyHandler() {
	e := echo.New()
	e.Use(stintecho.New(
		stint.Rate(1, time.Minute),
		stint.WithKey(stint.RemoteIP()),
		stintecho.WithDenyHandler(func(c *echo.Context) error {
			return c.JSON(http.StatusTooManyRequests, map[string]any{"error": "slow down"})
		}),
	))
	e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After"), " ", w.Body)))
	}
	// Output:
	// 204
	// 429 60 {"error":"slow down"}
}

// An application that answers errors in its own way, but whose denials are to be
// problem+json.
func ExampleMiddleware_problem() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))

	e := echo.New()
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		_ = c.String(http.StatusTeapot, "the application's own")
	}
	e.Use(stintecho.Middleware(lim, stint.WithProblem()))
	e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Content-Type"), " ", w.Body)))
	}
	// Output:
	// 204
	// 429 application/problem+json {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}
}

// An application's HTTPErrorHandler may hand denials to the limiter.
func ExampleMiddleware() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))

	e := echo.New()
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		if denied := (*stint.DeniedError)(nil); errors.As(err, &denied) {
			lim.Deny(c.Response(), c.Request(), err)
			return
		}
		echo.DefaultHTTPErrorHandler(false)(c, err)
	}
	e.Use(stintecho.Middleware(lim))
	e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })

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
