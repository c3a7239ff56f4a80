package stintecho

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
)

const adapter = "stintecho (echo v5)"

// Key makes a key from a function of the echo context, for instance for a user set by
// authentication before the limiter, or a parameter of the route.
//
//	e.Use(authenticate, stintecho.New(stint.Rate(10, time.Second),
//		stint.WithKey(stintecho.Key(func(c *echo.Context) (string, error) {
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
func Key(k func(*echo.Context) (string, error)) stint.Key {
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
