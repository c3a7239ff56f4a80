package stintgin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	stintgin "github.com/stint-go/stint/adapters/gin"
)

// A gin handler may change the status until it writes, and ask the writer for the
// outcome.
func TestSettleByGinsResponse(t *testing.T) {
	tests := []struct {
		name    string
		do      gin.HandlerFunc
		status  int
		written int64
	}{
		{"JSON", func(c *gin.Context) { c.JSON(201, gin.H{"a": 1}) }, 201, 7},
		{"a status alone", func(c *gin.Context) { c.Status(404) }, 404, 0},
		{"another status", func(c *gin.Context) { c.Status(200); c.String(503, "later") }, 503, 5},
		{"aborted", func(c *gin.Context) { c.AbortWithStatus(401) }, 401, 0},
		{"an error with a status", func(c *gin.Context) { _ = c.AbortWithError(502, errors.New("upstream")) }, 502, 0},
		{"too late", func(c *gin.Context) { c.String(200, "x"); c.Status(500) }, 200, 1},
	}
	for _, tt := range tests {
		var status int
		var written int64
		e := gin.New()
		e.Use(stintgin.New(stint.Rate(9, time.Minute), stint.WithKey(stint.Global()),
			stint.WithSettle(func(_ *http.Request, s int, n int64) int64 { status, written = s, n; return 0 })))
		e.GET("/", func(c *gin.Context) {
			tt.do(c)
			if c.Writer.Status() != tt.status || int64(max(c.Writer.Size(), 0)) != tt.written || c.Writer.Written() != (tt.written > 0 || tt.status == 401 || tt.status == 502) {
				t.Errorf("%s: the writer says %d, %d bytes, written %v", tt.name, c.Writer.Status(), c.Writer.Size(), c.Writer.Written())
			}
		})
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != tt.status || status != tt.status || written != tt.written {
			t.Errorf("%s: answered %d, settled by %d and %d bytes, want %d and %d", tt.name, w.Code, status, written, tt.status, tt.written)
		}
	}
}

// Inside the limits, Recovery answers 500 itself; outside, it answers after them.
func TestSettleByRecovery(t *testing.T) {
	for _, inside := range []bool{true, false} {
		var status int
		limits := stintgin.New(stint.Rate(9, time.Minute), stint.WithKey(stint.Global()),
			stint.WithSettle(func(_ *http.Request, s int, _ int64) int64 { status = s; return 0 }))
		e := gin.New()
		recovery := gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(500) })
		if inside {
			e.Use(limits, recovery)
		} else {
			e.Use(recovery, limits)
		}
		e.GET("/", func(*gin.Context) { panic("boom") })
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != 500 || status != 500 {
			t.Errorf("inside %v: answered %d, settled by %d", inside, w.Code, status)
		}
	}
}

// A handler may have detached its permit. When the release comes, gin's context may
// serve another request already.
func TestDetached(t *testing.T) {
	var seen []int
	l := stint.Must(stint.New(stint.WithKey(stint.Global()), stint.Rate(9, time.Hour), stint.WithSettle(func(_ *http.Request, status int, _ int64) int64 {
		seen = append(seen, status)
		return stint.AsCharged
	})))
	var release func()
	r := gin.New()
	r.GET("/job", stintgin.Middleware(l), func(c *gin.Context) {
		release = stint.FromContext(c.Request.Context()).Detach()
		c.Status(202) // which gin writes at the end
	})
	r.GET("/other", func(c *gin.Context) {
		c.Status(404)
		release()
	})
	for _, path := range []string{"/job", "/other"} {
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	if !slices.Equal(seen, []int{202}) {
		t.Errorf("settled for %v, want 202", seen)
	}
}
