package stintecho

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/internal/frameworkcontext"
)

const adapter = "stintecho"

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
func Context(r *http.Request) (c echo.Context, ok bool) {
	return frameworkcontext.From[echo.Context](r)
}

// Key makes a key from a function of the echo context, for instance for a user set by
// authentication before the limiter, or a parameter of the route.
//
//	e.Use(authenticate, stintecho.New(stint.Rate(10, time.Second),
//		stint.WithKey(stintecho.Key(func(c echo.Context) (string, error) {
//			user, _ := c.Get("user").(string)
//			return user, nil
//		}))))
//
// The rules of stint.Key apply: k is called at most once per request; an empty key
// is handled by stint.WithEmptyKey; after an error the request is denied. k may read
// anything from c, including the body, which handlers then find parsed as after any
// other reader. It must not answer the request or keep c after it returns. stint.New
// rejects a nil k.
//
// Key may be part of stint.Join, stint.FirstOf and stint.Hash. To combine it with another
// key by rules of your own, call the other one in k, as in stint.RemoteIP().Of(c.Request()).
//
// Other adapters panic if they mount a limiter with such a key. stint.Limiter.Take, Wait and
// Allow charge the key that is passed to them.
func Key(k func(echo.Context) (string, error)) stint.Key {
	if k == nil {
		return stint.KeyFunc(nil) // New reports it
	}
	return stint.KeyFunc(func(r *http.Request) (string, error) {
		c, ok := Context(r)
		if !ok {
			return "", errElsewhere
		}
		return k(c)
	}).ForAdapter(adapter)
}

var errElsewhere = errors.New("stintecho.Key: the request has not come through stintecho: mount the limiter with stintecho, or use a stint.KeyFunc of the request")
