package stintgin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
)

// WithDenyHandler is like stint.WithDenyHandler, but with a gin handler, which may use c.JSON,
// a template or a redirect. It is an option for New, Middleware, stint.New, With and Update,
// and replaces a stint.WithDenyHandler.
//
//	r.Use(stintgin.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()),
//		stintgin.WithDenyHandler(func(c *gin.Context) {
//			c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down"})
//		})))
//
// The chain is aborted and the header fields are set before h runs.
// stint.DeniedFromContext(c.Request.Context()) returns the *stint.DeniedError, with the limit
// that denied and the StatusCode. If h writes a body without a status, the denial's status is
// sent. If h writes nothing and sets no status, the limiter writes a problem body. h may send
// the request to another route by Engine.HandleContext: the limiter lets it pass there, and
// other limiters decide it.
//
// If another adapter mounts the limiter, there is no gin.Context: h doesn't run, and the
// limiter writes its default response. stint.New returns an error if h is nil.
func WithDenyHandler(h gin.HandlerFunc) stint.RouteOption {
	if h == nil {
		return stint.WithDenyHandler(nil) // New reports it
	}
	return stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, h) }))
}

// WithErrorHandler is like stint.WithErrorHandler, but with a function of gin's context. h
// writes the response to every denied request, including blocked requests and requests with an
// empty key. A deny handler takes precedence. WithErrorHandler is an option for the same
// functions as WithDenyHandler, and replaces a stint.WithErrorHandler.
//
//	stintgin.WithErrorHandler(func(c *gin.Context, err error) {
//		c.JSON(c.Writer.Status(), gin.H{"limit": errors.Is(err, stint.ErrDenied)})
//	})
//
// stint.WithErrorHandler lists the errors. c.Writer.Status() is the error's status. This status
// is sent if h writes a body without another status. In all other respects, h is like the
// handler of WithDenyHandler.
func WithErrorHandler(h func(*gin.Context, error)) stint.Option {
	if h == nil {
		return stint.WithErrorHandler(nil) // New reports it
	}
	return stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) {
		answer(w, r, func(c *gin.Context) { h(c, err) })
	})
}

// answer has a gin handler answer a denied request through the limiter's writer.
func answer(w http.ResponseWriter, r *http.Request, h gin.HandlerFunc) {
	c, ok := Context(r)
	if !ok {
		return
	}
	c.Abort()
	request, response := c.Request, c.Writer
	if denial, ok := w.(interface{ ImplicitStatus() int }); ok {
		response.WriteHeader(denial.ImplicitStatus()) // gin sends it unless h sets another
	}
	c.Request, c.Writer = r, &writer{response, w}
	defer func() { c.Request, c.Writer = request, response }()
	h(c)
}
