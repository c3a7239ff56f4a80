package stintgin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
)

// WithDeny answers requests that a limit denies with a gin handler: c.JSON, a
// template, a redirect. It is an option for New, Middleware, stint.New, With and
// Update, and replaces a stint.WithDenyHandler.
//
//	r.Use(stintgin.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()),
//		stintgin.WithDeny(func(c *gin.Context) {
//			c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down"})
//		})))
//
// When h runs, the chain is aborted and the fields are set.
// stint.DeniedFromContext(c.Request.Context()) returns which limit denied and with
// which StatusCode. As with stint.WithDenyHandler, a body without a status is sent with
// that one; if h writes nothing and sets no status, the limiter writes a problem body. h may send the request to another route by
// Engine.HandleContext: the limiter lets it pass there, and other limiters decide it.
//
// If another adapter mounts the limiter, there is no gin.Context: h doesn't run, and
// the limiter answers. stint.New rejects a nil h.
func WithDeny(h gin.HandlerFunc) stint.Option {
	if h == nil {
		return stint.WithDenyHandler(nil) // New reports it
	}
	return stint.WithDenyHandler(denier(h))
}

// denier makes a gin handler the http.Handler that the limiter calls.
type denier gin.HandlerFunc

func (h denier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := Context(r)
	if !ok {
		return
	}
	c.Abort()
	request, response := c.Request, c.Writer
	if denied := stint.DeniedFromContext(r.Context()); denied != nil {
		response.WriteHeader(denied.StatusCode()) // gin sends it unless h sets another
	}
	c.Request, c.Writer = r, &writer{response, w}
	defer func() { c.Request, c.Writer = request, response }()
	h(c)
}
