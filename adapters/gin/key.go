package stintgin

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/internal/frameworkcontext"
)

const adapter = "stintgin"

// Context returns the gin context of a request. A limiter's functions use it to read what gin's
// authentication has set: the functions of stint.KeyFunc, WithLimitFunc, WithCost, WithSkip,
// WithBlock, WithPriority and WithSettle, the deny and error handlers, and observers.
//
//	stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
//		c, ok := stintgin.Context(r)
//		if !ok {
//			return nil, errors.New("not a request through stintgin")
//		}
//		return limitsOf(c.GetString("plan"))
//	})
//
// ok is false if the request hasn't come through Middleware, or has ended: gin reuses its
// contexts for other requests. Don't keep the context after the request has ended. Handlers
// have c itself; Context may not work with a handler's request.
func Context(r *http.Request) (c *gin.Context, ok bool) {
	return frameworkcontext.From[*gin.Context](r)
}

// Key makes a key from a function of the gin context, for instance for a user set by
// authentication before the limiter, or a parameter of the route.
//
//	r.Use(authenticate, stintgin.New(stint.Rate(10, time.Second),
//		stint.WithKey(stintgin.Key(func(c *gin.Context) (string, error) {
//			return c.GetString("user"), nil
//		}))))
//
// The rules of stint.Key apply: k is called at most once per request; an empty key
// is handled by stint.WithEmptyKey; after an error the request is denied. k may read
// anything from c, including the body, which handlers then find parsed as after any
// other reader. It must not answer the request, call c.Next, or keep c after it
// returns. stint.New rejects a nil k.
//
// Key may be part of stint.Join, stint.FirstOf and stint.Hash. To combine it with another
// key by rules of your own, call the other one in k, as in stint.RemoteIP().Of(c.Request).
//
// Other adapters panic if they mount a limiter with such a key. stint.Limiter.Take, Wait and
// Allow charge the key that is passed to them.
func Key(k func(*gin.Context) (string, error)) stint.Key {
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

var errElsewhere = errors.New("stintgin.Key: the request has not come through stintgin: mount the limiter with stintgin, or use a stint.KeyFunc of the request")

// Cookie keys on the value of a cookie as gin's c.Cookie returns it: unescaped. stint.Cookie keys on the value as
// it is sent, so that a client could write one session in many ways, such as "a" and "%61", and have a bucket for
// each. The key is empty if the request doesn't have the cookie, or if its escapes are invalid, for which c.Cookie
// returns "". Like a stint.KeyFunc, a key made by Cookie equals only copies of itself.
//
// Other values need no such key: stint.Header reads the same value as c.GetHeader, r.URL.Query as c.Query, and a
// [Key] may call c.Param.
func Cookie(name string) stint.Key {
	if (&http.Cookie{Name: name}).Valid() != nil {
		return stint.Cookie(name) // New reports it
	}
	return stint.KeyFunc(func(r *http.Request) (string, error) {
		c, err := r.Cookie(name)
		if err != nil {
			return "", nil
		}
		value, _ := url.QueryUnescape(c.Value)
		return value, nil
	})
}
