// Package stintecho applies stint's limits to echo (v5) handlers.
//
//	e := echo.New()
//	e.Use(stintecho.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP())))
//
// Addresses come from stint's own key functions, not from echo's RealIP, which trusts
// any header unless an IPExtractor is set. Package adapters/echo is the same for echo v4.
//
// An echo route that ends in a parameter, such as /users/:id, matches the whole rest of
// a path: its pattern for stint.WithRoute is /users/{id...}.
package stintecho

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
)

// New makes a limiter and returns its Middleware. It panics on an invalid option. If
// options come from a configuration, use stint.New, which returns an error, and
// Middleware.
func New(opts ...stint.Option) echo.MiddlewareFunc {
	return Middleware(stint.Must(stint.New(opts...)))
}

// Middleware admits requests through l. If l admits a request, the next handler runs,
// with the stint.Permit in the request's context. Slots of concurrency limits are
// released when it returns or panics. The middleware is safe for concurrent use.
//
// A denial is returned as an *echo.HTTPError that wraps l's error. It has the status of the
// denial, and the fields are already set on the response. The application's HTTPErrorHandler
// writes the body, as for every other error. For errors that it doesn't handle, it may call
// l.Deny. The next handler may return a *stint.DeniedError, for example of a Permit.Extend. The middleware
// answers it in the same way, unless the response has begun or the error has a status of its own.
//
// In two cases l writes the response, and the middleware returns nil:
//
//   - With stint.WithProblem, it writes an application/problem+json body.
//   - With a WithDenyHandler or WithErrorHandler, of this package or of stint, that handler answers.
//
// If a limit looks at the response (stint.WithSettle, stint.AdaptiveConcurrency) and the next
// handler returns an error, the application's HTTPErrorHandler is called here, so that there is
// a response to look at. The error is returned all the same, as echo's own loggers do. If a
// stint.Bandwidth is the only such limit, HTTPErrorHandler isn't called here: a middleware
// outside may still change the error, and the response to it isn't paced.
//
// If the request's context ends while the request waits, because the client has left or
// the server shuts down, the error's status is 503 and it wraps the context's error,
// such as context.Canceled.
//
// Request.Pattern is the route, such as "GET /users/:id", for stint.Pattern and for
// loggers. As with a http.ServeMux inside another, it replaces what an outer router has
// set. If no route matches, and under Echo.Pre, it stays as it is.
//
// With options, Middleware uses l.With(opts...), for instance a WithProblem for some
// routes only. It panics on an invalid option, and if a limit uses stint.GivenKey or
// the Key of another adapter.
func Middleware(l *stint.Limiter, opts ...stint.Option) echo.MiddlewareFunc {
	if len(opts) > 0 {
		l = stint.Must(l.With(opts...))
	}
	if err := l.Mount(adapter); err != nil {
		panic(err)
	}
	var known patterns
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			r, res := c.Request(), c.Response()
			if path := c.Path(); path != "" {
				r.Pattern = known.of(r.Method, path)
			}
			b := writers.Get().(*baseWriter)
			b.w, b.c = res, c
			// The server removes the files of the request it knows. c's isn't restored:
			// handlers may have put values for others into its context.
			defer func() {
				if b.carried != nil {
					b.carried.ended.Store(true)
				}
				if form := c.Request().MultipartForm; form != nil {
					r.MultipartForm = form
				}
				b.put()
			}()
			l.Serve(b, r, func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				if w == http.ResponseWriter(b) {
					b.err = answerDenied(l, c, next(c))
					return
				}
				b.watched = true
				c.SetResponse(w)
				defer c.SetResponse(res)
				err := answerDenied(l, c, next(c))
				b.err = err
				if watched, ok := w.(interface{ NeedsResponse() bool }); err != nil && ok && watched.NeedsResponse() {
					c.Echo().HTTPErrorHandler(c, err) // otherwise there would be no response to look at yet
				}
			})
			b.over = true
			return b.err
		}
	}
}

// answerDenied answers a denial that the next handler has returned, as l answers its own, and returns the error for
// the application's HTTPErrorHandler. Other errors are returned as they are.
func answerDenied(l *stint.Limiter, c *echo.Context, err error) error {
	var status echo.HTTPStatusCoder
	if err == nil || !errors.As(err, &status) {
		return err
	}
	b := &baseWriter{w: c.Response(), c: c}
	if _, denied := status.(*stint.DeniedError); !denied || b.Written() {
		return err
	}
	l.Deny(b, c.Request(), err)
	if b.carried != nil {
		b.carried.ended.Store(true)
	}
	return b.err
}

// httpError returns an error of the limiter as echo's, for the application's
// HTTPErrorHandler.
func httpError(err error) error {
	status := http.StatusInternalServerError
	text := ""
	if coder := (echo.HTTPStatusCoder)(nil); errors.As(err, &coder) {
		status = coder.StatusCode()
		if denied, ok := coder.(*stint.DeniedError); ok {
			text = ": limit " + denied.Decision.Limit
		}
	}
	return echo.HTTPError{Code: status, Message: http.StatusText(status) + text}.Wrap(err)
}
