package stintgin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	stintgin "github.com/stint-go/stint/adapters/gin"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// A page of an account. It is mounted behind the limiter, so that the key finds what the
// authentication has set, and is exempt from it.
func Example_usage() {
	user := stintgin.Key(func(c *gin.Context) (string, error) { return c.GetString("user"), nil })
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Minute, stint.WithName("calls"), stint.WithKey(user)),
		stint.WithRoute("GET /account/usage", stint.Exempt()),
	))

	r := gin.New()
	r.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }) // the authentication
	r.Use(stintgin.Middleware(lim))
	r.GET("/", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	r.GET("/account/usage", gin.WrapH(stinthttp.Usage(lim)))

	for _, path := range []string{"/", "/account/usage"} {
		w, req := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
		req.Header.Set("X-User", "ada")
		r.ServeHTTP(w, req)
		fmt.Print(w.Body)
	}
	// Output:
	// {"limits":[{"limit":"calls","capacity":100,"used":1,"remaining":99,"reset_after":1}]}
}
