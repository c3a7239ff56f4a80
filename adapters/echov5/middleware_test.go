package stintecho

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/adaptertest"
	"github.com/stint-go/stint/internal/test/sitetest"
	"github.com/stint-go/stint/internal/test/storefake"
)

// What requests and answers look like through all adapters, with the problem bodies of
// echo's own error handler or of stint. The rest of the tests is about what only echo has:
// errors that travel outwards.
func TestMiddleware(t *testing.T) {
	for name, problems := range map[string]bool{"echo": false, "echo that writes problems": true} {
		t.Run(name, func(t *testing.T) {
			var opts []stint.Option
			if problems {
				opts = append(opts, stint.WithProblem())
			}
			adaptertest.Test(t, adaptertest.Adapter{
				Name:     name,
				Build:    func(s adaptertest.Site) http.Handler { return build(s, opts...) },
				Problems: problems,
				Pattern:  "POST /users/:id",
				Mounting: 1, // echo makes the chain of handlers anew for each request
				User: func(r *http.Request) (string, bool) {
					c, ok := Context(r)
					if !ok {
						return "", false
					}
					return userOf(c), true
				},
			})
		})
	}
}

// build is a site on echo.
func build(s adaptertest.Site, opts ...stint.Option) http.Handler {
	e := echo.New()
	front := opts
	if s.Deny != nil {
		front = append(front, WithDenyHandler(func(c *echo.Context) error { s.Deny(c.Response(), c.Request()); return nil }))
	}
	if s.Fail != nil {
		front = append(front, WithErrorHandler(func(c *echo.Context, err error) error { s.Fail(c.Response(), c.Request(), err); return nil }))
	}
	for _, l := range s.Limits {
		e.Use(Middleware(l, front...))
	}
	for _, l := range s.Keyed(user) {
		e.Use(authenticate, Middleware(l, opts...))
	}
	for _, r := range s.Routes {
		var chain []echo.MiddlewareFunc
		for _, l := range r.Limits {
			chain = append(chain, Middleware(l, opts...))
		}
		e.Any(r.Colons(), func(c *echo.Context) error {
			r.Handler()(c.Response(), c.Request())
			return nil
		}, chain...)
	}
	return e
}

var byAll = stint.WithKey(stint.Global())

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

// What outer middleware and the HTTPErrorHandler get.
func TestErrors(t *testing.T) {
	text := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	closed := stint.WithFailurePolicy(stint.FailClosed)
	tests := []struct {
		name   string
		opts   []stint.Option
		status int
		err    func(error) bool // nil: no error comes back
		body   string
	}{
		{"denied", []stint.Option{stint.Rate(1, time.Hour), stint.WithCost(func(*http.Request) int64 { return 2 }), byAll}, 429,
			func(err error) bool {
				d := (*stint.DeniedError)(nil)
				return errors.As(err, &d) && d.Decision.Limit == "rate"
			}, `{"message":"Too Many Requests: limit rate"}`},
		{"denied with a handler", []stint.Option{stint.Rate(1, time.Hour), stint.WithCost(func(*http.Request) int64 { return 2 }), byAll, stint.WithDenyHandler(text)}, 418, nil, ""},
		{"denied with a problem", []stint.Option{stint.Rate(1, time.Hour), stint.WithCost(func(*http.Request) int64 { return 2 }), byAll, stint.WithProblem()}, 429, nil,
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}`},
		{"store down, with a problem", []stint.Option{stint.Rate(1, time.Hour, stint.WithName("rate")), byAll, stint.WithStore(storefake.Down()), closed, stint.WithProblem()}, 503, nil,
			`{"type":"about:blank","title":"Service Unavailable","status":503}`},
		{"blocked, with a problem", []stint.Option{stint.Rate(1, time.Hour), byAll, stint.WithBlock(func(*http.Request) bool { return true }), stint.WithProblem()}, 403, nil,
			`{"type":"about:blank","title":"Forbidden","status":403}`},
		{"empty key", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-Key"))}, 403,
			func(err error) bool { return errors.Is(err, stint.ErrEmptyKey) }, `{"message":"Forbidden"}`},
		{"empty key with a handler", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-Key")),
			stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusTeapot) })}, 418, nil, ""},
		{"blocked", []stint.Option{stint.Rate(1, time.Hour), byAll, stint.WithBlock(func(*http.Request) bool { return true })}, 403,
			func(err error) bool { return errors.Is(err, stint.ErrBlocked) }, `{"message":"Forbidden"}`},
		{"store down", []stint.Option{stint.Rate(1, time.Hour, stint.WithName("rate")), byAll, stint.WithStore(storefake.Down()), closed}, 503,
			func(err error) bool { return errors.As(err, new(*stint.StoreError)) }, `{"message":"Service Unavailable"}`},
		{"key function fails", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", errors.New("secret") }))}, 500,
			func(err error) bool { return strings.Contains(err.Error(), "secret") }, `{"message":"Internal Server Error"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := echo.New()
			var got error
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					got = next(c)
					return got
				}
			}, New(test.opts...))
			e.GET("/", func(*echo.Context) error { t.Error("the handler ran"); return nil })
			w := ask(e, "GET", "/")
			if w.Code != test.status || strings.TrimSpace(w.Body.String()) != test.body {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, test.status, test.body)
			}
			if (got == nil) != (test.err == nil) {
				t.Fatalf("got error %v", got)
			}
			if got == nil {
				return
			}
			if he := (*echo.HTTPError)(nil); !errors.As(got, &he) || he.Code != test.status {
				t.Errorf("got %v, want an *echo.HTTPError with status %d", got, test.status)
			}
			if !test.err(got) {
				t.Errorf("got %v, which does not wrap the cause", got)
			}
		})
	}
}

