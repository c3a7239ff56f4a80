package stintgin_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	stintgin "github.com/stint-go/stint/adapters/gin"
)

func ExampleNew() {
	r := gin.New()
	r.Use(stintgin.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))
	r.GET("/", func(c *gin.Context) {
		c.String(http.StatusOK, "left: %d", stint.FromContext(c.Request.Context()).Decision().Remaining)
	})
	for range 2 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 left: 0
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}
}

func ExampleMiddleware() {
	lim := stint.Must(stint.New(stint.Rate(100, time.Minute), stint.WithKey(stint.RemoteIP())))

	r := gin.New()
	r.Use(stintgin.Middleware(lim))
	r.POST("/search", stintgin.Middleware(stint.Must(lim.With(stint.Rate(2, time.Second)))), func(c *gin.Context) {})

	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("POST", "/search", nil))
	fmt.Println(w.Code, w.Header().Values("RateLimit-Policy"))
	// Output:
	// 200 ["rate";q=100;w=60 "rate-2";q=2;w=1]
}

// Each user has a limit, whatever the address: the authentication, which runs first,
// has told gin who is asking.
func ExampleKey() {
	authenticate := func(c *gin.Context) {
		if user, password, _ := c.Request.BasicAuth(); password == user+"'s secret" {
			c.Set("user", user)
			return
		}
		c.AbortWithStatus(http.StatusUnauthorized)
	}
	user := stintgin.Key(func(c *gin.Context) (string, error) {
		return c.GetString("user"), nil
	})

	r := gin.New()
	r.Use(authenticate)
	r.Use(stintgin.New(stint.Rate(1, time.Minute), stint.WithKey(user)))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello, %s", c.GetString("user")) })

	for _, user := range []string{"ada", "bob", "ada"} {
		req := httptest.NewRequest("GET", "/", nil)
		req.SetBasicAuth(user, user+"'s secret")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Println(user, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// ada 200 "rate";r=0;t=60
	// bob 200 "rate";r=0;t=60
	// ada 429 "rate";r=0;t=60
}

// Denials in the application's own words.
func ExampleWithDenyHandler() {
	slowDown := func(c *gin.Context) {
		denied := stint.DeniedFromContext(c.Request.Context())
		c.JSON(denied.StatusCode(), gin.H{"error": "slow down", "limit": denied.Decision.Limit})
	}
	r := gin.New()
	r.Use(stintgin.New(
		stint.Rate(1, time.Minute),
		stint.WithKey(stint.RemoteIP()),
		stintgin.WithDenyHandler(slowDown),
	))
	r.GET("/", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	for range 2 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After"), " ", w.Body)))
	}
	// Output:
	// 204
	// 429 60 {"error":"slow down","limit":"rate"}
}

// One function answers every denial: by a limit, for an empty key, and of a blocked address.
func ExampleWithErrorHandler() {
	r := gin.New()
	r.Use(stintgin.New(
		stint.Rate(1, time.Minute),
		stint.WithKey(stint.Header("X-API-Key")),
		stintgin.WithErrorHandler(func(c *gin.Context, err error) {
			c.JSON(c.Writer.Status(), gin.H{"limited": errors.Is(err, stint.ErrDenied), "no key": errors.Is(err, stint.ErrEmptyKey)})
		}),
	))
	r.GET("/", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	for _, key := range []string{"", "ada", "ada"} {
		w, req := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		req.Header.Set("X-API-Key", key)
		r.ServeHTTP(w, req)
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body)))
	}
	// Output:
	// 403 {"limited":false,"no key":true}
	// 204
	// 429 {"limited":true,"no key":false}
}

// One route answers with a page of its own, and shares its limits with the rest.
func ExampleWithDenyHandler_route() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())))
	page := stintgin.WithDenyHandler(func(c *gin.Context) {
		c.Redirect(http.StatusFound, "/busy")
	})
	r := gin.New()
	r.GET("/api", stintgin.Middleware(lim), func(c *gin.Context) {})
	r.GET("/shop", stintgin.Middleware(lim, page), func(c *gin.Context) {})
	for _, path := range []string{"/api", "/api", "/shop"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(strings.TrimSpace(fmt.Sprint(path, " → ", w.Code, " ", w.Header().Get("Location"))))
	}
	// Output:
	// /api → 200
	// /api → 429
	// /shop → 302 /busy
}
