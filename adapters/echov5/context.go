package stintecho

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v5"
)

// led is a request's context that leads to echo's until the request has ended: echo reuses its
// contexts for other requests. It is safe for concurrent use: anybody who was given the request
// may keep it.
type led struct {
	parent  context.Context
	own     *echo.Context
	over    atomic.Bool
	request http.Request
}

type ledKey struct{}

// leadTo returns the context of a copy of r, its request, which leads to c. Both take one
// allocation.
func leadTo(r *http.Request, c *echo.Context) *led {
	l := &led{parent: r.Context(), own: c}
	l.request = *r.WithContext(l) // inlined, the copy in between is on the stack
	return l
}

func (l *led) Deadline() (time.Time, bool) { return l.parent.Deadline() }
func (l *led) Done() <-chan struct{}       { return l.parent.Done() }
func (l *led) Err() error                  { return l.parent.Err() }

func (l *led) Value(key any) any {
	if key == (ledKey{}) {
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
// contexts for other requests. Don't keep the context either. Handlers have c itself; Context
// may not work with a handler's request.
func Context(r *http.Request) (c *echo.Context, ok bool) {
	if l, _ := r.Context().Value(ledKey{}).(*led); l != nil && !l.over.Load() {
		return l.own, true
	}
	return nil, false
}
