package stintecho

import (
	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/framework"
)

const adapter = "stintecho"

// Key keys on what echo knows of a request: what an authentication before the
// limiter has set, or a parameter of the route.
//
//	e.Use(authenticate, stintecho.New(stint.Rate(10, time.Second),
//		stint.WithKey(stintecho.Key(func(c echo.Context) (string, error) {
//			user, _ := c.Get("user").(string)
//			return user, nil
//		}))))
//
// The rules are those of stint.KeyFunc: k is called at most once a request, an empty
// key is answered as stint.WithEmptyKey says, and after an error the request is
// refused. k may read what it likes of c, the body included, which handlers find
// parsed as they do after any other; it must not answer the request, nor keep c when
// it has returned.
//
// It may be a part of stint.Join and stint.Hash, or called by a KeyFunc of your own;
// one that calls it for some requests only is called twice for the first of these.
// Requests have the key only through this adapter: others panic when they are mounted
// with such a limiter. Take and its like charge the key they are given.
func Key(k func(echo.Context) (string, error)) stint.KeyFunc {
	if k == nil {
		return nil // which New reports
	}
	return framework.Key(adapter, k)
}
