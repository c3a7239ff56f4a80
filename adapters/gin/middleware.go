// Package stintgin applies stint's limits to gin handlers.
//
//	r := gin.New()
//	r.Use(stintgin.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP())))
//
// Call r.Use before the first route: gin applies it only to routes that are added later, and to
// requests that no route matches.
//
// Addresses come from stint's own key functions, not from gin's ClientIP, which trusts
// every proxy by default.
package stintgin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/internal/pattern"
)

// New makes a limiter and returns its Middleware. It panics on an invalid option, as
// gin does on an invalid route. If options come from a configuration, use stint.New,
// which returns an error, and Middleware.
func New(opts ...stint.Option) gin.HandlerFunc {
	return Middleware(stint.Must(stint.New(opts...)))
}

// Middleware admits requests through l. If l admits a request, the next handlers run,
// with the stint.Permit in c.Request's context; otherwise l answers as by Deny and the
// chain is aborted. Slots of concurrency limits are released when the next handlers return or
// panic. c.Error isn't called: a middleware that turns errors into bodies would write a
// second one.
//
// Request.Pattern is the route, such as "GET /users/:id", for stint.Pattern and for
// loggers. It is empty if no route matches. As with a http.ServeMux inside another, it
// replaces what an outer router has set. A request handled again by Engine.HandleContext
// isn't charged again, unless the limiter is WithoutPermit; Request.Pattern is then the
// new route.
//
// If a limit looks at the response (stint.WithSettle, stint.AdaptiveConcurrency), it sees the
// response as it is when the next handlers return. So a middleware that turns errors into
// responses must run inside this one: call Use for it later. What Engine.HandleContext writes
// counts too, and is paced by a stint.Bandwidth, unless a middleware before this one has
// replaced c.Writer.
//
// With options, Middleware uses l.With(opts...), for instance a WithDenyHandler for one route.
// It panics on an invalid option, and if a limit uses stint.GivenKey or the Key of
// another adapter. The handler is safe for concurrent use.
func Middleware(l *stint.Limiter, opts ...stint.Option) gin.HandlerFunc {
	if len(opts) > 0 {
		l = stint.Must(l.With(opts...))
	}
	if err := l.Mount(adapter); err != nil {
		panic(err)
	}
	var known pattern.Cache
	return func(c *gin.Context) {
		r := c.Request
		// gin reports a route only together with its method, so a client can choose
		// neither.
		r.Pattern = ""
		if route := c.FullPath(); route != "" {
			r.Pattern = known.Of(r.Method, route)
		}
		b := writers.Get().(*baseWriter)
		b.gin, b.w, b.c = c.Writer, c.Writer, c
		// The server removes the files of the request it knows. c.Request isn't restored:
		// handlers may have put values for others into its context.
		defer func() {
			if b.carried != nil {
				b.carried.End()
			}
			if form := c.Request.MultipartForm; form != nil {
				r.MultipartForm = form
			}
			b.put()
		}()
		admitted := false
		l.Serve(b, r, func(w http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request = r
			if w != http.ResponseWriter(b) {
				defer b.watch(c, w)()
			}
			c.Next()
		})
		if !admitted {
			c.Abort()
		}
		b.over = true
	}
}
