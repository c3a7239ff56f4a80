package stintecho

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
)

// WithDenyHandler is like stint.WithDenyHandler, but with an echo handler. It is an option for
// New, Middleware, stint.New, With and Update, and replaces a stint.WithDenyHandler. Without one
// the application's HTTPErrorHandler answers.
//
//	e.Use(stintecho.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()),
//		stintecho.WithDenyHandler(func(c *echo.Context) error {
//			return c.JSON(http.StatusTooManyRequests, map[string]string{"error": "slow down"})
//		})))
//
// The header fields are set before h runs. stint.DeniedFromContext(c.Request().Context())
// returns the *stint.DeniedError, with the limit that denied and the StatusCode. If h returns
// an error, the application's HTTPErrorHandler answers. If h writes a body to c.Response()
// without a status, the denial's status is sent. If h writes nothing and returns nil, the
// limiter writes a problem body. In each case Middleware returns nil, so middleware outside
// sees no error.
//
// If another adapter mounts the limiter, there is no echo.Context: h doesn't run, and the
// limiter writes its default response. stint.New returns an error if h is nil.
func WithDenyHandler(h echo.HandlerFunc) stint.RouteOption {
	if h == nil {
		return stint.WithDenyHandler(nil) // New reports it
	}
	return stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, h) }))
}

// WithErrorHandler is like stint.WithErrorHandler, but with a function of echo's context. h
// writes the response to every denied request, including blocked requests and requests with an
// empty key. A deny handler takes precedence. WithErrorHandler is an option for the same
// functions as WithDenyHandler, and replaces a stint.WithErrorHandler.
//
//	stintecho.WithErrorHandler(func(c *echo.Context, err error) error {
//		return c.JSON(echo.StatusCode(err), map[string]bool{"limit": errors.Is(err, stint.ErrDenied)})
//	})
//
// stint.WithErrorHandler lists the errors. echo.StatusCode(err) is the error's status. This
// status is sent if h writes a body without another status. In all other respects, h is like
// the handler of WithDenyHandler.
func WithErrorHandler(h func(*echo.Context, error) error) stint.Option {
	if h == nil {
		return stint.WithErrorHandler(nil) // New reports it
	}
	return stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) {
		answer(w, r, func(c *echo.Context) error { return h(c, err) })
	})
}

// answer has an echo handler answer a denied request through the limiter's writer. The handler
// gets a response of its own, because the request's response is below the limiter's writer.
func answer(w http.ResponseWriter, r *http.Request, h echo.HandlerFunc) {
	c, ok := Context(r)
	if !ok {
		return
	}
	request, response := c.Request(), c.Response()
	own := echo.NewResponse(w, c.Logger())
	if denial, ok := w.(interface{ ImplicitStatus() int }); ok {
		own.Status = denial.ImplicitStatus() // echo sends it unless h sets another
	}
	c.SetRequest(r)
	c.SetResponse(own)
	defer func() {
		c.SetRequest(request)
		c.SetResponse(response)
	}()
	if err := h(c); err != nil {
		c.Echo().HTTPErrorHandler(c, err)
	}
}
