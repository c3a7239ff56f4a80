package stintecho

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v5"
)

// echoContext is a request's context that carries echo's until the request has ended: echo reuses its
// contexts for other requests. It is safe for concurrent use: functions that get the request
// may keep it.
type echoContext struct {
	parent  context.Context
	c       *echo.Context
	ended   atomic.Bool
	request http.Request
}

type echoContextKey struct{}

// newEchoContext returns the context of a copy of r, its request, which carries c. Both are one
// allocation.
func newEchoContext(r *http.Request, c *echo.Context) *echoContext {
	l := &echoContext{parent: r.Context(), c: c}
	l.request = *r.WithContext(l) // inlined, the copy in between is on the stack
	return l
}

func (l *echoContext) Deadline() (time.Time, bool) { return l.parent.Deadline() }
func (l *echoContext) Done() <-chan struct{}       { return l.parent.Done() }
func (l *echoContext) Err() error                  { return l.parent.Err() }

func (l *echoContext) Value(key any) any {
	if key == (echoContextKey{}) {
		return l
	}
	return l.parent.Value(key)
}

// Context returns the echo context of a request. A limiter's functions use it to read what echo's
// authentication has set: the functions of stint.KeyFunc, WithLimitFunc, WithCost, WithSkip,
// WithBlock, WithPriority and WithSettle, the deny and error handlers, and observers.
//
//	stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
//		c, ok := stintecho.Context(r)
//		if !ok {
//			return nil, errors.New("not a request through stintecho")
//		}
//		plan, _ := c.Get("plan").(string)
//		return limitsOf(plan)
//	})
//
// ok is false if the request hasn't come through Middleware, or has ended: echo reuses its
// contexts for other requests. Don't keep the context after the request has ended. Handlers
// have c itself; Context may not work with a handler's request.
func Context(r *http.Request) (c *echo.Context, ok bool) {
	if l, _ := r.Context().Value(echoContextKey{}).(*echoContext); l != nil && !l.ended.Load() {
		return l.c, true
	}
	return nil, false
}
