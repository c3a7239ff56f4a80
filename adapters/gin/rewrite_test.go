package stintgin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	stintgin "github.com/stint-go/stint/adapters/gin"
)

// counting is a middleware that puts a writer of its own into the context, as
// those that compress do.
func counting(c *gin.Context) {
	outer := c.Writer
	c.Writer = &counter{outer}
	defer func() { c.Writer = outer }()
	c.Next()
}

type counter struct{ gin.ResponseWriter }

// HandleContext gives a request gin's own writer again. The limits still see, and pace,
// what is written there.
func TestHandleContextKeepsTheResponse(t *testing.T) {
	const size = 1_250_000
	answer := func(c *gin.Context) { c.String(201, strings.Repeat("x", size)) }
	again := func(e *gin.Engine) gin.HandlerFunc {
		return func(c *gin.Context) {
			c.Request.URL.Path = "/new"
			e.HandleContext(c)
		}
	}
	tests := []struct {
		name   string
		mount  func(e *gin.Engine, limits gin.HandlerFunc)
		path   string
		status int
		size   int64
	}{
		{"not handled again", func(e *gin.Engine, limits gin.HandlerFunc) { e.Use(limits); e.GET("/new", answer) }, "/new", 201, size},
		{"limits for all", func(e *gin.Engine, limits gin.HandlerFunc) {
			e.Use(limits)
			e.GET("/old", again(e))
			e.GET("/new", answer)
		}, "/old", 201, size},
		{"limits of the route", func(e *gin.Engine, limits gin.HandlerFunc) { e.GET("/old", limits, again(e)); e.GET("/new", answer) }, "/old", 201, size},
		{"another writer inside", func(e *gin.Engine, limits gin.HandlerFunc) {
			e.GET("/old", limits, counting, again(e))
			e.GET("/new", counting, answer)
		}, "/old", 201, size},
		{"another writer outside, not handled again", func(e *gin.Engine, limits gin.HandlerFunc) { e.Use(counting, limits); e.GET("/new", answer) }, "/new", 201, size},
		{"written before and after", func(e *gin.Engine, limits gin.HandlerFunc) {
			e.GET("/old", limits, func(c *gin.Context) { c.String(202, "before"); again(e)(c); c.String(500, "after") })
			e.GET("/new", answer)
		}, "/old", 202, size + 11},
		{"twice", func(e *gin.Engine, limits gin.HandlerFunc) {
			e.Use(limits)
			e.GET("/old", func(c *gin.Context) { c.Request.URL.Path = "/mid"; e.HandleContext(c) })
			e.GET("/mid", again(e))
			e.GET("/new", answer)
		}, "/old", 201, size},
		{"to nothing", func(e *gin.Engine, limits gin.HandlerFunc) { e.GET("/old", limits, again(e)) }, "/old", 404, 18},
		{"a status alone", func(e *gin.Engine, limits gin.HandlerFunc) {
			e.GET("/old", limits, again(e))
			e.GET("/new", func(c *gin.Context) { c.Status(503) })
		}, "/old", 503, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			var status, settled int
			var written int64
			settle := stint.WithSettle(func(_ *http.Request, s int, n int64) int64 { status, written, settled = s, n, settled+1; return 0 })
			e := gin.New()
			var sizes []int
			e.Use(func(c *gin.Context) { c.Next(); sizes = append(sizes, max(c.Writer.Size(), 0)) })
			tt.mount(e, stintgin.New(stint.WithKey(stint.Global()), stint.Rate(9, time.Minute, settle), stint.Bandwidth(1_000_000)))
			start, w := time.Now(), httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest("GET", tt.path, nil))
			if w.Code != tt.status || int64(w.Body.Len()) != tt.size || int64(sizes[len(sizes)-1]) != tt.size {
				t.Errorf("%s: %d with %d bytes, and gin says %d; want %d with %d", tt.name, w.Code, w.Body.Len(), sizes, tt.status, tt.size)
			}
			if settled != 1 || status != tt.status || written != tt.size {
				t.Errorf("%s: settled %d times by %d and %d bytes, want %d and %d", tt.name, settled, status, written, tt.status, tt.size)
			}
			want := max(0, time.Duration(tt.size-250_000)*time.Microsecond)
			if took := time.Since(start); took < want || took > want+63*time.Millisecond {
				t.Errorf("%s: took %v, want %v", tt.name, took, want)
			}
		})
	}
}

// gin's writer, and the writers below it, behave the same with limits that look at the
// response.
func TestWriterStaysGins(t *testing.T) {
	settle := stint.WithSettle(func(*http.Request, int, int64) int64 { return stint.AsCharged })
	e := gin.New()
	e.Use(stintgin.New(stint.WithKey(stint.Global()), stint.Rate(99, time.Minute, settle)))
	e.GET("/", func(c *gin.Context) {
		rc := http.NewResponseController(c.Writer)
		if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("deadline: %v", err)
		}
		if c.Writer.CloseNotify() == nil {
			t.Error("nobody says when the client has left")
		}
		_, _ = c.Writer.WriteString("a")
		c.Writer.Flush()
		if err := rc.Flush(); err != nil || c.Writer.Size() != 1 || !c.Writer.Written() {
			t.Errorf("flush: %v, %d bytes", err, c.Writer.Size())
		}
	})
	e.GET("/hijack", func(c *gin.Context) {
		conn, _, err := c.Writer.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Write([]byte("HTTP/1.1 299 OK\r\nConnection: close\r\n\r\n"))
		_ = conn.Close()
	})
	server := httptest.NewServer(e)
	defer server.Close()
	for path, want := range map[string]int{"/": 200, "/hijack": 299} {
		res, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}