// The error of a client that has left is available to logs, and answered like any
// other.
func TestClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := echo.New()
		handled := false
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			handled = true
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			echo.DefaultHTTPErrorHandler(false)(c, err)
		}
		e.Use(New(stint.Rate(1, time.Minute), byAll, stint.WithMaxWait(time.Hour)))
		e.GET("/", func(c *echo.Context) error { return c.String(200, "served") })
		ask(e, "GET", "/")
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		if !handled || w.Code != 503 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("handled %v, wrote %d %q", handled, w.Code, w.Body)
		}
	})
}

// The pattern is echo's route, with the method only where that is one of a
// known few; without a route it is empty.
func TestPattern(t *testing.T) {
	var seen string
	limit := New(stint.Rate(100, time.Hour), stint.WithKey(stint.KeyFunc(func(req *http.Request) (string, error) {
		seen = req.Pattern
		return "k", nil
	})))
	e := echo.New()
	e.Use(limit)
	ok := func(*echo.Context) error { return nil }
	e.GET("/users/:id", ok)
	e.Group("/api", func(next echo.HandlerFunc) echo.HandlerFunc { return next }).GET("/x", ok)
	for do, want := range map[string]string{
		"GET /users/1":   "GET /users/:id",
		"POST /users/1":  "POST /users/:id",
		"BREW1 /users/1": "/users/:id",
		"BREW2 /users/1": "/users/:id",
		"BREW /api/y":    "/api/*",
		"GET /nowhere":   "",
	} {
		method, path, _ := strings.Cut(do, " ")
		if ask(e, method, path); seen != want {
			t.Errorf("%s: got pattern %q, want %q", do, seen, want)
		}
	}
	pre := echo.New()
	pre.Pre(limit)
	pre.GET("/users/:id", ok)
	if ask(pre, "GET", "/users/1"); seen != "" {
		t.Errorf("under Pre: got pattern %q", seen)
	}
	mux := http.NewServeMux()
	mux.Handle("/users/{id}", e)
	if ask(mux, "GET", "/users/1"); seen != "GET /users/:id" {
		t.Errorf("below a mux: got pattern %q", seen)
	}
}

// discard is a ResponseWriter that costs next to nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkAllowed(b *testing.B) {
	run(b, 200, stint.Rate(10_000_000, time.Second))
}

// BenchmarkDenied is for the most part echo's: an error, and its JSON.
func BenchmarkDenied(b *testing.B) {
	run(b, 429, stint.Rate(1, 1000*time.Hour))
}

func BenchmarkDeniedWithProblem(b *testing.B) {
	run(b, 429, stint.Rate(1, 1000*time.Hour), stint.WithProblem())
}

func run(b *testing.B, want int, opts ...stint.Option) {
	h := echo.New()
	h.Use(New(append(opts, stint.WithKey(stint.RemoteIP()))...))
	h.GET("/", func(*echo.Context) error { return nil })
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

// The row of docs/routers.md is true.
func TestMounting(t *testing.T) {
	around := func(m echo.MiddlewareFunc) adaptertest.Around {
		return func(l *stint.Limiter, outside bool, do http.HandlerFunc) http.Handler {
			e := echo.New()
			e.Logger = slog.New(slog.DiscardHandler)
			if outside {
				e.Use(m, Middleware(l))
			} else {
				e.Use(Middleware(l), m)
			}
			e.Any("/", echo.WrapHandler(do))
			return e
		}
	}
	adaptertest.TestMounting(t, adaptertest.Mounting{
		Router: "echo v5",
		Site: func(front, group, route *stint.Limiter) http.Handler {
			e := echo.New()
			e.Use(Middleware(front))
			e.Group("/api", Middleware(group)).GET("/users/:id", echo.WrapHandler(adaptertest.Route{}.Handler()), Middleware(route))
			return e
		},
		Recovery: around(middleware.Recover()),
		CORS:     around(middleware.CORS("*")),
		Timeout:  around(middleware.ContextTimeout(time.Second)),
	})
}

// No spelling of a request slips past a route's limit, whenever the limiter sees the request.
func TestNoSpellingSlipsPast(t *testing.T) {
	limit, strip := New(sitetest.Limits()...), middleware.RemoveTrailingSlash()
	for name, tt := range map[string]struct {
		router echo.RouterConfig
		set    func(*echo.Echo)
	}{
		"Use":                        {set: func(e *echo.Echo) { e.Use(limit) }},
		"Pre":                        {set: func(e *echo.Echo) { e.Pre(limit) }},
		"before RemoveTrailingSlash": {set: func(e *echo.Echo) { e.Pre(limit, strip) }},
		"after RemoveTrailingSlash":  {set: func(e *echo.Echo) { e.Pre(strip); e.Use(limit) }},
		"decoded":                    {echo.RouterConfig{UseEscapedPathForMatching: true}, func(e *echo.Echo) { e.Use(limit) }},
		"HEAD as GET":                {echo.RouterConfig{AutoHandleHEAD: true}, func(e *echo.Echo) { e.Use(limit) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(tt.router)})
			tt.set(e)
			for _, r := range sitetest.Routes {
				e.Add(r.Method, r.Syntax(":%s", "*"), echo.WrapHandler(r.Handler()))
			}
			sitetest.NothingSlipsPast(t, e)
		})
	}
}
