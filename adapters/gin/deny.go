package stintgin

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
)

// WithDeny answers requests that a limit refuses with a gin handler: c.JSON, a
// template, a redirect. It is an option of New, of Middleware, and of stint.New,
// With and Update, where it takes the place of a stint.WithDenyHandler.
//
//	r.Use(stintgin.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()),
//		stintgin.WithDeny(func(c *gin.Context) {
//			c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down"})
//		})))
//
// When h runs, the chain is aborted, the fields and the refusal's status (429 or
// 503) are set, and stint.DeniedFromContext(c.Request.Context()) says what
// refused. What it doesn't write stays as set: a handler that writes nothing
// still refuses. The default is a problem body.
//
// A limiter that is mounted by another adapter, which has no gin.Context, answers
// in plain text.
func WithDeny(h gin.HandlerFunc) stint.Option {
	if h == nil {
		return stint.WithDenyHandler(nil) // which New reports
	}
	return stint.WithDenyHandler(denier(h))
}

// denier is a gin handler seen as the http.Handler that the limiter calls.
type denier gin.HandlerFunc

func (h denier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(denyKey{}).(*gin.Context)
	if c == nil {
		stint.PlainText(http.StatusText(http.StatusTooManyRequests)).ServeHTTP(w, r)
		return
	}
	if err := stint.DeniedFromContext(r.Context()); err != nil {
		c.Status(err.StatusCode())
	}
	outer := c.Request
	c.Request = r
	defer func() { c.Request = outer }()
	h(c)
}

type denyKey struct{}

// denyContext carries the gin.Context to a denier. Only refusals that a handler
// answers have one: a limiter's handler is given no more than a request.
type denyContext struct {
	context.Context
	c *gin.Context
}

func (d *denyContext) Value(key any) any {
	if key == (denyKey{}) {
		return d.c
	}
	return d.Context.Value(key)
}
