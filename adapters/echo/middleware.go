// Package stintecho puts stint's limits in front of echo (v4) handlers.
//
//	e := echo.New()
//	e.Use(stintecho.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP())))
//
// Addresses come from stint's own key functions, not from echo's RealIP, which
// believes any header unless an IPExtractor is set.
//
// An echo route that ends in a parameter, such as /users/:id, matches all the
// rest of a path: its pattern for stint.WithRoute is /users/{id...}.
package stintecho

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/internal/pattern"
)

// New is Middleware of a new limiter. It panics on a bad option; use stint.New
// and Middleware where the options come from a configuration.
func New(opts ...stint.Option) echo.MiddlewareFunc {
	return Middleware(stint.Must(stint.New(opts...)))
}

// Middleware admits requests through l. When l has admitted a request the next
// handler runs, with the stint.Permit in the request's context. Slots of
// concurrency limits are released when it returns or panics.
//
// A refusal is returned as an *echo.HTTPError that wraps l's error, with its
// status and the fields already set on the response: the application's
// HTTPErrorHandler writes the body, as it does for every other error. It may hand
// the error to l.Deny, for those it has no answer to.
//
// Where l answers by itself, and nil is returned:
//
//   - with stint.WithProblem, by an application/problem+json body;
//   - with stint.WithDenyHandler or stint.WithErrorHandler, by that handler.
//
// Where a limit looks at the response (stint.WithSettle,
// stint.AdaptiveConcurrency) and the next handler returns an error, the
// application's HTTPErrorHandler answers it here, so that there is a response
// to look at; the error is returned all the same, as echo's own loggers do.
//
// With options it is Middleware of l.With(opts...), such as a WithProblem where
// only some routes are to answer so. Like New, it panics on a bad one, and if a
// limit has stint.GivenKey or the Key of another adapter.
//
// If the request's context ends while the request waits, the error's status is 503
// and it wraps the context's error, such as context.Canceled: of a client that has
// left, or of a server that shuts down.
//
// Where nothing further out has set it, Request.Pattern is the route, such as
// "GET /users/:id", for stint.Pattern and for loggers; it stays empty where no
// route matches, and under Echo.Pre.
func Middleware(l *stint.Limiter, opts ...stint.Option) echo.MiddlewareFunc {
	if len(opts) > 0 {
		l = stint.Must(l.With(opts...))
	}
	if err := l.ForRequests(adapter); err != nil {
		panic(err)
	}
	var known pattern.Cache
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			if r.Pattern == "" {
				r.Pattern = patternOf(&known, r.Method, c.Path())
			}
			p, err := l.AdmitIn(c.Response(), r, c)
			if err != nil {
				return refuse(l, c, err)
			}
			defer p.Done()
			req, wrap := p.Next(c.Request())
			if req != r {
				c.SetRequest(req)
				// The server removes the files of the request it knows.
				// c.Request stays: handlers may have put values for others
				// into its context.
				defer func() { r.MultipartForm = c.Request().MultipartForm }()
			}
			if wrap == nil {
				return next(c)
			}
			res := c.Response()
			outer := res.Writer
			res.Writer = wrap(outer)
			defer func() { res.Writer = outer }()
			if err := next(c); err != nil {
				c.Error(err) // or there is no response yet to look at
				return err
			}
			return nil
		}
	}
}

// refuse answers a request that was not admitted, or leaves that to the
// application's HTTPErrorHandler.
func refuse(l *stint.Limiter, c echo.Context, err error) error {
	if l.Answers(err) {
		l.Deny(c.Response(), c.Request(), err)
		return nil
	}
	if denied := (*stint.DeniedError)(nil); errors.As(err, &denied) {
		status := denied.StatusCode()
		return echo.NewHTTPError(status, http.StatusText(status)+": limit "+denied.Decision.Limit).SetInternal(err)
	}
	status := http.StatusInternalServerError
	if s := (interface{ StatusCode() int })(nil); errors.As(err, &s) {
		status = s.StatusCode()
	}
	return echo.NewHTTPError(status).SetInternal(err)
}
