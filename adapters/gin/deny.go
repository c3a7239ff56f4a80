package stintgin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/framework"
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
// When h runs, the chain is aborted, the fields are set, and
// stint.DeniedFromContext(c.Request.Context()) says what refused and with which
// StatusCode. The rule is that of stint.WithDenyHandler: a body without a status
// is 200, for lesser answers, and a handler that writes nothing and sets no
// status leaves the answer to the limiter, which writes a problem body.
//
// If another adapter mounts the limiter, there is no gin.Context: h doesn't run,
// and the answer is the limiter's.
func WithDeny(h gin.HandlerFunc) stint.Option {
	if h == nil {
		return stint.WithDenyHandler(nil) // which New reports
	}
	return stint.WithDenyHandler(denier(h))
}

// denier is a gin handler seen as the http.Handler that the limiter calls.
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

// refuse ends the chain and answers a request that was not admitted. Only where l
// has a handler does the request lead to c: others are given no more than a request.
func refuse(l *stint.Limiter, c *gin.Context, err error) {
	c.Abort()
	c.Status(http.StatusOK) // gin presets 404 where no route matches
	r := c.Request
	if l.Answers(err) {
		ctx := framework.Lead(r.Context(), (*own)(c))
		defer ctx.End()
		r = r.WithContext(ctx)
	}
	l.Deny(c.Writer, r, err)
}
