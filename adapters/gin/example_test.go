package stintgin_test

import (
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
