package stintgin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/adaptertest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

// What requests and answers look like through all adapters. The rest of the tests is
// about what only gin has.
func TestMiddleware(t *testing.T) {
	adaptertest.Test(t, adaptertest.Adapter{Name: "gin", Build: build, Problems: true, Pattern: "POST /users/:id", User: func(r *http.Request) (string, bool) {
		c, ok := Context(r)
		if !ok {
			return "", false
		}
		return c.GetString("user"), true
	}})
}

// build is a site on gin.
func build(s adaptertest.Site) http.Handler {
	e := gin.New()
	for _, l := range s.Limits {
		var opts []stint.Option
		if s.Deny != nil {
			opts = append(opts, WithDenyHandler(func(c *gin.Context) { s.Deny(c.Writer, c.Request) }))
		}
		if s.Fail != nil {
			opts = append(opts, WithErrorHandler(func(c *gin.Context, err error) { s.Fail(c.Writer, c.Request, err) }))
		}
		e.Use(Middleware(l, opts...))
	}
	for _, l := range s.Keyed(user) {
		e.Use(authenticate, Middleware(l))
	}
	for _, r := range s.Routes {
		var chain []gin.HandlerFunc
		for _, l := range r.Limits {
			chain = append(chain, Middleware(l))
		}
		e.Any(r.Colons(), append(chain, func(c *gin.Context) { r.Handler()(c.Writer, c.Request) })...)
	}
	return e
}

func limiter(t testing.TB, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(append(opts, stint.WithKey(stint.Global()))...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestNewPanics(t *testing.T) {
	defer func() {
		err, ok := recover().(error)
		if !ok || !strings.Contains(err.Error(), "stint.WithKey") {
			t.Errorf("recovered %v, want an error that says what to write", err)
		}
	}()
	New(stint.Rate(1, time.Second))
}

// A request handled again under another path is still one request.
func TestHandleContext(t *testing.T) {
	l := limiter(t, stint.Rate(10, time.Hour), stint.Concurrency(1))
	r := gin.New()
	r.Use(Middleware(l))
	r.GET("/old", func(c *gin.Context) {
		c.Request.URL.Path = "/new"
		r.HandleContext(c)
	})
	r.GET("/new", func(c *gin.Context) { c.String(200, "new") })
	w := ask(r, "GET", "/old")
	if w.Code != 200 || w.Body.String() != "new" {
		t.Fatalf("got %d %q", w.Code, w.Body)
	}
	if got := w.Header().Values("RateLimit"); len(got) != 1 || !strings.Contains(got[0], `"rate";r=9`) {
		t.Errorf("got RateLimit %q, want one charge", got)
	}
	d, err := l.Peek(context.Background(), globalKey(t))
	if err != nil || d.Limits[0].Remaining != 9 || d.Limits[1].Remaining != 1 {
		t.Errorf("left %+v, %v, want 9 and a free slot", d.Limits, err)
	}
}

func globalKey(t *testing.T) string {
	t.Helper()
	key, err := stint.Global().Of(httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A denial ends the chain, and leaves no error for a middleware that would
// write a second body.
func TestAborts(t *testing.T) {
	l := limiter(t, stint.Rate(1, time.Hour))
	r := gin.New()
	ran, after := 0, 0
	r.Use(func(c *gin.Context) {
		c.Next()
		after++
		if len(c.Errors) > 0 {
			c.JSON(500, c.Errors)
		}
		if c.IsAborted() != (c.Writer.Status() == 429) {
			t.Errorf("aborted %v with status %d", c.IsAborted(), c.Writer.Status())
		}
	})
	r.GET("/", Middleware(l), func(c *gin.Context) { ran++ }, func(c *gin.Context) { ran++ })
	for range 3 {
		w := ask(r, "GET", "/")
		if w.Code == 429 && strings.Count(w.Body.String(), "{") != 1 {
			t.Errorf("got body %q", w.Body)
		}
	}
	if ran != 2 || after != 3 {
		t.Errorf("%d handlers ran, %d middleware, want 2 and 3", ran, after)
	}
}

// The pattern is gin's route, whatever an outer router has set. Without a route it is
// empty, whatever the path.
func TestPattern(t *testing.T) {
	var seen string
	r := gin.New()
	r.Use(New(stint.Rate(100, time.Hour), stint.WithKey(stint.KeyFunc(func(req *http.Request) (string, error) {
		seen = req.Pattern
		return "k", nil
	}))))
	r.GET("/users/:id", func(*gin.Context) {})
	r.Group("/files").GET("/*path", func(*gin.Context) {})
	r.HandleMethodNotAllowed = true
	for do, want := range map[string]string{
		"GET /users/1":  "GET /users/:id",
		"GET /files/a":  "GET /files/*path",
		"GET /nowhere":  "",
		"POST /users/1": "",
		"BREW /users/1": "",
	} {
		method, path, _ := strings.Cut(do, " ")
		if ask(r, method, path); seen != want {
			t.Errorf("%s: got pattern %q, want %q", do, seen, want)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/users/{id}", r)
	if ask(mux, "GET", "/users/1"); seen != "GET /users/:id" {
		t.Errorf("below a mux: got pattern %q", seen)
	}
}

// Behind HandleContext, the pattern is the new route's.
func TestPatternOfARequestHandledAgain(t *testing.T) {
	var seen []string
	r := gin.New()
	r.Use(New(stint.Rate(100, time.Hour), stint.WithKey(stint.Global())), func(c *gin.Context) {
		seen = append(seen, c.Request.Pattern)
	})
	again := func(path string) gin.HandlerFunc {
		return func(c *gin.Context) { c.Request.URL.Path = path; r.HandleContext(c) }
	}
	r.GET("/old", again("/users/7"))
	r.GET("/users/:id", again("/nowhere"))
	ask(r, "GET", "/old")
	if got, want := strings.Join(seen, ", "), "GET /old, GET /users/:id, "; got != want {
		t.Errorf("got patterns %q, want %q", got, want)
	}
}

// Values that handlers put into the request's context are there for outer middleware.
func TestContextIsKept(t *testing.T) {
	type key struct{}
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		if c.Request.Context().Value(key{}) != "user" {
			t.Error("the value is gone")
		}
	}, Middleware(limiter(t, stint.Rate(1, time.Hour))))
	r.GET("/", func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), key{}, "user"))
	})
	ask(r, "GET", "/")
}

// discard is a ResponseWriter that costs next to nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkAllowed(b *testing.B) {
	run(b, 200, stint.Rate(10_000_000, time.Second))
}

func BenchmarkDenied(b *testing.B) {
	run(b, 429, stint.Rate(1, 1000*time.Hour))
}

func run(b *testing.B, want int, limit stint.Option) {
	h := gin.New()
	h.Use(New(limit, stint.WithKey(stint.RemoteIP())))
	h.GET("/", func(*gin.Context) {})
	ask(h, "GET", "/")
	if got := ask(h, "GET", "/").Code; got != want {
		b.Fatalf("got status %d, want %d", got, want)
	}
	r := httptest.NewRequest("GET", "/", nil)
	w := &discard{make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		r.Pattern = ""
		h.ServeHTTP(w, r)
	}
}
