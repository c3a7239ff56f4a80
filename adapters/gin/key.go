package stintgin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/framework"
)

const adapter = "stintgin"

// Key keys on what gin knows of a request: what an authentication before the
// limiter has set, or a parameter of the route.
//
//	r.Use(authenticate, stintgin.New(stint.Rate(10, time.Second),
//		stint.WithKey(stintgin.Key(func(c *gin.Context) (string, error) {
//			return c.GetString("user"), nil
//		}))))
//
// The rules are those of stint.KeyFunc: k is called at most once a request, an empty
// key is answered as stint.WithEmptyKey says, and after an error the request is
// refused. k may read what it likes of c, the body included, which handlers find
// parsed as they do after any other; it must not answer the request or go on to
// c.Next, nor keep c when it has returned.
//
// It may be a part of stint.Join and stint.Hash, or called by a KeyFunc of your own;
// one that calls it for some requests only is called twice for the first of these.
// Requests have the key only through this adapter: others panic when they are mounted
// with such a limiter. Take and its like charge the key they are given.
func Key(k func(*gin.Context) (string, error)) stint.KeyFunc {
	if k == nil {
		return nil // which New reports
	}
	return framework.Key(adapter, func(c *own) (string, error) { return k((*gin.Context)(c)) })
}

// own is gin's context as AdmitIn takes it.
type own gin.Context

func (c *own) SetRequest(r *http.Request) { c.Request = r }
