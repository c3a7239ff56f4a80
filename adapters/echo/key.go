package stintecho

import (
	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/framework"
)

const adapter = "stintecho"

// Key makes a key function of what echo knows about a request: a user set by
// authentication before the limiter, or a parameter of the route.
//
//	e.Use(authenticate, stintecho.New(stint.Rate(10, time.Second),
//		stint.WithKey(stintecho.Key(func(c echo.Context) (string, error) {
//			user, _ := c.Get("user").(string)
//			return user, nil
//		}))))
//
// The rules of stint.KeyFunc apply: k is called at most once per request; an empty key
// is handled by stint.WithEmptyKey; after an error the request is refused. k may read
// anything from c, including the body, which handlers then find parsed as after any
// other reader. It must not answer the request or keep c after it returns. stint.New
// refuses a nil k.
//
// Key may be part of stint.Join and stint.Hash, and may be called by a KeyFunc of your
// own. If that calls it for some requests only, k is called twice for the first of
// these.
//
// Only this adapter can use such a limiter for requests: others panic when they mount
// it. Limiter.Take and the like charge the key they are given.
func Key(k func(echo.Context) (string, error)) stint.KeyFunc {
	if k == nil {
		return nil // New reports it
	}
	return framework.Key(adapter, k)
}
