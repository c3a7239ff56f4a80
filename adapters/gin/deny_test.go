package stintgin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
)

// Wherever WithDenyHandler is given, it answers, and the fields are set.
func TestWithDenyHandler(t *testing.T) {
	limit, byAll := stint.Rate(1, time.Hour), stint.WithKey(stint.Global())
	own := WithDenyHandler(func(c *gin.Context) { c.String(http.StatusTeapot, "own") })
	other := WithDenyHandler(func(c *gin.Context) { c.String(http.StatusTeapot, "other") })
	updated := func() *stint.Limiter {
		l := limiter(t, limit)
		if err := l.Update(limit, byAll, own); err != nil {
			t.Fatal(err)
		}
		return l
	}
	tests := []struct {
		name string
		h    gin.HandlerFunc
	}{
		{"New", New(limit, byAll, own)},
		{"stint.New", Middleware(limiter(t, limit, own))},
		{"Middleware", Middleware(limiter(t, limit), own)},
		{"Middleware, instead of the limiter's", Middleware(limiter(t, limit, other), own)},
		{"Middleware, instead of a http.Handler", Middleware(limiter(t, limit, stint.WithDenyHandler(http.NotFoundHandler())), own)},
		{"the last counts", New(limit, byAll, other, own)},
		{"With", Middleware(stint.Must(limiter(t, limit).With(own)))},
		{"Update", Middleware(updated())},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := gin.New()
			served := 0
			r.GET("/", tt.h, func(*gin.Context) { served++ })
			ask(r, "GET", "/")
			w := ask(r, "GET", "/")
			if w.Code != http.StatusTeapot || w.Body.String() != "own" || served != 1 {
				t.Errorf("got %d %q, and %d served", w.Code, w.Body, served)
			}
			if w.Header().Get("Retry-After") != "3600" || w.Header().Get("RateLimit") == "" {
				t.Errorf("got fields %v", w.Header())
			}
		})
	}
}

// What the deny handler finds, and what it can't undo.
func TestWithDenyHandlerInTheChain(t *testing.T) {
	const (
		types   = `{"type":"https://iana.org/assignments/http-problem-types#`
		tooMany = types + `quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}` + "\n"
		full    = types + `temporary-reduced-capacity","title":"Capacity temporarily reduced","status":503,"violated-policies":["concurrency"]}` + "\n"
	)
	type key struct{}
	served := 0
	tests := []struct {
		name   string
		limit  stint.Limit
		deny   gin.HandlerFunc
		status int
		body   string
	}{
		{"writes nothing", stint.Rate(1, time.Hour), func(*gin.Context) {}, 429, tooMany},
		{"writes nothing for a service that is full", stint.Concurrency(1), func(*gin.Context) {}, 503, full},
		{"writes a body alone", stint.Rate(1, time.Hour), func(c *gin.Context) { _, _ = c.Writer.WriteString("cached") }, 429, "cached"},
		{"writes a body for a service that is full", stint.Concurrency(1), func(c *gin.Context) { _, _ = c.Writer.WriteString("busy") }, 503, "busy"},
		{"writes bytes alone", stint.Rate(1, time.Hour), func(c *gin.Context) { _, _ = c.Writer.Write([]byte("cached")) }, 429, "cached"},
		{"sets a status alone", stint.Rate(1, time.Hour), func(c *gin.Context) { c.Status(204) }, 204, ""},
		{"sets 200 alone", stint.Rate(1, time.Hour), func(c *gin.Context) { c.Status(200) }, 200, ""},
		{"writes the header alone", stint.Rate(1, time.Hour), func(c *gin.Context) { c.Writer.WriteHeaderNow() }, 429, ""},
		{"aborts alone", stint.Rate(1, time.Hour), func(c *gin.Context) { c.AbortWithStatus(420) }, 420, ""},
		{"flushes", stint.Rate(1, time.Hour), func(c *gin.Context) { c.Writer.Flush() }, 429, ""},
		{"notes it", stint.Rate(1, time.Hour), func(c *gin.Context) { c.Header("X-Note", "1"); _ = c.Error(errors.New("slow")) }, 429, tooMany},
		{"goes on", stint.Rate(1, time.Hour), func(c *gin.Context) { c.Next() }, 429, tooMany},
		{"aborts", stint.Rate(1, time.Hour), func(c *gin.Context) { c.AbortWithStatusJSON(420, gin.H{"a": 1}) }, 420, `{"a":1}`},
		{"asks", stint.Rate(1, time.Hour), func(c *gin.Context) {
			ctx := c.Request.Context()
			c.String(200, "%v %v %v %v", c.IsAborted(), c.FullPath(), ctx.Value(key{}), stint.DeniedFromContext(ctx).Decision.Limit)
		}, 200, "true /a/:id user rate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			served = 0
			l := limiter(t, tt.limit, WithDenyHandler(tt.deny))
			r := gin.New()
			r.Use(func(c *gin.Context) {
				c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), key{}, "user"))
				c.Next()
				if _, leads := Context(c.Request); leads || stint.DeniedFromContext(c.Request.Context()) != nil {
					t.Error("the denial is still in the request when it has been answered")
				}
			})
			r.GET("/a/:id", Middleware(l), func(c *gin.Context) {
				if served++; served == 1 { // and while it is open, the second
					w := ask(r, "GET", "/a/1")
					if w.Code != tt.status || w.Body.String() != tt.body {
						t.Errorf("got %d %q, want %d %q", w.Code, w.Body, tt.status, tt.body)
					}
				}
			})
			if ask(r, "GET", "/a/1"); served != 1 {
				t.Errorf("%d served, want 1", served)
			}
		})
	}
}

