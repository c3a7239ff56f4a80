package stintgin_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
		stint.Rate(100, time.Hour, stint.WithName("calls"), stint.WithKey(user)),
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
	// {"limits":[{"limit":"calls","capacity":100,"used":1,"remaining":99,"reset_after":36}]}
}

// A page outside the middleware of its limiter can't read the keys, and says so, even if another
// limiter's middleware has passed the request on.
func TestUsageOutsideTheMiddleware(t *testing.T) {
	user := stintgin.Key(func(c *gin.Context) (string, error) { return c.GetString("user"), nil })
	plans := func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(9, time.Minute, stint.WithName("plan"))}, nil
	}
	for name, limit := range map[string]stint.Option{
		"a limit": stint.Rate(100, time.Minute, stint.WithName("calls")),
		"a plan":  stint.WithLimitSource(user, plans),
	} {
		var log bytes.Buffer
		lim := stint.Must(stint.New(limit, stint.WithKey(user), stint.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		r := gin.New()
		r.Use(stintgin.New(stint.Rate(100, time.Minute), stint.WithKey(stint.RemoteIP())))
		r.GET("/outside", gin.WrapH(stinthttp.Usage(lim)))
		r.GET("/inside", stintgin.Middleware(lim), gin.WrapH(stinthttp.Usage(lim)))
		for path, want := range map[string]int{"/outside": 500, "/inside": 403} { // inside, the key is empty
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != want || want == 500 && !strings.Contains(log.String(), "mount the limiter with stintgin") {
				t.Errorf("%s, %s: got %d %s, want %d; log %s", name, path, w.Code, w.Body, want, &log)
			}
		}
	}
}
