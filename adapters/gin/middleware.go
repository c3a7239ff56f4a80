// Package stintgin puts stint's limits in front of gin handlers.
//
//	r := gin.New()
//	r.Use(stintgin.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP())))
//
// Addresses come from stint's own key functions, not from gin's ClientIP,
// which trusts every proxy unless told otherwise.
package stintgin

import (
	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/internal/pattern"
)

// New is Middleware of a new limiter. It panics on a bad option, as gin does
// on a bad route; use stint.New and Middleware where the options come from a
// configuration.
func New(opts ...stint.Option) gin.HandlerFunc {
	return Middleware(stint.Must(stint.New(opts...)))
}

// Middleware admits requests through l. When l has admitted a request the next
// handlers run, with the stint.Permit in c.Request's context; otherwise l.Deny
// answers and the chain is aborted. c.Error is left alone: a middleware that
// turns errors into bodies would add a second one. Slots of concurrency limits
// are released when the next handlers return or panic.
//
// Where nothing further out has set it, Request.Pattern is the route, such as
// "GET /users/:id", for stint.Pattern and for loggers; it stays empty where no
// route matches. A request that is handled again by Engine.HandleContext is
// not charged again, unless the limiter is WithoutPermit.
//
// Where a limit looks at the response (stint.WithSettle,
// stint.AdaptiveConcurrency), it is what the next handlers have made of it when
// they return: a middleware that turns errors into answers belongs after this
// one. What Engine.HandleContext makes of the request counts too, and is paced by
// a stint.Bandwidth, unless a middleware before this one has replaced c.Writer.
//
// With options it is Middleware of l.With(opts...), such as a WithDeny of the
// route's own. Like New, it panics on a bad one, and if a limit has
// stint.GivenKey or the Key of another adapter.
func Middleware(l *stint.Limiter, opts ...stint.Option) gin.HandlerFunc {
	if len(opts) > 0 {
		l = stint.Must(l.With(opts...))
	}
	if err := l.ForRequests(adapter); err != nil {
		panic(err)
	}
	var known pattern.Cache
	return func(c *gin.Context) {
		r := c.Request
		if route := c.FullPath(); route != "" && r.Pattern == "" {
			// gin knows a route only together with its method, so neither is the
			// client's to choose.
			r.Pattern = known.Of(r.Method, route)
		}
		p, err := l.AdmitIn(c.Writer, r, (*own)(c))
		if err != nil {
			refuse(l, c, err)
			return
		}
		defer p.Done()
		req, wrap := p.Next(c.Request)
		if req != r {
			c.Request = req
			// The server removes the files of the request it knows. c.Request
			// stays: handlers may have put values for others into its context.
			defer func() { r.MultipartForm = c.Request.MultipartForm }()
		}
		if wrap != nil {
			defer watch(c, wrap)()
		}
		c.Next()
	}
}
