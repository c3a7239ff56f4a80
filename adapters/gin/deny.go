package stintgin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/framework"
)

// WithDeny answers requests that a limit refuses with a gin handler: c.JSON, a
// template, a redirect. It is an option for New, Middleware, stint.New, With and
// Update, and replaces a stint.WithDenyHandler.
//
//	r.Use(stintgin.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()),
//		stintgin.WithDeny(func(c *gin.Context) {
//			c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down"})
//		})))
//
// When h runs, the chain is aborted and the fields are set.
// stint.DeniedFromContext(c.Request.Context()) returns which limit refused and with
// which StatusCode. As with stint.WithDenyHandler, a body without a status is sent with
// 200, which suits reduced answers; if h writes nothing and sets no status, the limiter
// writes a problem body. h may send the request to another route by
// Engine.HandleContext: the limiter lets it pass there, and other limiters decide it.
//
// If another adapter mounts the limiter, there is no gin.Context: h doesn't run, and
// the limiter answers. stint.New refuses a nil h.
func WithDeny(h gin.HandlerFunc) stint.Option {
	if h == nil {
		return stint.WithDenyHandler(nil) // New reports it
	}
	return stint.WithDenyHandler(denier(h))
}

// denier makes a gin handler the http.Handler that the limiter calls.
type denier gin.HandlerFunc

func (h denier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, ok := framework.Of[*own](r.Context())
	if !ok {
		return
	}
	c := (*gin.Context)(found)
	request, response := c.Request, c.Writer
	c.Request, c.Writer = r, &writer{response, w}
	defer func() { c.Request, c.Writer = request, response }()
	h(c)
}

// refuse ends the chain and answers a request that wasn't admitted. The request's
// context leads to c only if l has a handler: nothing else needs it.
func refuse(l *stint.Limiter, c *gin.Context, err error) {
	c.Abort()
	if err == stint.ErrAnswered {
		return
	}
	c.Status(http.StatusOK) // gin presets 404 where no route matches
	if l.Answers(err) {
		ctx := framework.Lead(c.Request.Context(), (*own)(c))
		defer ctx.End()
		c.Request = c.Request.WithContext(ctx)
	}
	l.Deny(c.Writer, c.Request, err)
}