// A denied request may be sent to another route: the limiter that denied it lets it
// pass, and others decide it.
func TestWithDenyHandlerSendsElsewhere(t *testing.T) {
	r := gin.New()
	calls := 0
	elsewhere := func(path string) stint.Option {
		return WithDenyHandler(func(c *gin.Context) {
			if calls++; calls > 10 {
				panic("the handler is called for ever")
			}
			c.Request.URL.Path = path
			r.HandleContext(c)
		})
	}
	lim := limiter(t, stint.Rate(1, time.Hour), elsewhere("/busy"))
	r.Use(Middleware(lim))
	r.GET("/", func(c *gin.Context) { c.String(200, "served") })
	r.GET("/busy", Middleware(limiter(t, stint.Rate(2, time.Hour, stint.WithName("busy")))), func(c *gin.Context) {
		c.String(200, "busy: "+stint.DeniedFromContext(c.Request.Context()).Decision.Limit)
	})
	r.GET("/search", Middleware(stint.Must(lim.With(stint.Rate(1, time.Hour, stint.WithName("search"))))), func(*gin.Context) {})
	for i, want := range []string{"200 served", "200 busy: rate", "200 busy: rate", "429 "} {
		calls = 0
		if w := ask(r, "GET", "/"); !strings.HasPrefix(fmt.Sprint(w.Code, " ", w.Body), want) || calls > 1 || len(w.Header().Values("Retry-After")) != min(i, 1) {
			t.Errorf("request %d: got %d %q after %d calls, want %q", i, w.Code, w.Body, calls, want)
		}
	}
	calls = 0
	if w := ask(r, "GET", "/search"); w.Code != 429 || calls > 2 {
		t.Errorf("a route with more limits: got %d %q after %d calls", w.Code, w.Body, calls)
	}
}

// gin takes a route that isn't there for 404: no reason to answer a denial so.
func TestWithDenyHandlerWithoutARoute(t *testing.T) {
	r := gin.New()
	r.Use(Middleware(limiter(t, stint.Rate(1, time.Hour), WithDenyHandler(func(c *gin.Context) {
		_, _ = c.Writer.WriteString("cached")
	}))))
	for _, want := range []int{404, 429} {
		if w := ask(r, "GET", "/nowhere"); w.Code != want {
			t.Errorf("got %d %q, want %d", w.Code, w.Body, want)
		}
	}
}

// Without a gin.Context there still is an answer: the limiter's.
func TestWithDenyHandlerElsewhere(t *testing.T) {
	l := limiter(t, stint.Rate(1, time.Hour), WithDenyHandler(func(*gin.Context) { t.Error("ran") }))
	var w *httptest.ResponseRecorder
	for range 2 {
		w = httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		l.Serve(w, r, func(http.ResponseWriter, *http.Request) {})
	}
	if w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

func TestWithDenyHandlerNil(t *testing.T) {
	if _, err := stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.Global()), WithDenyHandler(nil)); err == nil {
		t.Error("no error")
	}
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "nil") {
			t.Errorf("recovered %v", err)
		}
	}()
	Middleware(limiter(t, stint.Rate(1, time.Hour)), WithDenyHandler(nil))
}

// The server removes the files of a form that the deny handler has read.
func TestWithDenyHandlerLeavesFilesToTheServer(t *testing.T) {
	for name, k := range map[string]stint.Key{"a constant key": stint.Global(), "gin's key": user} {
		e := gin.New()
		e.Use(authenticate, New(stint.Rate(1, time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 })), stint.WithKey(k),
			WithDenyHandler(func(c *gin.Context) {
				if err := c.Request.ParseMultipartForm(1); err != nil {
					t.Error(err)
				}
			})))
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		_, _ = form.CreateFormFile("file", "empty")
		_ = form.Close()
		r := httptest.NewRequest("POST", "/", &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		if e.ServeHTTP(w, r); w.Code != 429 || r.MultipartForm == nil {
			t.Errorf("%s: status %d, the server sees the form: %v", name, w.Code, r.MultipartForm != nil)
		}
	}
}

// A route has a handler of its own, which gets the gin context.
func TestDenyHandlerOfRoute(t *testing.T) {
	text := func(s string) stint.RouteOption {
		return WithDenyHandler(func(c *gin.Context) { c.String(http.StatusTeapot, s+" "+c.FullPath()) })
	}
	e := gin.New()
	e.Use(New(stint.Rate(1, 1000*time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 })), stint.WithKey(stint.Global()), text("all"),
		stint.WithRoute("GET /stock/{id}", text("stock"))))
	e.GET("/stock/:id", func(*gin.Context) { t.Error("it was admitted") })
	e.GET("/other", func(*gin.Context) { t.Error("it was admitted") })
	for target, want := range map[string]string{"/stock/7": "stock /stock/:id", "/other": "all /other"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		if w.Code != http.StatusTeapot || w.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", target, w.Code, w.Body, want)
		}
	}
}
